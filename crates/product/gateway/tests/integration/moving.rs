//! RENAME and COPY under concurrent writes, RANDOMKEY, and payloads exchanged with redis-server.

use crate::support;

use std::collections::HashSet;
use support::{RedisServer, Resp, World};

#[test]
fn concurrent_renames_keep_one_copy_of_a_value() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    Resp::connect(address).call("HSET a counter 0");
    let movers: Vec<_> = ["RENAME a b", "RENAME b a"]
        .into_iter()
        .map(|command| {
            std::thread::spawn(move || {
                let mut connection = Resp::connect(address);
                (0..200).filter(|_| connection.call(command) == "+OK\r\n").count()
            })
        })
        .collect();
    let writer = std::thread::spawn(move || {
        let mut connection = Resp::connect(address);
        (0..200).for_each(|_| drop(connection.call("EXPIRE a 1000")));
    });
    let moved: Vec<_> = movers.into_iter().map(|mover| mover.join().unwrap()).collect();
    assert!(moved.iter().all(|count| *count > 0), "{moved:?}");
    writer.join().unwrap();
    let mut connection = Resp::connect(address);
    let found = ["HGET a counter", "HGET b counter"].map(|command| connection.call(command));
    assert_eq!(found.iter().filter(|found| **found == "$1\r\n0\r\n").count(), 1, "{found:?}");
}

#[test]
fn one_of_many_renamenx_to_an_absent_key_succeeds() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    for round in 0..20 {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut connection = Resp::connect(address);
                    connection.call(&format!("SET {round}-{number} {number}"));
                    connection.call(&format!("RENAMENX {round}-{number} {round}"))
                })
            })
            .collect();
        let replies: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let done: Vec<_> = (0..8).filter(|number| replies[*number] == ":1\r\n").collect();
        assert_eq!(done.len(), 1, "{replies:?}");
        assert_eq!(replies.iter().filter(|reply| *reply == ":0\r\n").count(), 7, "{replies:?}");
        let mut connection = Resp::connect(address);
        assert_eq!(connection.call(&format!("GET {round}")), format!("$1\r\n{}\r\n", done[0]));
    }
}

#[test]
fn rename_and_copy_are_refused_in_transactions() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    for (command, name) in [
        ("RENAME a b", "RENAME"),
        ("RENAMENX a b", "RENAMENX"),
        ("COPY a b", "COPY"),
        ("RANDOMKEY", "RANDOMKEY"),
    ] {
        connection.call("MULTI");
        assert_eq!(connection.call(command), format!("-ERR {name} is not allowed in transactions\r\n"));
        assert!(connection.call("EXEC").starts_with("-EXECABORT"));
    }
}

#[test]
fn randomkey_returns_every_existing_key() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    assert_eq!(connection.call("RANDOMKEY"), "$-1\r\n");
    let keys: HashSet<_> = (0..20).map(|number| format!("key-{number}")).collect();
    keys.iter().for_each(|key| assert_eq!(connection.call(&format!("SET {key} 1")), "+OK\r\n"));
    let mut seen = HashSet::new();
    for _ in 0..5_000 {
        let reply = connection.call("RANDOMKEY");
        let key = reply.lines().nth(1).unwrap().to_owned();
        assert!(keys.contains(&key), "{reply}");
        seen.insert(key);
        if seen.len() == keys.len() {
            return;
        }
    }
    panic!("only {seen:?} of {keys:?}");
}

#[test]
fn dump_and_restore_are_compatible_with_redis() {
    let Some(redis) = RedisServer::start() else {
        nicekv_testkit::needs(&["redis-server"], "dump_and_restore_are_compatible_with_redis");
        return;
    };
    let mut world = World::new();
    let (mut ours, mut theirs) = (Resp::connect(world.gateway(|_| ())), Resp::connect(redis.address));
    let long = "x".repeat(900);
    let fields: String = (0..60).map(|number| format!(" f{number} {}", number * number * 977)).collect();
    let commands = [
        "SET k short".to_owned(),
        "SET k -2147483648".to_owned(),
        "SET k 2147483648".to_owned(),
        format!("SET k {long}"),
        "HSET k a 1 b -300 c 70000 d 9000000000 e text".to_owned(),
        format!("HSET k{fields}"),
        format!("HSET k a {}", &long[..300]),
    ];
    for command in &commands {
        for is_ours in [true, false] {
            let (from, to) = if is_ours { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
            from.call("DEL k");
            to.call("DEL k");
            from.call(command);
            let read = if command.starts_with("SET") { "GET k" } else { "HGETALL k" };
            from.send(&[b"DUMP", b"k"]);
            let payload = from.reply();
            let start = payload.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
            to.send(&[b"RESTORE", b"k", b"0", &payload[start..payload.len() - 2]]);
            assert_eq!(to.reply(), b"+OK\r\n", "{command:.40}");
            let (mut expected, mut found) = (lines(&from.call(read)), lines(&to.call(read)));
            if command.starts_with("HSET") {
                // Redis lists the fields of a large hash in any order.
                expected.sort();
                found.sort();
            }
            assert_eq!(expected, found, "{command:.40}");
        }
    }
}

fn lines(reply: &str) -> Vec<String> {
    reply.lines().map(str::to_owned).collect()
}
