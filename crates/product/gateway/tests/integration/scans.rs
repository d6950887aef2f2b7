//! SCAN, KEYS and DBSIZE with more keys than one reply of a node holds.

use crate::support;

use std::collections::BTreeSet;
use std::io::Write;
use support::{Resp, World, request};

const KEYS: usize = 100;

fn filled() -> (World, Resp) {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    for number in 0..KEYS {
        connection.call(&format!("SET key:{number} value"));
    }
    (world, connection)
}

/// The bulk strings of a reply.
fn bulks(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8(reply.to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let mut bulks = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') {
            bulks.push(lines.next().unwrap().into());
        }
    }
    bulks
}

/// Sends the commands in one write, and returns the replies.
fn pipelined(connection: &mut Resp, commands: &[&str]) -> Vec<String> {
    let words = |command: &&str| request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let bytes: Vec<u8> = commands.iter().flat_map(words).collect();
    connection.stream.write_all(&bytes).unwrap();
    commands.iter().map(|_| String::from_utf8(connection.reply()).unwrap()).collect()
}

/// All keys that a scan with these options lists, and the number of replies.
fn scan(connection: &mut Resp, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut keys, mut replies) = (String::from("0"), Vec::new(), 0);
    loop {
        let mut listed = bulks(connection.call(&format!("SCAN {cursor}{options}")).as_bytes()).into_iter();
        cursor = listed.next().unwrap();
        keys.extend(listed);
        replies += 1;
        if cursor == "0" {
            return (keys, replies);
        }
    }
}

#[test]
fn a_scan_lists_every_key_once_with_the_expected_number_of_replies() {
    let (_world, mut connection) = filled();
    let all: BTreeSet<String> = (0..KEYS).map(|number| format!("key:{number}")).collect();
    for (options, replies_max) in [("", 10), (" COUNT 1", 40), (" COUNT 1000", 1)] {
        let (keys, replies) = scan(&mut connection, options);
        assert_eq!(keys.len(), KEYS, "{options}");
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), all, "{options}");
        assert!(replies <= replies_max && replies * 3 * 10 >= replies_max, "{options}: {replies}");
    }
    let (found, _) = scan(&mut connection, " MATCH key:?");
    assert_eq!(found.len(), 10);
    assert_eq!(scan(&mut connection, " TYPE hash").0, Vec::<String>::new());
    assert_eq!(scan(&mut connection, " TYPE list"), (Vec::new(), 1));
    assert_eq!(scan(&mut connection, " TYPE string").0.len(), KEYS);
    for number in 0..KEYS / 2 {
        connection.call(&format!("DEL key:{number}"));
        connection.call(&format!("HSET key:{number} field value"));
    }
    let by_type = [" TYPE hash COUNT 7", " TYPE string"].map(|options| scan(&mut connection, options).0);
    let number = |key: &String| key.strip_prefix("key:").unwrap().parse::<usize>().unwrap();
    assert!(by_type[0].iter().all(|key| number(key) < KEYS / 2));
    assert_eq!(by_type.map(|keys| keys.len()), [KEYS / 2; 2]);
    assert_eq!(connection.call("DBSIZE"), format!(":{KEYS}\r\n"));
    assert_eq!(bulks(connection.call("KEYS *").as_bytes()).len(), KEYS);
    assert_eq!(bulks(connection.call("KEYS key:1[1-3]").as_bytes()).len(), 3);
}

#[test]
fn a_scan_waits_for_earlier_commands_and_later_ones_for_it() {
    let (mut world, _connection) = filled();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    let commands = ["SET another value", "DBSIZE", "DEL another key:0", "DBSIZE", "PING"];
    let replies = pipelined(&mut connection, &commands);
    let expected = ["+OK\r\n", ":101\r\n", ":2\r\n", ":99\r\n", "+PONG\r\n"];
    assert_eq!(replies, expected);
}

#[test]
fn a_cursor_is_valid_on_any_connection_in_its_keyspace() {
    let mut world = World::new();
    let address = world.gateway_of(2, |config| {
        let mut other = config.client.keyspaces[0];
        other.id = nicekv_proto::KeyspaceId(1);
        config.client.keyspaces.push(other);
    });
    let mut connection = Resp::connect(address);
    for number in 0..KEYS {
        connection.call(&format!("SET key:{number} value"));
    }
    let first = bulks(connection.call("SCAN 0").as_bytes());
    let (cursor, seen) = first.split_first().unwrap();
    let again = bulks(connection.call(&format!("SCAN {cursor}")).as_bytes());
    let mut second = Resp::connect(address);
    let elsewhere = bulks(second.call(&format!("SCAN {cursor}")).as_bytes());
    assert_eq!(again[1..], elsewhere[1..], "a cursor can be used any number of times");
    assert!(again[1..].iter().all(|key| !seen.contains(key)));
    second.call("SELECT 1");
    for invalid in [cursor.as_str(), "7", "-1", "x", "99999999999999999999"] {
        assert_eq!(second.call(&format!("SCAN {invalid}")), "-ERR invalid cursor\r\n", "{invalid}");
    }
}

#[test]
fn flushdb_deletes_the_keys_of_one_keyspace() {
    let (mut world, _) = filled();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    let commands = ["SET another value", "FLUSHDB", "SET late value", "DBSIZE", "FLUSHDB SYNC", "DBSIZE"];
    let replies = pipelined(&mut connection, &commands);
    assert_eq!(replies, ["+OK\r\n", "+OK\r\n", "+OK\r\n", ":1\r\n", "+OK\r\n", ":0\r\n"]);
}
