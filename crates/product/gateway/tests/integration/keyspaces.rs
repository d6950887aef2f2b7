//! `SELECT n` selects keyspace n.

use crate::support;

use nicekv_client::Keyspace;
use nicekv_proto::quorum::Quorum;
use nicekv_proto::{KeyspaceId, Replication};
use std::io::Write;
use std::net::SocketAddr;
use support::{Resp, World, request};

const OK: &str = "+OK\r\n";
const NO_VALUE: &str = "$-1\r\n";
const OUT_OF_RANGE: &str = "-ERR DB index is out of range: a database is a keyspace, and there are these: 0, 3, 5; `nicekv keyspace create` makes others\r\n";

/// A store with keyspaces 0, 3 and 5, which is replicated by quorum.
fn world() -> (World, SocketAddr) {
    let mut world = World::new();
    let address = world.gateway(|config| {
        let vrings = config.client.keyspaces[0].vrings;
        let quorum = Replication::Quorum(Quorum::new(3, 2).unwrap());
        for (id, replication) in [(3, Replication::Multicast), (5, quorum)] {
            config.client.keyspaces.push(Keyspace { id: KeyspaceId(id), replication, ..vrings.into() });
        }
    });
    (world, address)
}

fn db(connection: &mut Resp) -> String {
    let info = connection.call("CLIENT INFO");
    info.split(' ').find(|field| field.starts_with("db=")).unwrap().to_owned()
}

#[test]
fn keyspaces_have_separate_keys() {
    let (_world, address) = world();
    let (mut connection, mut other) = (Resp::connect(address), Resp::connect(address));
    assert_eq!(connection.call("SET key zero"), OK);
    assert_eq!(connection.call("SELECT 3"), OK);
    assert_eq!(connection.call("GET key"), NO_VALUE);
    assert_eq!(connection.call("MSET key three second 3"), OK);
    assert_eq!(connection.call("MGET key second"), "*2\r\n$5\r\nthree\r\n$1\r\n3\r\n");
    assert_eq!(db(&mut connection), "db=3");
    // Other connections keep their keyspace.
    assert_eq!(db(&mut other), "db=0");
    assert_eq!(other.call("MGET key second"), "*2\r\n$4\r\nzero\r\n$-1\r\n");
    assert_eq!(connection.call("SELECT 0"), OK);
    assert_eq!(connection.call("GET key"), "$4\r\nzero\r\n");
}

#[test]
fn select_applies_to_later_commands() {
    let (_world, address) = world();
    let mut connection = Resp::connect(address);
    let commands = ["SET k 0", "SELECT 3", "SET k 3", "INCR k", "SELECT 0", "GET k", "SELECT 3", "GET k"];
    for command in commands {
        connection
            .stream
            .write_all(&request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
            .unwrap();
    }
    let found: Vec<_> = commands.iter().map(|_| String::from_utf8(connection.reply()).unwrap()).collect();
    assert_eq!(found, [OK, OK, OK, ":4\r\n", OK, "$1\r\n0\r\n", OK, "$1\r\n4\r\n"]);
}

#[test]
fn unknown_databases_are_refused() {
    let (_world, address) = world();
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("SELECT 3"), OK);
    for number in ["1", "2", "4", "6", "-1", "65539", "2147483647"] {
        assert_eq!(connection.call(&format!("SELECT {number}")), OUT_OF_RANGE, "{number}");
    }
    assert_eq!(db(&mut connection), "db=3", "a refusal changes nothing");
    assert_eq!(connection.call("CONFIG GET databases"), "*2\r\n$9\r\ndatabases\r\n$1\r\n6\r\n");
    assert_eq!(connection.call("RESET"), "+RESET\r\n");
    assert_eq!(db(&mut connection), "db=0");
    for command in ["MOVE key 3", "SWAPDB 0 3"] {
        assert!(connection.call(command).starts_with("-ERR unknown command"), "{command}");
    }
    let to_another = "-ERR Copying to another database is not allowed in cluster mode\r\n";
    assert_eq!(connection.call("COPY key other DB 3"), to_another);
    assert_eq!(connection.call("COPY key other DB 4"), OUT_OF_RANGE);
}

#[test]
fn a_quorum_keyspace_refuses_commands_that_need_a_primary() {
    let (world, address) = world();
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("SELECT 5"), OK);
    let needs = |what| {
        format!(
            "-ERR {what} needs a primary, and this keyspace is replicated by quorum: it can get, set and delete\r\n"
        )
    };
    assert_eq!(connection.call("INCR k"), needs("an increment"));
    assert_eq!(connection.call("INCRBYFLOAT k 0.5"), needs("an increment"));
    assert_eq!(connection.call("APPEND k x"), needs("an append"));
    assert_eq!(connection.call("SET k v EX 10"), needs("an expiry time"));
    assert_eq!(world.requests(), [""; 0], "no request was sent");
    assert_eq!(connection.call("SELECT 0"), OK);
    assert_eq!(connection.call("INCR k"), ":1\r\n");
}

#[test]
fn client_info_shows_the_database() {
    let (_world, address) = world();
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("CLIENT SETNAME tester"), OK);
    let (ours, info) = (connection.stream.local_addr().unwrap(), connection.call("CLIENT INFO"));
    let expected = format!("id=1 addr={ours} laddr={address} name=tester age=");
    assert!(info.contains(&expected), "{info}");
    assert!(
        info.ends_with(
            " db=0 sub=0 psub=0 ssub=0 multi=-1 cmd=client|info user=default redir=-1 resp=2\n\r\n"
        ),
        "{info}"
    );
}

#[test]
fn flushall_deletes_nothing_if_one_keyspace_cannot_be_flushed() {
    let (_world, address) = world();
    let mut connection = Resp::connect(address);
    for keyspace in ["0", "3"] {
        assert_eq!(connection.call(&format!("SELECT {keyspace}")), OK);
        assert_eq!(connection.call("SET key value"), OK);
    }
    let refused = connection.call("FLUSHALL");
    assert!(refused.starts_with("-ERR nothing was deleted: keyspace 5 "), "{refused}");
    for keyspace in ["0", "3"] {
        assert_eq!(connection.call(&format!("SELECT {keyspace}")), OK);
        assert_eq!(connection.call("EXISTS key"), ":1\r\n", "{keyspace}");
    }
    // FLUSHDB deletes the keys of the selected keyspace only.
    assert_eq!((connection.call("SELECT 3"), connection.call("SET key value")), (OK.into(), OK.into()));
    assert_eq!((connection.call("SELECT 0"), connection.call("SET key value")), (OK.into(), OK.into()));
    assert_eq!((connection.call("FLUSHDB"), connection.call("EXISTS key")), (OK.into(), ":0\r\n".into()));
    assert_eq!((connection.call("SELECT 3"), connection.call("EXISTS key")), (OK.into(), ":1\r\n".into()));
}

/// A call of a command of this arity: its name, and arguments that every command accepts.
fn any_call(name: &str, arity: i32) -> Vec<String> {
    let arguments = (1..arity.unsigned_abs()).map(|_| "1".to_owned());
    [name.to_owned()].into_iter().chain(arguments).collect()
}

#[test]
fn no_command_changes_names_of_objects() {
    const REFUSED: &str = "-ERR nothing was changed: the keys of this keyspace are names of objects";
    let mut world = World::new();
    let address = world.gateway(|config| {
        let vrings = config.client.keyspaces[0].vrings;
        let objects = Keyspace { id: KeyspaceId(7), holds_objects: true, ..vrings.into() };
        config.client.keyspaces.push(objects);
    });
    let mut connection = Resp::connect(address);
    let mut call = |words: &[String]| {
        connection.send(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
        String::from_utf8(connection.reply()).unwrap()
    };
    let words = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let table = call(&words("COMMAND"));
    let mut lines = table.lines().filter(|line| !line.starts_with('$'));
    let mut commands = Vec::new();
    while let Some(line) = lines.next() {
        // In COMMAND's reply, an entry begins with name, arity and flags.
        if line == "*10" {
            let (name, arity, _) = (lines.next().unwrap(), lines.next().unwrap(), lines.next());
            let flag = lines.next().unwrap().to_owned();
            commands.push((name.to_owned(), arity[1..].parse::<i32>().unwrap(), flag));
        }
    }
    assert!(commands.len() > 100, "{commands:?}");
    assert_eq!(call(&words("SELECT 7")), OK);
    let mut writing = 0;
    for (name, arity, flag) in &commands {
        let is_writing = ["+write", "+movablekeys"].contains(&flag.as_str());
        if !is_writing {
            continue;
        }
        writing += 1;
        let any = any_call(name, *arity);
        let refused = call(&any);
        let refuses = |reply: &str| {
            reply.starts_with(REFUSED) || (name == "flushall" && reply.contains("nothing was "))
        };
        assert!(refuses(&refused), "{any:?}: {refused}");
        // Commands in a transaction are refused, too.
        assert_eq!(call(&words("MULTI")), OK);
        let queued = call(&any);
        assert!(refuses(&queued), "{any:?} in a transaction: {queued}");
        assert!(call(&words("EXEC")).starts_with("-EXECABORT"), "{any:?}");
    }
    assert!(writing >= 35, "{commands:?}");
    assert_eq!(world.requests(), [""; 0], "no request was sent");
    assert_eq!(call(&words("GET 1")), NO_VALUE);
    // Commands from another keyspace are refused as well.
    assert_eq!(call(&words("SELECT 0")), OK);
    let refused = call(&words("FLUSHALL"));
    assert!(refused.starts_with("-ERR nothing was deleted: keyspace 7 has names of objects"), "{refused}");
    assert_eq!(call(&words("SET 1 v")), OK);
    assert_eq!(call(&words("FLUSHDB")), OK);
}
