//! The gateway replies byte for byte as Redis does.
//!
//! `tests/transcripts/*.txt` are dialogues with a real redis-server: a command in quotes as in
//! redis-cli, then its reply, or `(closed)` if the connection ends instead; the dialogue then
//! continues on a new connection. They are replayed against the gateway, and against redis-server
//! where it is installed. `NICEKV_BLESS=1` records them again from redis-server.

use crate::support;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use support::{RedisServer, Resp, World};

fn transcripts() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "transcripts are missing: {paths:?}");
    paths
}

/// Runs the commands of a transcript at `address`, and returns it with the replies from there.
fn replay(transcript: &str, address: SocketAddr) -> String {
    let mut connection = Resp::connect(address);
    let mut dialogue = String::new();
    for line in transcript.lines() {
        if line.is_empty() || line.starts_with('#') {
            writeln!(dialogue, "{line}").unwrap();
        } else if let Some(command) = line.strip_prefix("> ") {
            let words = words(command);
            connection.send(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            writeln!(dialogue, "> {command}").unwrap();
            let reply = connection.reply_or_end();
            for part in reply.as_deref().map_or("(closed)".into(), readable).lines() {
                writeln!(dialogue, "  {part}").unwrap();
            }
            if reply.is_none() {
                connection = Resp::connect(address);
            }
        }
    }
    dialogue
}

/// Redis' error ends before this text; the gateway adds the list of keyspaces.
const ADDED: &str = ": a database is a keyspace";

/// A reply with one line per element, without the connection's id, which differs from run to run,
/// and without texts that the gateway adds.
fn readable(reply: &[u8]) -> String {
    let mut text = reply.escape_ascii().to_string().replace("\\r\\n", "\n").replace("\\'", "'");
    if let Some(at) = text.find("$2\nid\n:") {
        let number = at + "$2\nid\n:".len();
        let end = number + text[number..].find('\n').unwrap();
        text.replace_range(number..end, "ID");
    }
    if let Some(at) = text.find(ADDED) {
        let end = at + text[at..].find('\n').unwrap();
        text.replace_range(at..end, "");
    }
    text
}

/// Splits a command into words; a word in quotes may contain blanks and \xHH.
fn words(command: &str) -> Vec<Vec<u8>> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), Vec::new(), false, false);
    let mut bytes = command.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => (quoted, any) = (!quoted, true),
            b' ' if !quoted => {
                words.push(std::mem::take(&mut word));
                any = false;
            }
            b'\\' => {
                assert_eq!(bytes.next(), Some(b'x'));
                let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap();
                word.push((digit() * 16 + digit()) as u8);
            }
            other => word.push(other),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Fails with the first command whose reply differs.
fn compare(path: &Path, expected: &str, found: &str) {
    let entries = |text: &str| text.split("\n> ").map(str::to_owned).collect::<Vec<_>>();
    for (expected, found) in entries(expected).into_iter().zip(entries(found)) {
        assert_eq!(found, expected, "{}", path.display());
    }
    assert_eq!(found.len(), expected.len(), "{}", path.display());
}

#[test]
fn the_gateway_answers_as_recorded() {
    for path in transcripts() {
        let expected = std::fs::read_to_string(&path).unwrap();
        let mut world = World::new();
        let address = world.gateway(|_| ());
        compare(&path, &expected, &replay(&expected, address));
    }
}

#[test]
fn redis_answers_as_recorded() {
    if RedisServer::start().is_none() {
        nicekv_testkit::needs(&["redis-server"], "redis_answers_as_recorded");
        return;
    }
    for path in transcripts() {
        let server = RedisServer::start().expect("started before");
        let expected = std::fs::read_to_string(&path).unwrap();
        let found = replay(&expected, server.address);
        match std::env::var_os("NICEKV_BLESS") {
            Some(_) => std::fs::write(&path, found).unwrap(),
            None => compare(&path, &expected, &found),
        }
    }
}
