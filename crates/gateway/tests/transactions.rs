//! There are no transactions yet: none may take effect by halves.

mod support;

use std::io::Write;
use support::{Resp, World, request};

const MULTI: &str = "-ERR MULTI is refused: there are no transactions yet\r\n";
const WATCH: &str = "-ERR WATCH is refused: there are no transactions yet\r\n";
const AFTER_MULTI: &str = "-ERR refused, as was the MULTI before: DISCARD or EXEC end this, no transaction takes effect by halves\r\n";
const AFTER_WATCH: &str = "-ERR refused, as was the WATCH before: UNWATCH, DISCARD or EXEC end this, \
                           no transaction takes effect by halves\r\n";
const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.\r\n";
const OK: &str = "+OK\r\n";
const NO_VALUE: &str = "$-1\r\n";

/// Sends a dialogue's commands one by one, and then, on a new connection to a new store, all at once.
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
fn nothing_of_a_refused_transaction_takes_effect() {
    check(&[
        ("SET a 1", OK),
        ("MULTI", MULTI),
        ("SET a 2", AFTER_MULTI),
        ("multi", MULTI),
        ("WATCH a", "-ERR WATCH inside MULTI is not allowed\r\n"),
        ("UNWATCH", AFTER_MULTI),
        ("BOGUS", AFTER_MULTI),
        ("PING", AFTER_MULTI),
        ("incr a", AFTER_MULTI),
        ("EXEC", ABORTED),
        ("GET a", "$1\r\n1\r\n"),
        ("SET a 3", OK),
        ("GET a", "$1\r\n3\r\n"),
    ]);
}

#[test]
fn a_watch_refuses_all_that_depends_on_it() {
    // What client libraries do.
    check(&[
        ("WATCH a b", WATCH),
        ("GET a", AFTER_WATCH),
        ("MULTI", MULTI),
        ("SET a 1", AFTER_MULTI),
        ("EXEC", ABORTED),
        ("GET a", NO_VALUE),
    ]);
    check(&[("WATCH a", WATCH), ("SET a 1", AFTER_WATCH), ("UNWATCH", OK), ("GET a", NO_VALUE)]);
    check(&[
        ("WATCH a", WATCH),
        ("WATCH b", WATCH),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ("GET a", NO_VALUE),
    ]);
    check(&[("WATCH a", WATCH), ("DISCARD", "-ERR DISCARD without MULTI\r\n"), ("GET a", NO_VALUE)]);
}

#[test]
fn discard_and_reset_end_it_too() {
    check(&[("MULTI", MULTI), ("SET a 1", AFTER_MULTI), ("DISCARD", OK), ("GET a", NO_VALUE)]);
    check(&[("MULTI", MULTI), ("SET a 1", AFTER_MULTI), ("RESET", "+RESET\r\n"), ("GET a", NO_VALUE)]);
    check(&[("WATCH a", WATCH), ("RESET", "+RESET\r\n"), ("GET a", NO_VALUE)]);
    check(&[("MULTI", MULTI), ("QUIT", OK)]);
}

#[test]
fn it_is_the_connections_own() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let (mut refused, mut other) = (Resp::connect(address), Resp::connect(address));
    assert_eq!(refused.call("MULTI"), MULTI);
    assert_eq!(other.call("SET a 1"), OK);
    assert_eq!(refused.call("GET a"), AFTER_MULTI);
}

#[test]
fn they_are_not_listed_among_the_commands() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    assert!(!connection.call("COMMAND LIST").contains("multi"));
    assert_eq!(connection.call("COMMAND INFO multi"), "*1\r\n$-1\r\n");
}
