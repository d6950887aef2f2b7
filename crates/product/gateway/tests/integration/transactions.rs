//! MULTI, EXEC, DISCARD and WATCH.

use crate::support;

use std::io::Write;
use support::{Resp, World, request};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";
const OK: &str = "+OK\r\n";
const QUEUED: &str = "+QUEUED\r\n";
const NO_VALUE: &str = "$-1\r\n";
const NOTHING: &str = "*-1\r\n";

/// Runs a dialogue command by command, then, on a new connection to a new store, with all commands
/// in one write.
fn check(dialogue: &[(&str, &str)]) {
    for at_once in [false, true] {
        let mut world = World::new();
        let address = world.gateway(|_| ());
        let mut connection = Resp::connect(address);
        let words = |command: &str| request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
        if at_once {
            let all: Vec<u8> = dialogue.iter().flat_map(|(command, _)| words(command)).collect();
            connection.stream.write_all(&all).unwrap();
        }
        for (number, (command, expected)) in dialogue.iter().enumerate() {
            if !at_once {
                connection.stream.write_all(&words(command)).unwrap();
            }
            let found = String::from_utf8(connection.reply()).unwrap();
            assert_eq!(found, *expected, "number {number}, {command}, at once: {at_once}");
        }
    }
}

#[test]
fn exec_runs_queued_commands_together() {
    check(&[
        ("SET a 1", OK),
        ("MULTI", OK),
        ("INCR a", QUEUED),
        ("GET a", QUEUED),
        ("PING", QUEUED),
        ("MGET a b", QUEUED),
        ("SET b x GET", QUEUED),
        ("INCR b", QUEUED),
        ("EXISTS a b b", QUEUED),
        ("STRLEN b", QUEUED),
        (
            "EXEC",
            "*8\r\n:2\r\n$1\r\n2\r\n+PONG\r\n*2\r\n$1\r\n2\r\n$-1\r\n$-1\r\n-ERR value is not an integer or out of range\r\n:3\r\n:1\r\n",
        ),
        ("GET b", "$1\r\nx\r\n"),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
    ]);
    check(&[("MULTI", OK), ("EXEC", "*0\r\n"), ("GET a", NO_VALUE)]);
    check(&[("MULTI", OK), ("PING", QUEUED), ("EXEC", "*1\r\n+PONG\r\n")]);
}

#[test]
fn an_error_while_queueing_refuses_the_transaction() {
    for (wrong, error) in [
        ("BOGUS", "-ERR unknown command 'BOGUS', with args beginning with: \r\n"),
        (
            "SADD",
            "-ERR unknown command 'SADD', with args beginning with: (values are strings and hashes here: there are no lists, sets, sorted sets or streams)\r\n",
        ),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("SELECT 0", "-ERR SELECT is not allowed in transactions\r\n"),
        ("KEYS *", "-ERR KEYS is not allowed in transactions\r\n"),
    ] {
        check(&[
            ("SET a 1", OK),
            ("MULTI", OK),
            ("SET a 2", QUEUED),
            (wrong, error),
            ("INCR a", QUEUED),
            ("EXEC", ABORTED),
            ("GET a", "$1\r\n1\r\n"),
        ]);
    }
    // Errors that depend on values are reported by EXEC.
    check(&[
        ("MULTI", OK),
        ("INCRBY a x", QUEUED),
        ("SET a 2", QUEUED),
        ("EXEC", "*2\r\n-ERR value is not an integer or out of range\r\n+OK\r\n"),
    ]);
    check(&[
        ("MULTI", OK),
        ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n"),
        ("SET a 2", QUEUED),
        ("EXEC", "*1\r\n+OK\r\n"),
    ]);
}

#[test]
fn a_transaction_without_room_is_refused_while_queueing() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    let long = "x".repeat(1_000);
    assert_eq!(connection.call("MULTI"), OK);
    (0..60).for_each(|_| assert_eq!(connection.call(&format!("SET a {long}")), QUEUED));
    let refused = connection.call(&format!("SET a {long}"));
    assert!(refused.starts_with("-ERR transaction of 61"), "{refused}");
    assert_eq!(connection.call("EXEC"), ABORTED);
    assert_eq!(connection.call("GET a"), NO_VALUE);
    // Commands queued after the refusal take no memory.
    assert_eq!(connection.call("MULTI"), OK);
    let mut all = Vec::new();
    (0..100_000).for_each(|_| all.extend_from_slice(b"INCR a\r\n"));
    all.extend_from_slice(b"EXEC\r\n");
    let mut writing = connection.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&all));
    let replies: Vec<Vec<u8>> = (0..100_000).map(|_| connection.reply()).collect();
    assert!(replies[0] == QUEUED.as_bytes() && replies[99_999] == QUEUED.as_bytes());
    let refused = replies.iter().filter(|reply| reply.starts_with(b"-ERR transaction of")).count();
    assert_eq!((refused, connection.reply()), (1, ABORTED.as_bytes().to_vec()));
    writer.join().unwrap().unwrap();
}

#[test]
fn exec_fails_if_a_watched_key_has_changed() {
    check(&[
        ("SET a 1", OK),
        ("WATCH a b", OK),
        ("GET a", "$1\r\n1\r\n"),
        ("MULTI", OK),
        ("SET a 2", QUEUED),
        ("EXEC", "*1\r\n+OK\r\n"),
        ("WATCH a", OK),
        ("SET a 3", OK),
        ("MULTI", OK),
        ("SET a 4", QUEUED),
        ("EXEC", NOTHING),
        ("GET a", "$1\r\n3\r\n"),
        // EXEC ends the watch, whether it succeeds or not.
        ("MULTI", OK),
        ("SET a 5", QUEUED),
        ("EXEC", "*1\r\n+OK\r\n"),
    ]);
    check(&[
        ("WATCH a", OK),
        ("SET a 3", OK),
        ("UNWATCH", OK),
        ("MULTI", OK),
        ("UNWATCH", QUEUED),
        ("GET a", QUEUED),
        ("EXEC", "*2\r\n+OK\r\n$1\r\n3\r\n"),
    ]);
    check(&[
        ("WATCH a", OK),
        ("SET a 3", OK),
        ("MULTI", OK),
        ("UNWATCH", QUEUED),
        ("EXEC", NOTHING),
        ("WATCH a", OK),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
    ]);
}

#[test]
fn a_write_of_another_connection_breaks_a_watch() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let (mut one, mut other) = (Resp::connect(address), Resp::connect(address));
    assert_eq!((one.call("WATCH a"), other.call("SET a 1")), (OK.into(), OK.into()));
    assert_eq!((one.call("MULTI"), one.call("SET a 2")), (OK.into(), QUEUED.into()));
    assert_eq!(other.call("GET a"), "$1\r\n1\r\n", "queued commands have no effect on others");
    assert_eq!((one.call("EXEC"), other.call("GET a")), (NOTHING.into(), "$1\r\n1\r\n".into()));
    // A deleted key has no version; a key that was created again has another one.
    for (watched, expected) in [("b", "*1\r\n+OK\r\n"), ("a", NOTHING)] {
        assert_eq!(one.call(&format!("WATCH {watched}")), OK);
        other.call(&format!("DEL {watched}"));
        other.call(&format!("SET {watched} 1"));
        if watched == "b" {
            other.call("DEL b");
        }
        assert_eq!((one.call("MULTI"), one.call("SET c 2")), (OK.into(), QUEUED.into()));
        assert_eq!(one.call("EXEC"), expected, "{watched}");
    }
}

#[test]
fn discard_and_reset_end_a_transaction() {
    check(&[("MULTI", OK), ("SET a 1", QUEUED), ("DISCARD", OK), ("GET a", NO_VALUE)]);
    check(&[("DISCARD", "-ERR DISCARD without MULTI\r\n")]);
    check(&[("MULTI", OK), ("SET a 1", QUEUED), ("RESET", "+RESET\r\n"), ("GET a", NO_VALUE)]);
    check(&[("MULTI", OK), ("QUIT", OK)]);
    check(&[("WATCH a", OK), ("SET a 1", OK), ("RESET", "+RESET\r\n"), ("MULTI", OK), ("EXEC", "*0\r\n")]);
}

#[test]
fn a_forbidden_command_refuses_the_transaction() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let (mut admin, mut alice) = (Resp::connect(address), Resp::connect(address));
    assert_eq!(admin.call("ACL SETUSER alice on >secret ~a* +@read +@write +@transaction -getdel"), OK);
    assert_eq!(alice.call("AUTH alice secret"), OK);
    for (wrong, error) in [
        ("GETDEL a", "-NOPERM User alice has no permissions to run the 'getdel' command\r\n"),
        ("PING", "-NOPERM User alice has no permissions to run the 'ping' command\r\n"),
        ("SET b 1", "-NOPERM No permissions to access a key\r\n"),
        ("MGET a b", "-NOPERM No permissions to access a key\r\n"),
    ] {
        let said = ["MULTI", "SET a 1", wrong, "INCR a", "EXEC"].map(|command| alice.call(command));
        assert_eq!(said, [OK, QUEUED, error, QUEUED, ABORTED]);
    }
    assert_eq!(alice.call("WATCH b"), "-NOPERM No permissions to access a key\r\n");
    assert_eq!((alice.call("GET a"), world.requests()), (NO_VALUE.into(), vec!["a".to_owned()]));
}

#[test]
fn exec_checks_permissions_again() {
    let mut world = World::new();
    let address = world.gateway_of(2, |_| ());
    let (mut admin, mut alice) = (Resp::connect(address), Resp::connect(address));
    let no_key = "-NOPERM No permissions to access a key\r\n";
    let mut no_exec = "-EXECABORT Transaction discarded because of: ".to_owned();
    no_exec.push_str("NOPERM User alice has no permissions to run the 'exec' command\r\n");
    let executed = "*3\r\n+OK\r\n*2\r\n$1\r\n1\r\n$-1\r\n$-1\r\n";
    for (rules, expected) in [
        ("+get", executed),
        ("-set", "-NOPERM User alice has no permissions to run the 'set' command\r\n"),
        ("-mget", "-NOPERM User alice has no permissions to run the 'mget' command\r\n"),
        ("resetkeys ~{a}1", no_key),
        ("resetkeys ~{a}1 %R~{a}2 %W~{a}3", no_key),
        ("resetkeys %W~{a}1 %R~{a}1 %R~{a}2 ~{a}3", executed),
        ("-exec", no_exec.as_str()),
    ] {
        admin.call("DEL {a}1 {a}3");
        assert_eq!(admin.call("ACL SETUSER alice reset on >secret ~* +@all"), OK);
        assert_eq!(alice.call("AUTH alice secret"), OK);
        let said = ["MULTI", "SET {a}1 1", "MGET {a}1 {a}2", "SET {a}3 1 GET"].map(|said| alice.call(said));
        assert_eq!(said, [OK, QUEUED, QUEUED, QUEUED]);
        assert_eq!(admin.call(&format!("ACL SETUSER alice {rules}")), OK);
        assert_eq!(alice.call("EXEC"), expected, "{rules}");
        let value = if expected == executed { "$1\r\n1\r\n" } else { NO_VALUE };
        assert_eq!(
            (admin.call("GET {a}1"), alice.call("DISCARD")),
            (value.into(), "-ERR DISCARD without MULTI\r\n".into())
        );
    }
    let log = admin.call("ACL LOG");
    assert!(log.contains("{a}2\r\n") && log.contains("cmd=exec "), "{log}");
}

#[test]
fn transaction_commands_are_listed() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    assert!(connection.call("COMMAND LIST").contains("multi"));
}
