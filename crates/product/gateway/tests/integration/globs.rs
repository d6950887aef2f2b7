//! Random patterns match as in a real redis-server, in KEYS, SCAN, PSUBSCRIBE, and in the key and
//! channel rules of users.
//!
//! `NICEKV_SEED=n` sets the seed.

use crate::support;

use support::{RedisServer, Resp, World, draw};

const PATTERNS: usize = 1_500;
const NAMES: usize = 60;
/// Special characters of patterns, and letters next to the ends of ranges.
const OF_PATTERNS: &[u8] = b"aabbcno-[]^*?\\";
const OF_NAMES: &[u8] = b"abcmnop-[]^*?\\";

fn word(random: &mut u64, of: &[u8], length_max: usize) -> Vec<u8> {
    let length = 1 + draw(random, length_max);
    (0..length).map(|_| of[draw(random, of.len())]).collect()
}

/// A random pattern; it contains a character class more often than chance would make one.
fn pattern(random: &mut u64) -> Vec<u8> {
    let mut pattern = word(random, OF_PATTERNS, 6);
    if draw(random, 2) == 0 {
        let class = [b"[".to_vec(), word(random, OF_PATTERNS, 5), b"]".to_vec()].concat();
        let at = draw(random, pattern.len() + 1);
        pattern.splice(at..at, class);
    }
    pattern
}

fn call(connection: &mut Resp, words: &[&[u8]]) -> String {
    connection.send(words);
    String::from_utf8_lossy(&connection.reply()).into_owned()
}

/// The replies to a command for each name, all of which are sent at once. The name stands between
/// the words of the command.
fn calls(connection: &mut Resp, before: &[&[u8]], names: &[Vec<u8>], after: &[&[u8]]) -> Vec<Vec<u8>> {
    let commands: Vec<Vec<&[u8]>> = names.iter().map(|name| [before, &[name], after].concat()).collect();
    connection.send_all(&commands);
    names.iter().map(|_| connection.reply()).collect()
}

/// The names that a pattern matches, according to each command that takes patterns.
fn matching(connection: &mut Resp, listener: &mut Resp, pattern: &[u8], names: &[Vec<u8>]) -> Vec<String> {
    let sorted = |reply: String| {
        let mut lines: Vec<_> = reply.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(" ")
    };
    let keys = sorted(call(connection, &[b"KEYS", pattern]));
    let scanned = sorted(call(connection, &[b"SCAN", b"0", b"COUNT", b"1000", b"MATCH", pattern]));
    call(listener, &[b"PSUBSCRIBE", pattern]);
    let published = calls(connection, &[b"PUBLISH"], names, &[b"m"]);
    let told = published.iter().filter(|reply| *reply == b":1\r\n").count();
    for _ in 0..told {
        listener.reply();
    }
    call(listener, &[b"PUNSUBSCRIBE", pattern]);
    let (keys_rule, channels_rule) = ([b"~", pattern].concat(), [b"&", pattern].concat());
    let rules: &[&[u8]] =
        &[b"ACL", b"SETUSER", b"u", b"reset", b"on", b"+@all", b"resetchannels", &keys_rule, &channels_rule];
    let made = call(connection, rules);
    let mut may = |command: &[u8], after: &[&[u8]]| -> String {
        let replies = calls(connection, &[b"ACL", b"DRYRUN", b"u", command], names, after);
        replies.iter().map(|reply| if reply == b"+OK\r\n" { '+' } else { '-' }).collect()
    };
    let keys_allowed = may(b"GET", &[]);
    let channels_allowed = may(b"PUBLISH", &[b"m"]);
    vec![keys, scanned, told.to_string(), made, keys_allowed, channels_allowed]
}

#[test]
fn patterns_match_as_in_redis() {
    let Some(redis) = RedisServer::start() else {
        nicekv_testkit::needs(&["redis-server"], "patterns_match_as_in_redis");
        return;
    };
    let seed = std::env::var("NICEKV_SEED").map_or(7, |text| text.parse().unwrap());
    let (mut random, mut world) = (seed, World::new());
    let addresses = [world.gateway(|_| ()), redis.address];
    let mut connections = addresses.map(|address| (Resp::connect(address), Resp::connect(address)));
    let names: Vec<_> = (0..NAMES).map(|_| word(&mut random, OF_NAMES, 4)).collect();
    for (connection, _) in &mut connections {
        for name in &names {
            assert_eq!(call(connection, &[b"SET", name, b"v"]), "+OK\r\n");
        }
    }
    let mut some = 0;
    for number in 0..PATTERNS {
        let pattern = pattern(&mut random);
        let [ours, theirs] = connections
            .each_mut()
            .map(|(connection, listener)| matching(connection, listener, &pattern, &names));
        let shown = String::from_utf8_lossy(&pattern);
        assert_eq!(ours, theirs, "NICEKV_SEED={seed}, pattern {number}: {shown}");
        some += usize::from(theirs[2] != "0");
    }
    assert!(some > PATTERNS / 20, "{some} patterns of {PATTERNS} match anything");
}

/// Regression test of a security hole: a range that began with an escaped letter allowed a key that
/// Redis refuses.
#[test]
fn an_escaped_letter_does_not_begin_a_range() {
    let mut world = World::new();
    let mut connection = Resp::connect(world.gateway(|_| ()));
    assert_eq!(connection.call("ACL SETUSER u reset on +@all resetchannels ~hell[\\n-p] &news:*"), "+OK\r\n");
    let refused = "$57\r\nUser u has no permissions to access the 'hello' key\r\n";
    assert_eq!(connection.call("ACL DRYRUN u GET hello").split_once("\r\n").unwrap().1, &refused[5..]);
    assert_eq!(connection.call("ACL DRYRUN u GET hellp"), "+OK\r\n");
    assert_eq!(connection.call("ACL DRYRUN u PUBLISH news:1 m"), "+OK\r\n");
    for command in ["PUBLISH other m", "SUBSCRIBE news:1 other", "PSUBSCRIBE news:1*"] {
        let said = connection.call(&format!("ACL DRYRUN u {command}"));
        assert!(said.contains("User u has no permissions to access the '"), "{command}: {said}");
        assert!(said.ends_with("' channel\r\n"), "{command}: {said}");
    }
}
