//! Pipelined commands see the effects of earlier ones on their keys, and none of later ones, even
//! if the network reorders requests.

use crate::support;

use nicekv_testkit::Random;
use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;
use support::{Resp, World, request};

fn pipeline(commands: &[String]) -> Vec<u8> {
    let words = |command: &String| request(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    commands.iter().flat_map(words).collect()
}

/// How many requests for `key` are in flight when the first has arrived, none is answered, and no
/// more arrive.
fn under_way_together(commands: &[&str], key: &str) -> usize {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let (mut connection, mut probe) = (Resp::connect(address), Resp::connect(address));
    let commands: Vec<_> = commands.iter().map(|command| command.to_string()).collect();
    // In one write: requests that need not wait leave together with the first.
    connection.stream.write_all(&pipeline(&commands)).unwrap();
    let count = |world: &World| world.requests().iter().filter(|other| *other == key).count();
    while count(&world) == 0 {
        probe.call("GET probe");
    }
    probe.call("GET probe");
    let together = count(&world);
    // All commands are answered in the end; requests that had to wait are sent only then.
    connection.stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    for _ in &commands {
        while !connection.has_input() {
            probe.call("GET release");
        }
        connection.reply();
    }
    together
}

#[test]
fn writes_to_one_key_run_one_at_a_time() {
    let many = |name: &str| {
        format!("{name} {} held", (0..70).map(|key| format!("k{key} ")).collect::<String>().trim_end())
    };
    let (many_reads, many_writes) = (many("MGET"), many("DEL"));
    for (first, second, together) in [
        ("GET held", "GET held", 1),
        ("GET held", "MGET a held", 1),
        ("GET a", "GET held", 1),
        ("MGET held held", "TTL held", 1),
        ("GET held", "SET held 1", 1),
        ("SET held 1", "GET held", 1),
        ("SET held 1", "SET held 2", 1),
        ("INCR held", "APPEND held 0", 1),
        ("MSET a 1 held 2", "GET held", 1),
        ("MGET a held", "DEL b held", 1),
        // Commands with so many keys run alone, instead of being compared key by key.
        (many_reads.as_str(), "GET held", 1),
        (many_writes.as_str(), "GET held", 1),
        ("GET held", many_reads.as_str(), 1),
    ] {
        assert_eq!(under_way_together(&[first, second], "held"), together, "{first}, {second}");
    }
    assert_eq!(under_way_together(&["GET held", "SET other 1", "GET other", "SET held 1"], "held"), 1);
}

#[test]
fn reads_of_one_key_share_a_request_and_do_not_block() {
    let mut world = World::new();
    let address = world.gateway(|_| ());
    let mut connection = Resp::connect(address);
    let commands =
        ["SET held abc", "GET release", "GET held", "STRLEN held", "MGET held held", "GET release"];
    connection.stream.write_all(&pipeline(&commands.map(str::to_owned))).unwrap();
    // The last command is sent although the reads before it are unanswered: it releases their
    // answers.
    let replies = commands.map(|_| connection.reply()).concat();
    assert_eq!(
        String::from_utf8_lossy(&replies),
        "+OK\r\n$-1\r\n$3\r\nabc\r\n:3\r\n*2\r\n$3\r\nabc\r\n$3\r\nabc\r\n$-1\r\n"
    );
    let reads = world.requests().iter().filter(|key| *key == "held").count();
    assert_eq!(reads, 2, "the write, and one get");
}

/// The reply of Redis, whose commands take effect one after the other.
fn model(keys: &mut HashMap<String, String>, command: &str) -> String {
    let words: Vec<_> = command.split(' ').collect();
    let bulk = |value: Option<&String>| match value {
        Some(value) => format!("${}\r\n{value}\r\n", value.len()),
        None => "$-1\r\n".to_owned(),
    };
    match words[0] {
        "GET" => bulk(keys.get(words[1])),
        "SET" => {
            keys.insert(words[1].into(), words[2].into());
            "+OK\r\n".into()
        }
        "GETSET" => bulk(keys.insert(words[1].into(), words[2].into()).as_ref()),
        "APPEND" => {
            let value = keys.entry(words[1].into()).or_default();
            value.push_str(words[2]);
            format!(":{}\r\n", value.len())
        }
        "MGET" => {
            let values: String = words[1..].iter().map(|key| bulk(keys.get(*key))).collect();
            format!("*{}\r\n{values}", words.len() - 1)
        }
        "MSET" => {
            keys.extend(words[1..].chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())));
            "+OK\r\n".into()
        }
        "DEL" => format!(":{}\r\n", words[1..].iter().filter(|key| keys.remove(**key).is_some()).count()),
        other => unreachable!("{other}"),
    }
}

fn command(random: &mut Random) -> String {
    let mut key = || format!("k{}", random.below(3));
    let (a, b) = (key(), key());
    let value = random.below(10);
    match random.below(10) {
        0..3 => format!("GET {a}"),
        3..5 => format!("SET {a} {value}"),
        5 => format!("GETSET {a} {value}"),
        6 => format!("APPEND {a} {value}"),
        7 => format!("MGET {a} {b}"),
        8 => format!("MSET {a} {value} {b} {value}"),
        _ => format!("DEL {a} {b}"),
    }
}

#[test]
fn reordered_requests_change_no_reply() {
    for seed in 1..=20u64 {
        let mut world = World::new();
        world.store.lock().unwrap().disorder = seed;
        let address = world.gateway(|_| ());
        let mut connection = Resp::connect(address);
        let mut random = Random::new(seed);
        let commands: Vec<_> = (0..300).map(|_| command(&mut random)).collect();
        connection.stream.write_all(&pipeline(&commands)).unwrap();
        let mut keys = HashMap::new();
        for command in &commands {
            let found = String::from_utf8(connection.reply()).unwrap();
            assert_eq!(found, model(&mut keys, command), "{command}, seed {seed}");
        }
    }
}
