//! A gateway of several threads behaves as one: limits and counters are for all threads.

use crate::support;

use std::collections::HashSet;
use std::io::Write;
use support::{Resp, World, info, request};

const THREADS: usize = 3;

fn pipeline(key: &str, count: usize) -> Vec<u8> {
    request(&[b"INCR", key.as_bytes()]).repeat(count)
}

#[test]
fn connections_are_spread_over_threads_and_counters_summed() {
    let mut world = World::new();
    let address = world.gateway_of(THREADS, |_| ());
    let mut connections: Vec<_> = (0..4 * THREADS).map(|_| Resp::connect(address)).collect();
    let mut ids = HashSet::new();
    for (number, connection) in connections.iter_mut().enumerate() {
        assert_eq!(connection.call(&format!("SET key{number} v")), "+OK\r\n");
        ids.insert(connection.call("CLIENT ID"));
    }
    assert_eq!(ids.len(), connections.len(), "no two connections have one id");
    assert_eq!(world.clients(), THREADS, "each thread has connections and its own client");
    for connection in [0, 1, 2].iter().map(|index| index * 2) {
        let connection = &mut connections[connection];
        let before = info(connection, "total_commands_processed");
        assert_eq!(info(connection, "total_commands_processed"), before + 1);
        for (field, expected) in [
            ("gateway_threads", THREADS),
            ("connected_clients", 4 * THREADS),
            ("total_connections_received", 4 * THREADS),
            ("rejected_connections", 0),
            ("store_requests", 4 * THREADS),
            ("store_requests_in_flight", 0),
        ] {
            assert_eq!(info(connection, field), expected, "{field}");
        }
        let reply = connection.call("CONFIG GET io-threads");
        assert_eq!(reply, format!("*2\r\n$10\r\nio-threads\r\n$1\r\n{THREADS}\r\n"));
    }
    // Closed connections are no longer counted, on any thread.
    connections.truncate(5);
    while info(&mut connections[0], "connected_clients") > 5 {}
    assert_eq!(info(&mut connections[0], "total_connections_received"), 4 * THREADS);
}

#[test]
fn the_connection_limit_holds_across_threads() {
    const LIMIT: usize = 10;
    let mut world = World::new();
    let address = world.gateway_of(THREADS, |config| config.connections_max = LIMIT);
    let mut first = Resp::connect(address);
    assert_eq!(first.call("PING"), "+PONG\r\n");
    for round in 1..=5 {
        let connect = || {
            let mut connection = Resp::connect(address);
            let is_written = connection.stream.write_all(&request(&[b"PING"])).is_ok();
            let answered = connection.reply_or_end().filter(|_| is_written).unwrap_or_default();
            (answered == b"+PONG\r\n").then_some(connection)
        };
        let asked: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..40).map(|_| scope.spawn(connect)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let admitted = asked.into_iter().flatten().count();
        assert_eq!(admitted, LIMIT - 1, "round {round}");
        assert_eq!(info(&mut first, "rejected_connections"), round * (40 - admitted));
        // The extra connections were closed again: their places are free once their threads have
        // noticed.
        while info(&mut first, "connected_clients") > 1 {}
    }
    let _others: Vec<_> = (1..LIMIT).map(|_| Resp::connect(address)).collect();
    assert_eq!(Resp::connect(address).rest(), "-ERR max number of clients reached\r\n");
}

#[test]
fn each_connection_keeps_its_order_under_load() {
    let mut world = World::new();
    world.store.lock().unwrap().disorder = 7;
    let address = world.gateway_of(THREADS, |_| ());
    std::thread::scope(|scope| {
        for number in 0..4 * THREADS {
            scope.spawn(move || {
                let mut connection = Resp::connect(address);
                connection.stream.write_all(&pipeline(&format!("key{number}"), 300)).unwrap();
                for expected in 1..=300 {
                    assert_eq!(connection.reply(), format!(":{expected}\r\n").into_bytes());
                }
            });
        }
    });
}

#[test]
fn connections_closed_within_a_pipeline_leave_nothing_behind() {
    let mut world = World::new();
    let address = world.gateway_of(THREADS, |_| ());
    let mut witness = Resp::connect(address);
    for round in 0..30 {
        let connections: Vec<_> = (0..8).map(|_| Resp::connect(address)).collect();
        for (number, mut connection) in connections.into_iter().enumerate() {
            let mut bytes = pipeline(&format!("key{number}"), 50);
            bytes.truncate(bytes.len() - round % 7);
            connection.stream.write_all(&bytes).unwrap();
            if number % 2 == 0 {
                // Some connections have read a part of their replies.
                connection.reply();
            }
        }
        assert_eq!(witness.call("PING"), "+PONG\r\n");
    }
    while info(&mut witness, "connected_clients") > 1 {}
    while info(&mut witness, "store_requests_in_flight") > 0 {}
    assert!(info(&mut witness, "mem_clients_normal") < 100_000);
}

#[test]
fn a_stop_ends_all_threads_with_requests_in_flight() {
    let mut world = World::new();
    let address = world.gateway_of(THREADS, |_| ());
    let mut connections: Vec<_> = (0..4 * THREADS).map(|_| Resp::connect(address)).collect();
    for connection in &mut connections {
        assert_eq!(connection.call("PING"), "+PONG\r\n");
        connection.send(&[b"SET", b"silent", b"v"]);
    }
    world.stop();
    for mut connection in connections {
        assert_eq!(connection.rest(), "", "the connection closes without a reply");
    }
    // If a thread did not stop, the test would hang here.
    drop(world);
}
