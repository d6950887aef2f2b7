//! Tests with malicious peers, and with many peers (docs/FAULTS.md row 32).

use crate::support;

use std::io::{ErrorKind, Write};
use std::time::Duration;
use support::{Resp, World, request};

const IDLE: usize = 10_000;

#[test]
fn row_32_ten_thousand_idle_connections_disturb_nobody() {
    if !support::may_connect(IDLE, "idle connections") {
        return;
    }
    let mut world = World::new();
    let address = world.gateway(|config| config.connections_max = IDLE + 1);
    let mut idle: Vec<_> = (0..IDLE).map(|_| Resp::connect(address)).collect();
    // Every connection is served once, and then sends nothing more, or half a command.
    for (number, connection) in idle.iter_mut().enumerate() {
        assert_eq!(connection.call("PING"), "+PONG\r\n");
        if number % 2 == 0 {
            connection.stream.write_all(b"*2\r\n$3\r\nGET\r\n$100\r\nhalf").unwrap();
        }
    }
    let mut busy = Resp::connect(address);
    for number in 0..1_000 {
        assert_eq!(busy.call("INCR counter"), format!(":{}\r\n", number + 1));
    }
    assert!(busy.call("INFO clients").contains("connected_clients:10001\r\n"));
    let mut refused = Resp::connect(address);
    assert_eq!(refused.rest(), "-ERR max number of clients reached\r\n");
    drop(idle);
    // Their places are free as soon as the gateway has noticed that they closed.
    while busy.call("INFO clients").contains("connected_clients:10001\r\n") {}
    let mut next = Resp::connect(address);
    assert_eq!(next.call("GET counter"), "$4\r\n1000\r\n");
}

#[test]
fn row_32_absurd_lengths_end_the_connection_with_the_reason() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    for (bytes, expected) in [
        ("*2\r\n$3\r\nGET\r\n$9223372036854775808\r\n", "invalid bulk length"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*9223372036854775808\r\n", "invalid multibulk length"),
        ("*1048577\r\n", "invalid multibulk length: the limit is 1048576 arguments"),
        ("*1\r\n:5\r\n", "expected '$', got ':'"),
        ("set k \"open\r\n", "unbalanced quotes in request"),
    ] {
        let mut connection = Resp::connect(address);
        connection.send(&[b"SET", b"k", b"v"]);
        connection.stream.write_all(bytes.as_bytes()).unwrap();
        // Commands before the error are answered.
        assert_eq!(connection.rest(), format!("+OK\r\n-ERR Protocol error: {expected}\r\n"));
    }
    let mut connection = Resp::connect(address);
    connection.stream.write_all(&[b'x'; 70_000]).unwrap();
    assert_eq!(connection.rest(), "-ERR Protocol error: too big inline request\r\n");
}

#[test]
fn row_32_half_a_command_waits_for_its_other_half() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let whole = request(&[b"SET", b"key", b"value"]);
    let mut connections: Vec<_> = (1..whole.len())
        .map(|cut| {
            let mut connection = Resp::connect(address);
            connection.stream.write_all(&whole[..cut]).unwrap();
            (connection, cut)
        })
        .collect();
    assert_eq!(Resp::connect(address).call("EXISTS key"), ":0\r\n", "half a command has no effect");
    for (connection, cut) in &mut connections {
        connection.stream.write_all(&whole[*cut..]).unwrap();
        assert_eq!(connection.reply(), b"+OK\r\n");
    }
}

#[test]
fn row_32_a_peer_that_does_not_read_is_held_back_and_the_others_are_not() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut greedy = Resp::connect(address);
    let value = [b'v'; 1_000];
    greedy.send(&[b"SET", b"key", &value]);
    assert_eq!(greedy.reply(), b"+OK\r\n");
    // Sends until the gateway takes no more, which is long before 4 GB.
    greedy.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let echo = request(&[b"ECHO", &value]);
    let chunk = echo.repeat(1_000);
    let mut sent = 0;
    let held_back = loop {
        match greedy.stream.write(&chunk[sent % echo.len()..]) {
            Ok(count) => sent += count,
            Err(error) => break matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
        assert!(sent < 4_000_000_000, "the peer was never held back");
    };
    assert!(held_back);
    let mut modest = Resp::connect(address);
    for _ in 0..100 {
        assert_eq!(modest.call("PING"), "+PONG\r\n");
    }
    // Once the peer reads, all complete commands are answered.
    greedy.stream.set_write_timeout(None).unwrap();
    let complete = sent / echo.len();
    let reply = [b"$1000\r\n".as_slice(), &value, b"\r\n"].concat();
    for _ in 0..complete {
        assert_eq!(greedy.reply(), reply);
    }
}
