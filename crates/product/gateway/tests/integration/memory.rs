//! The memory that peers can make the gateway use stays within its limit, and is freed when no
//! longer needed (docs/FAULTS.md row 32).

use crate::support;

use nicekv_gateway::limits::OUTPUT_BYTES_MAX;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use support::{Resp, World, info, request};

const LIMIT: usize = 16 << 20;

fn world() -> (World, SocketAddr) {
    world_of(1)
}

/// A gateway with `threads` threads and a memory limit of [`LIMIT`].
fn world_of(threads: usize) -> (World, SocketAddr) {
    let mut world = World::new();
    let address = world.gateway_of(threads, |config| config.memory_bytes_max = LIMIT);
    (world, address)
}

/// How much memory a thread may add before it notices that the limit is exceeded: reading one piece
/// of a command can double that command's buffer, up to 1 MiB.
const READ_MEANWHILE: usize = 512 << 10;

/// How far `threads` threads may exceed the limit, if each may add `added` bytes before it notices.
/// With one thread, a connection is closed before INFO shows an excess.
fn meanwhile(threads: usize, added: usize) -> usize {
    if threads == 1 { 0 } else { threads * added }
}

/// The beginning of a command that is never finished.
fn unfinished(bytes: usize) -> Vec<u8> {
    let mut out = b"*1000\r\n$3\r\nDEL\r\n".to_vec();
    while out.len() < bytes {
        out.extend(b"$16000\r\n");
        out.extend([b'v'; 16_000]);
        out.extend(b"\r\n");
    }
    out
}

/// Whether the peer has closed the connection, after sending `expected` or nothing.
fn is_closed(connection: &mut Resp, expected: &str) -> bool {
    connection.stream.set_nonblocking(true).unwrap();
    let closed = match connection.stream.peek(&mut [0]) {
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => {
            connection.stream.set_nonblocking(false).unwrap();
            let rest = connection.rest();
            assert!(rest.is_empty() || rest.starts_with(expected), "{rest}");
            true
        }
    };
    connection.stream.set_nonblocking(false).unwrap();
    closed
}

#[test]
fn row_32_unfinished_commands_are_bounded_together_and_the_longest_go_first() {
    unfinished_commands_are_bounded(1);
}

#[test]
fn row_32_on_several_threads_the_bound_is_the_same() {
    unfinished_commands_are_bounded(3);
}

fn unfinished_commands_are_bounded(threads: usize) {
    let (_world, address) = world_of(threads);
    let mut modest = Resp::connect(address);
    let (short, long) = (unfinished(20_000), unfinished(2_000_000));
    let mut small: Vec<_> = (0..20).map(|_| Resp::connect(address)).collect();
    for connection in &mut small {
        connection.stream.write_all(&short).unwrap();
    }
    let mut large = Vec::new();
    for number in 0..60 {
        let mut connection = Resp::connect(address);
        // The gateway may close the connection during the write.
        let _ = connection.stream.write_all(&long);
        large.push(connection);
        assert_eq!(
            modest.call("INCR counter"),
            format!(":{}\r\n", number + 1),
            "other connections are served"
        );
        let used = info(&mut modest, "mem_clients_normal");
        assert!(used <= LIMIT + meanwhile(threads, READ_MEANWHILE), "{used} after {number}");
    }
    // The gateway may not have read yet what the last connections sent.
    while info(&mut modest, "evicted_clients") < 50 {}
    let refusal = "-ERR closed: all connections together exceed the limit of 16777216 bytes for commands and replies, \
                   and this one holds the most, ";
    let mut closed = || large.iter_mut().filter_map(|large| is_closed(large, refusal).then_some(())).count();
    // The connections that the gateway has closed last may not have noticed it yet.
    let deadline = Instant::now() + Duration::from_secs(30);
    while closed() != info(&mut modest, "evicted_clients") {
        assert!(Instant::now() < deadline, "{} are closed", closed());
    }
    for connection in &mut small {
        assert!(!is_closed(connection, ""), "small ones are left alone");
    }
    // When the connections close, the gateway frees their memory.
    drop((large, small));
    while info(&mut modest, "mem_clients_normal") > 100_000 {}
}

#[test]
fn a_closed_connection_gets_the_reason() {
    let (_world, address) = world();
    let mut connection = Resp::connect(address);
    let half = unfinished(8_000_000);
    connection.stream.write_all(&half).unwrap();
    let mut second = Resp::connect(address);
    second.stream.write_all(&half).unwrap();
    let mut third = Resp::connect(address);
    let _ = third.stream.write_all(&half);
    let mut told = Vec::new();
    while told.is_empty() {
        for connection in [&mut connection, &mut second, &mut third] {
            if is_closed(
                connection,
                "-ERR closed: all connections together exceed the limit of 16777216 bytes",
            ) {
                told.push(());
            }
        }
    }
}

#[test]
fn unread_replies_are_bounded() {
    bound_unread_replies(1);
}

#[test]
fn unread_replies_are_bounded_across_threads() {
    bound_unread_replies(3);
}

fn bound_unread_replies(threads: usize) {
    let (_world, address) = world_of(threads);
    let mut modest = Resp::connect(address);
    let value = "v".repeat(1_000);
    assert_eq!(modest.call(&format!("SET key {value}")), "+OK\r\n");
    let commands = request(&[b"ECHO", value.as_bytes()]).repeat(20_000);
    let mut silent = Vec::new();
    while info(&mut modest, "evicted_clients") == 0 {
        assert!(silent.len() < 200, "no limit stopped them");
        let connection = Resp::connect(address);
        // Sends more replies' worth of commands than the socket buffers hold.
        connection.stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut sent = 0;
        while sent < commands.len() {
            match (&connection.stream).write(&commands[sent..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        silent.push(connection);
        // In one turn, a thread may also write as many replies as may wait.
        let meanwhile = meanwhile(threads, READ_MEANWHILE + OUTPUT_BYTES_MAX);
        assert!(info(&mut modest, "mem_clients_normal") <= LIMIT + meanwhile);
    }
    assert_eq!(modest.call("GET key"), format!("$1000\r\n{value}\r\n"));
}

#[test]
fn a_reply_above_the_limit_closes_only_its_connection() {
    let (_world, address) = world();
    let (mut modest, mut greedy) = (Resp::connect(address), Resp::connect(address));
    let value = "v".repeat(1_000);
    assert_eq!(modest.call(&format!("SET key {value}")), "+OK\r\n");
    let mut words = vec![&b"MGET"[..]];
    words.resize(30_000, b"key");
    greedy.send(&words);
    let rest = greedy.rest();
    assert!(rest.starts_with("-ERR closed: all connections together exceed the limit"), "{rest}");
    assert_eq!(modest.call("EXISTS key"), ":1\r\n");
    words.truncate(8_001);
    greedy = Resp::connect(address);
    greedy.send(&words);
    assert_eq!(greedy.reply().len(), "*8000\r\n".len() + 8_000 * (value.len() + "$1000\r\n\r\n".len()));
}

#[test]
fn idle_connections_free_their_memory() {
    let (_world, address) = world();
    let mut modest = Resp::connect(address);
    let mut idle: Vec<_> = (0..50).map(|_| Resp::connect(address)).collect();
    let value = "v".repeat(1_000);
    let pairs: String = (0..100).map(|key| format!(" key{key} {value}")).collect();
    let keys: String = (0..100).map(|key| format!(" key{key}")).collect();
    for connection in &mut idle {
        assert_eq!(connection.call(&format!("MSET{pairs}")), "+OK\r\n");
        assert!(connection.call(&format!("MGET{keys}")).len() > 100_000);
    }
    let busy = info(&mut modest, "mem_clients_normal");
    // Nearly all of it is freed, although no connection sends anything.
    while info(&mut modest, "mem_clients_normal") > 51 * 1_500 + 20_000 {}
    assert!(busy > 51 * 2_000, "{busy}");
    assert_eq!(idle[7].call("STRLEN key99"), ":1000\r\n", "the connections stay usable");
}
