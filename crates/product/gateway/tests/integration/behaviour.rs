//! Tests of what transcripts cannot show: order, concurrency, limits, and missing answers.

use crate::support;

use nicekv_proto::{Duration, Replication};
use std::io::Write;
use support::{Resp, World, request};

fn pipeline(commands: &[&str]) -> Vec<u8> {
    let words = |command: &str| request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    commands.iter().flat_map(|command| words(command)).collect()
}

fn replies(connection: &mut Resp, count: usize) -> Vec<String> {
    (0..count).map(|_| String::from_utf8(connection.reply()).unwrap()).collect()
}

#[test]
fn pipelined_commands_are_answered_in_order_and_see_earlier_writes() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let commands =
        ["SET a 1", "GET a", "INCR a", "MSET b 5 c 6", "MGET a b c", "DEL a b", "EXISTS a b c", "PING"];
    connection.stream.write_all(&pipeline(&commands)).unwrap();
    assert_eq!(
        replies(&mut connection, commands.len()),
        [
            "+OK\r\n",
            "$1\r\n1\r\n",
            ":2\r\n",
            "+OK\r\n",
            "*3\r\n$1\r\n2\r\n$1\r\n5\r\n$1\r\n6\r\n",
            ":2\r\n",
            ":1\r\n",
            "+PONG\r\n"
        ]
    );
}

#[test]
fn commands_on_different_keys_run_concurrently() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    // The store answers "held" only after a request for "release", which therefore must not wait
    // for it.
    let commands = ["SET held 1", "SET other 2", "GET release", "PING", "GET held", "SET last 3"];
    connection.stream.write_all(&pipeline(&commands)).unwrap();
    // The second use of "held" waits for the first, and its reply delays the replies of later
    // commands.
    assert_eq!(
        replies(&mut connection, 4),
        ["+OK\r\n", "+OK\r\n", "$-1\r\n", "+PONG\r\n"],
        "replies are in the order of the commands, not of the answers"
    );
    let mut second = Resp::connect(address);
    second.call("GET release");
    // The second get of "held" may arrive after that release: release until its answer is there.
    connection.stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    let mut found = [0; 1];
    while connection.stream.peek(&mut found).is_err() {
        second.call("GET release");
    }
    assert_eq!(replies(&mut connection, 2), ["$1\r\n1\r\n", "+OK\r\n"]);
    let order = world.requests();
    let position = |key: &str| order.iter().rposition(|other| other == key).unwrap();
    assert_eq!(order[0], "held");
    assert!(position("held") > position("other"), "{order:?}");
}

#[test]
fn replies_are_delayed_briefly_for_later_gets() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    // Other connections aren't blocked.
    connection.stream.write_all(&pipeline(&["GET one", "GET two", "GET held", "GET three"])).unwrap();
    assert_eq!(replies(&mut connection, 2), ["$-1\r\n", "$-1\r\n"]);
    let mut second = Resp::connect(address);
    connection.stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    let mut found = [0; 1];
    while connection.stream.peek(&mut found).is_err() {
        second.call("GET release");
    }
    assert_eq!(replies(&mut connection, 2), ["$-1\r\n", "$-1\r\n"]);
}

#[test]
fn row_33_too_long_and_empty_arguments_are_refused_and_nothing_is_sent() {
    let mut world = World::new();
    let address = world.gateway(|config| config.client.value_bytes_max = 1_024);
    let mut connection = Resp::connect(address);
    let (key, value) = ("k".repeat(1_025), "v".repeat(2_000));
    let key_error = "-ERR key of 1025 bytes exceeds the limit of 1024 bytes\r\n";
    let value_error = "-ERR value of 2000 bytes exceeds the limit of 1024 bytes\r\n";
    for (command, expected) in [
        (format!("SET a {value}"), value_error),
        (format!("SETEX a 10 {value}"), value_error),
        (format!("GETSET a {value}"), value_error),
        (format!("APPEND a {value}"), value_error),
        (format!("MSET b fine a {value}"), value_error),
        (format!("SET {key} v"), key_error),
        (format!("GET {key}"), key_error),
        (format!("MGET b {key}"), key_error),
        (format!("DEL b {key}"), key_error),
    ] {
        assert_eq!(connection.call(&command), expected, "{command:.20}");
    }
    assert_eq!(world.requests(), [""; 0]);
    // Much longer values are discarded while they arrive; the connection stays usable.
    let long = vec![b'v'; 70_000_000];
    connection.send(&[b"SET", b"a", &long]);
    assert_eq!(connection.reply(), b"-ERR value of 70000000 bytes exceeds the limit of 1024 bytes\r\n");
    connection.send(&[b"ECHO", &long]);
    assert_eq!(connection.reply(), b"-ERR argument of 70000000 bytes exceeds the limit of 1024 bytes\r\n");
    assert_eq!(connection.call("EXISTS a b"), ":0\r\n");
    for (key_bytes, value_bytes) in [(1_024, 256), (257, 1_023)] {
        let (key, value) = ("k".repeat(key_bytes), "v".repeat(value_bytes));
        assert_eq!(connection.call(&format!("SET {key} {value}")), "+OK\r\n");
        assert_eq!(connection.call(&format!("GETSET {key} x")), format!("${value_bytes}\r\n{value}\r\n"));
        assert_eq!(connection.call(&format!("APPEND {key} y")), ":2\r\n");
        assert_eq!(connection.call(&format!("EXPIRE {key} 100")), ":1\r\n");
        assert_eq!(connection.call(&format!("GET {key}")), "$2\r\nxy\r\n");
        assert_eq!(connection.call(&format!("DEL {key}")), ":1\r\n");
    }
    let (key, value) = ("k".repeat(256), "v".repeat(1_024));
    assert_eq!(connection.call(&format!("SET {key} {value}")), "+OK\r\n");
    assert_eq!(
        connection.call(&format!("APPEND {key} x")),
        "-ERR value would exceed the limit of 67108864 bytes\r\n",
        "the store refuses a value beyond its own limit"
    );
}

#[test]
fn row_33_without_large_values_a_value_longer_than_a_message_is_refused() {
    let mut world = World::new();
    let address = world.gateway(|config| {
        for keyspace in &mut config.client.keyspaces {
            keyspace.replication = Replication::Chain;
        }
    });
    let mut connection = Resp::connect(address);
    let value = "v".repeat(57_345);
    let error = "-ERR value of 57345 bytes exceeds the limit of 57344 bytes\r\n";
    for key_bytes in [1_024, 700, 1] {
        let key = "k".repeat(key_bytes);
        for command in ["SET", "GETSET", "APPEND", "MSET a fine"] {
            assert_eq!(connection.call(&format!("{command} {key} {value}")), error, "{command}");
        }
    }
    assert_eq!(world.requests(), [""; 0]);
}

#[test]
fn without_an_answer_updates_are_unknown_and_reads_time_out() {
    let mut world = World::new();
    let address = world.gateway(|config| config.timeout = Duration::from_millis(50));
    let mut connection = Resp::connect(address);
    let unknown = "-ERR outcome unknown: the update may or may not have taken effect; \
                   read the key before you decide to send the command again\r\n";
    assert_eq!(connection.call("SET silent 1"), unknown);
    assert_eq!(connection.call("MSET fine 1 silent 1"), unknown);
    let timed_out = "-ERR timed out: no replica answered before the deadline\r\n";
    assert_eq!(connection.call("GET silent"), timed_out);
    assert_eq!(connection.call("MGET fine silent"), timed_out);
    assert_eq!(connection.call("GET fine"), "$1\r\n1\r\n");
}

#[test]
fn commands_beyond_the_window_wait() {
    let mut world = World::new();
    let address = world.gateway(|config| config.client.in_flight_max = 8);
    let threads: Vec<_> = (0..10)
        .map(|number| {
            std::thread::spawn(move || {
                let mut connection = Resp::connect(address);
                let command =
                    format!("MSET {}", (0..6).map(|k| format!("{number}-{k} v ")).collect::<String>());
                for _ in 0..50 {
                    assert_eq!(connection.call(command.trim_end()), "+OK\r\n");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut connection = Resp::connect(address);
    assert_eq!(connection.call("EXISTS 0-0 9-5"), ":2\r\n");
    // A command with more keys than the window has room for is sent in pieces.
    assert_eq!(connection.call("EXISTS 0-0 1-0 2-0 3-0 4-0 5-0 6-0 7-0 8-0 9-0 9-6"), ":10\r\n");
}

#[test]
fn fifty_clients_increment_one_key_through_two_gateways() {
    let mut world = World::new();
    let gateways = [world.gateway(|_| ()), world.gateway(|_| ())];
    let threads: Vec<_> = (0..50)
        .map(|number| {
            std::thread::spawn(move || {
                let mut connection = Resp::connect(gateways[number % 2]);
                (0..40).for_each(|_| assert!(connection.call("INCR counter").starts_with(':')));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(Resp::connect(gateways[0]).call("GET counter"), "$4\r\n2000\r\n");
}

#[test]
fn tools_get_the_replies_they_need() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let config = connection.call("CONFIG GET save appendonly");
    assert_eq!(config, "*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    let info = connection.call("INFO");
    for expected in ["# Server\r\n", "redis_version:7.0", "connected_clients:1\r\n", "store_requests:0\r\n"] {
        assert!(info.contains(expected), "{expected} in {info}");
    }
    assert!(!connection.call("INFO clients").contains("# Server"));
    assert_eq!(connection.call("COMMAND COUNT"), ":101\r\n");
    let get = "*1\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n";
    assert_eq!(connection.call("COMMAND INFO GET"), get);
    assert!(connection.call("COMMAND DOCS").starts_with("*202\r\n"));
    assert_eq!(connection.call("CLIENT SETINFO LIB-NAME test"), "+OK\r\n");
    assert_eq!(connection.call("CLIENT SETINFO bogus test"), "-ERR Unrecognized option 'bogus'\r\n");
    assert_eq!(connection.call("CLIENT ID"), ":1\r\n");
    assert_eq!(Resp::connect(address).call("CLIENT ID"), ":2\r\n");
    connection.stream.write_all(b"set inline \"two words\"\r\nget inline\r\n").unwrap();
    assert_eq!(replies(&mut connection, 2), ["+OK\r\n", "$9\r\ntwo words\r\n"]);
}

#[test]
fn a_half_closed_connection_gets_every_reply() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let commands: Vec<_> = (0..3_000).map(|number| format!("INCRBY sum{} {number}", number % 7)).collect();
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    connection.stream.write_all(&pipeline(&commands)).unwrap();
    connection.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let sum: u32 = (0..3_000).filter(|number| number % 7 == 2_999 % 7).sum();
    assert_eq!(replies(&mut connection, 3_000).last().unwrap(), &format!(":{sum}\r\n"));
    assert_eq!(connection.rest(), "", "the gateway closes after the last reply");
}

#[test]
fn quit_answers_earlier_commands_and_no_later_ones() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    connection.stream.write_all(&pipeline(&["SET a 1", "QUIT", "SET a 2"])).unwrap();
    assert_eq!(connection.rest(), "+OK\r\n+OK\r\n");
    assert_eq!(Resp::connect(address).call("GET a"), "$1\r\n1\r\n");
}
