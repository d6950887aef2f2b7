//! Access control: tests that need a file, time, or several connections.

use crate::support;

use nicekv_gateway::UserSource;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Resp, World, info, request};

fn words(command: &str) -> Vec<u8> {
    request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// Sends all commands in one write, and returns the replies.
fn pipeline(connection: &mut Resp, commands: &[&str]) -> Vec<String> {
    let bytes: Vec<u8> = commands.iter().flat_map(|command| words(command)).collect();
    connection.stream.write_all(&bytes).unwrap();
    commands.iter().map(|_| String::from_utf8(connection.reply()).unwrap()).collect()
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

const USERS: &str = "user default off\n\
    user admin on >root ~* &* +@all\n\
    user alice on >secret ~a:* %R~r:* %W~w:* +@read +@write +@connection -del +config|get\n\
    user idle on nopass\n";

/// A gateway with these users, and the directory of their ACL file.
fn gateway_of_users(world: &mut World, text: &str) -> (SocketAddr, tempfile::TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("users.acl");
    write(&path, text);
    (world.gateway_of(2, |config| config.users = UserSource::AclFile(path)), scratch)
}

fn logged_in(address: SocketAddr, login: &str) -> Resp {
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call(&format!("AUTH {login}")), "+OK\r\n");
    connection
}

const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
const NO_KEY: &str = "-NOPERM No permissions to access a key\r\n";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[test]
fn unauthenticated_clients_may_only_log_in() {
    let mut world = World::new();
    let (address, _scratch) = gateway_of_users(&mut world, USERS);
    let mut connection = Resp::connect(address);
    for command in ["GET a:1", "PING", "INFO", "ACL WHOAMI", "CLIENT ID", "SELECT 0", "MULTI", "KEYS *"] {
        assert_eq!(connection.call(command), NO_AUTH, "{command}");
    }
    let hello = "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time\r\n";
    assert_eq!(connection.call("HELLO 3"), hello);
    assert_eq!(connection.call("HELLO 3 AUTH alice wrong"), WRONG);
    assert!(connection.call("HELLO 2 AUTH alice secret").starts_with('*'));
    assert_eq!(connection.call("ACL DRYRUN x get y"), nopermission("alice", "acl|dryrun"));
    assert!(connection.call("CLIENT INFO").contains(" user=alice "));
    // Users without permission for the command get the same error.
    let unknown = "-ERR unknown subcommand 'nosuch'. Try ACL HELP.\r\n";
    assert_eq!(connection.call("ACL nosuch"), unknown);
    assert_eq!(connection.call("RESET"), "+RESET\r\n");
    assert_eq!(connection.call("GET a:1"), NO_AUTH);
    // Before a login, only short requests are allowed.
    let mut connection = Resp::connect(address);
    connection.stream.write_all(b"*2\r\n$4\r\nAUTH\r\n$4097\r\n").unwrap();
    assert_eq!(connection.rest(), "-ERR Protocol error: unauthenticated bulk length\r\n");
    assert_eq!(world.requests(), [""; 0]);
}

fn nopermission(user: &str, command: &str) -> String {
    format!("-NOPERM User {user} has no permissions to run the '{command}' command\r\n")
}

#[test]
fn permissions_are_checked_before_anything_is_done() {
    let mut world = World::new();
    let (address, _scratch) = gateway_of_users(&mut world, USERS);
    let mut alice = logged_in(address, "alice secret");
    for (command, expected) in [
        ("SET a:1 v", "+OK\r\n".to_owned()),
        ("GET a:1", "$1\r\nv\r\n".into()),
        ("SET w:1 v", "+OK\r\n".into()),
        ("SET w:1 v GET", NO_KEY.into()),
        ("GET w:1", NO_KEY.into()),
        ("EXISTS w:1 r:1", ":1\r\n".into()),
        ("SET r:1 v", NO_KEY.into()),
        ("INCR w:2", NO_KEY.into()),
        ("MSET a:2 v a:3 v other v", NO_KEY.into()),
        ("MGET a:1 r:1", "*2\r\n$1\r\nv\r\n$-1\r\n".into()),
        ("MGET a:1 w:1", NO_KEY.into()),
        ("DEL a:1", nopermission("alice", "del")),
        ("UNLINK a:1 other", NO_KEY.into()),
        ("INFO", nopermission("alice", "info")),
        ("ACL LIST", nopermission("alice", "acl|list")),
        ("ACL WHOAMI", nopermission("alice", "acl|whoami")),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n".into()),
        ("CONFIG SET save x", nopermission("alice", "config|set")),
        ("EXISTS a:1 a:2 a:3", ":1\r\n".into()),
    ] {
        assert_eq!(alice.call(command), expected, "{command}");
    }
    let mut idle = logged_in(address, "idle whatever");
    assert_eq!(idle.call("PING"), nopermission("idle", "ping"));
    assert_eq!(
        idle.call("AUTH alice secret"),
        "+OK\r\n",
        "a logged-in connection may log in as another user"
    );
}

#[test]
fn a_forbidden_key_refuses_the_whole_command() {
    let mut world = World::new();
    let (address, _scratch) = gateway_of_users(&mut world, USERS);
    let mut alice = logged_in(address, "alice secret");
    assert_eq!(alice.call("MSET a:1 v w:1 v other v"), NO_KEY);
    assert_eq!(alice.call("MGET a:1 other"), NO_KEY);
    assert_eq!(world.requests(), [""; 0]);
}

#[test]
fn a_refusal_in_a_pipeline_affects_one_command_and_a_login_those_behind_it() {
    let mut world = World::new();
    let (address, _scratch) = gateway_of_users(&mut world, USERS);
    let mut connection = Resp::connect(address);
    let commands = [
        "SET a:1 0",
        "AUTH alice secret",
        "SET a:1 1",
        "GET a:1",
        "GET b:1",
        "INFO",
        "INCR a:1",
        "AUTH alice x",
        "INCR a:1",
        "AUTH admin root",
        "GET b:1",
        "RESET",
        "GET a:1",
        "AUTH admin root",
        "GET a:1",
    ];
    let expected = [
        NO_AUTH,
        "+OK\r\n",
        "+OK\r\n",
        "$1\r\n1\r\n",
        NO_KEY,
        &nopermission("alice", "info"),
        ":2\r\n",
        WRONG,
        ":3\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "+RESET\r\n",
        NO_AUTH,
        "+OK\r\n",
        "$1\r\n3\r\n",
    ];
    assert_eq!(pipeline(&mut connection, &commands), expected);
    // A half-closed connection is answered, too, although failed logins delay it in between.
    let mut connection = Resp::connect(address);
    let bytes = ["AUTH admin x", "AUTH admin y", "AUTH admin root", "GET a:1"].map(words).concat();
    connection.stream.write_all(&bytes).unwrap();
    connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(connection.rest(), format!("{WRONG}{WRONG}+OK\r\n$1\r\n3\r\n"));
}

#[test]
fn a_thousand_failed_logins_do_not_delay_other_clients() {
    let mut world = World::new();
    let (address, _scratch) = gateway_of_users(&mut world, USERS);
    let mut admin = logged_in(address, "admin root");
    let mut attacker = Resp::connect(address);
    let bytes: Vec<u8> = (0..1_000).flat_map(|number| words(&format!("AUTH alice guess{number}"))).collect();
    attacker.stream.write_all(&bytes).unwrap();
    let started = Instant::now();
    let guesser = std::thread::spawn(move || {
        (0..1_000).for_each(|_| assert_eq!(attacker.reply(), WRONG.as_bytes()));
        (started.elapsed(), attacker)
    });
    let (mut served, mut slowest) = (0, Duration::ZERO);
    while !guesser.is_finished() {
        let began = Instant::now();
        assert!(admin.call("INCR visits").starts_with(':'));
        (served, slowest) = (served + 1, slowest.max(began.elapsed()));
    }
    let (took, mut attacker) = guesser.join().unwrap();
    assert!(took > Duration::from_secs(4), "200 a second: {took:?}");
    assert!(served > 1_000 && slowest < Duration::from_secs(1), "{served}, {slowest:?}");
    assert_eq!(attacker.call("AUTH alice secret"), "+OK\r\n");
    assert_eq!(info(&mut admin, "acl_access_denied_auth"), 1_000);
    let log = admin.call("ACL LOG 1");
    for part in
        ["*1\r\n*20\r\n", "count\r\n:1000\r\n", "auth\r\n", "AUTH\r\n", "alice\r\n", "addr=127.0.0.1:"]
    {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("guess"), "{log}");
}

#[test]
fn acl_log_lists_refusals_and_is_bounded() {
    let mut world = World::new();
    let (address, _scratch) = gateway_of_users(&mut world, USERS);
    let mut alice = logged_in(address, "alice secret");
    let mut admin = logged_in(address, "admin root");
    assert_eq!(admin.call("ACL LOG"), "*0\r\n");
    (0..2).for_each(|_| drop(alice.call("GET hidden")));
    alice.call("FLUSHALL");
    alice.call("ACL LIST");
    let log = admin.call("ACL LOG");
    for part in ["*2\r\n", ":2\r\n", "key\r\n", "hidden\r\n", "command\r\n", "acl|list\r\n", "user=alice "] {
        assert!(log.contains(part), "{part}: {log}");
    }
    (0..200).for_each(|number| drop(alice.call(&format!("GET {number}"))));
    assert!(admin.call("ACL LOG 1000").starts_with("*128\r\n"));
    assert!(admin.call("ACL LOG 3").starts_with("*3\r\n") && admin.call("ACL LOG -1") == "*0\r\n");
    assert_eq!(admin.call("ACL LOG RESET"), "+OK\r\n");
    assert_eq!(admin.call("ACL LOG"), "*0\r\n");
    assert_eq!(info(&mut admin, "acl_access_denied_key"), 202);
    assert_eq!(info(&mut admin, "acl_access_denied_cmd"), 1);
    assert!(admin.call("HELLO 3").starts_with('%'));
    alice.call("GET hidden");
    let log = admin.call("ACL LOG");
    assert!(log.starts_with("*1\r\n%10\r\n") && log.contains("age-seconds\r\n,"), "{log}");
}

#[test]
fn acl_load_applies_a_whole_file_or_nothing() {
    let mut world = World::new();
    let (address, scratch) = gateway_of_users(&mut world, USERS);
    let path = scratch.path().join("users.acl");
    let mut admin = logged_in(address, "admin root");
    let mut alice = logged_in(address, "alice secret");
    let list = admin.call("ACL LIST");
    write(&path, &format!("{USERS}user bob on >hunter2 +nope\nuser alice off\n"));
    let refused = admin.call("ACL LOAD");
    let shown = path.display();
    assert_eq!(
        refused,
        format!(
            "-ERR {shown}:5: Error in applying operation '+nope': Unknown command or category name in ACL. \
             {shown}:6: duplicate user 'alice'. \
             WARNING: ACL errors detected, no change to the previously active ACL rules was performed\r\n"
        )
    );
    assert_eq!(admin.call("ACL LIST"), list);
    assert_eq!(alice.call("GET a:1"), "$-1\r\n");
    std::fs::remove_file(&path).unwrap();
    assert!(admin.call("ACL LOAD").contains("No such file"));
    assert_eq!(admin.call("ACL LIST"), list);

    write(&path, "user default off\nuser admin on >root ~* +@all\nuser alice on >secret ~b:* +get");
    assert_eq!(admin.call("ACL LOAD"), "+OK\r\n");
    assert_eq!(alice.call("GET a:1"), NO_KEY, "the new rules apply on every thread");
    assert_eq!(alice.call("GET b:1"), "$-1\r\n");
    // Connections whose user or password was removed are closed, even idle ones.
    let mut silent = logged_in(address, "alice secret");
    write(&path, "user default off\nuser admin on >root ~* +@all\nuser alice on >other ~* +@all");
    assert_eq!(admin.call("ACL LOAD"), "+OK\r\n");
    assert_eq!((silent.rest(), alice.reply_or_end()), (String::new(), None));
    assert_eq!(Resp::connect(address).call("AUTH alice secret"), WRONG);
    assert_eq!(admin.call("ACL USERS"), "*3\r\n$5\r\nadmin\r\n$5\r\nalice\r\n$7\r\ndefault\r\n");
}

#[test]
fn changed_users_apply_to_all_threads_at_once() {
    let mut world = World::new();
    let address = world.gateway_of(3, |_| ());
    let mut connections: Vec<_> = (0..6).map(|_| Resp::connect(address)).collect();
    assert_eq!(connections[0].call("ACL SETUSER default -set"), "+OK\r\n");
    for connection in &mut connections {
        assert_eq!(connection.call("SET k v"), nopermission("default", "set"));
    }
    assert_eq!(connections[0].call("ACL SETUSER alice on >secret +@all ~*"), "+OK\r\n");
    for connection in &mut connections {
        assert_eq!(connection.call("AUTH alice secret"), "+OK\r\n");
    }
    let mut other = Resp::connect(address);
    assert_eq!(other.call("ACL DELUSER alice bob"), ":1\r\n");
    for connection in &mut connections {
        assert_eq!(connection.rest(), "");
    }
    assert_eq!(
        other.call("ACL LOAD").split(':').next(),
        Some("-ERR This gateway is not configured to use an ACL file")
    );
    assert!(other.call("ACL SAVE").starts_with("-ERR ACL SAVE is refused"));
    assert_eq!(other.call("ACL SETUSER x >hunter2 bogus2x").matches("hunter2").count(), 0);
    assert_eq!(
        other.call("ACL SETUSER x hunter2"),
        "-ERR Error in ACL SETUSER modifier '…': Syntax error\r\n",
        "a password rule without its '>'"
    );
}

#[test]
fn a_password_file_is_for_the_default_user() {
    let mut world = World::new();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("password");
    write(&path, "two words\n");
    let address = world.gateway(|config| config.users = UserSource::PasswordFile(path.clone()));
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("GET k"), NO_AUTH);
    assert_eq!(connection.call("AUTH two"), WRONG);
    connection.send(&[b"AUTH", b"two words"]);
    assert_eq!(connection.reply(), b"+OK\r\n");
    assert_eq!(connection.call("SET k v"), "+OK\r\n");
    // A changed password applies to new connections.
    write(&path, "other");
    assert_eq!(connection.call("ACL LOAD"), "+OK\r\n");
    assert_eq!(connection.call("GET k"), "$1\r\nv\r\n", "the connection that made the change stays open");
    assert_eq!(Resp::connect(address).call("AUTH other"), "+OK\r\n");
    write(&path, "\n");
    let refused = connection.call("ACL LOAD");
    assert!(refused.contains("no password in it"), "{refused}");
}

#[test]
fn commands_have_their_categories() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let transactions = "*5\r\n$7\r\ndiscard\r\n$4\r\nexec\r\n$5\r\nmulti\r\n$7\r\nunwatch\r\n$5\r\nwatch\r\n";
    assert_eq!(connection.call("ACL CAT transaction"), transactions);
    assert!(connection.call("ACL CAT dangerous").contains("config|get\r\n"));
    connection.call("ACL SETUSER alice +@read -keys ~a:*");
    let dryrun = connection.call("ACL DRYRUN alice KEYS *");
    assert!(dryrun.ends_with("User alice has no permissions to run the 'keys' command\r\n"), "{dryrun}");
    let dryrun = connection.call("ACL DRYRUN alice MGET a:1 b:1");
    assert!(dryrun.ends_with("User alice has no permissions to access the 'b:1' key\r\n"), "{dryrun}");
    let (one, other) = (connection.call("ACL GENPASS"), connection.call("ACL GENPASS"));
    assert!(one.starts_with("$64\r\n") && one.len() == other.len() && one != other, "{one}");
    assert!(connection.call("ACL GENPASS 5").starts_with("$2\r\n"));
}
