//! Damages or removes each file of a data directory. `up` either starts and has all acknowledged
//! data, or names the file and says what to do.

use crate::cluster::{Up, nicekv};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KEYS: usize = 200;
/// An ordinary run damages every file in one way, `.ci/long` in all these ways.
const DAMAGES: usize = 4;
/// Maximum length of the garbage, because a preallocated file may be long.
const GARBAGE_BYTES_MAX: usize = 1 << 20;

fn arguments(data: &str) -> [&str; 6] {
    ["--data-dir", data, "--resp", "127.0.0.1:0", "--keyspace", "objects=chunks=multicast"]
}

fn fill(up: &Up) {
    let mut redis = up.redis();
    for key in 0..KEYS {
        assert_eq!(redis.call(&["SET", &format!("k{key}"), &format!("v{key}")]), "+OK");
    }
    assert_eq!(redis.call(&["SET", "large", &"x".repeat(100_000)]), "+OK");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    all.sort();
    all
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Starts `up`. Returns `None` if all keys have their values, otherwise the text on standard error.
fn start(scratch: &Path, context: &str) -> Option<String> {
    let mut command = nicekv(scratch, &["up"]);
    command.args(arguments("damaged")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut output = std::io::BufReader::new(process.stdout.take().unwrap());
    let resp = loop {
        let mut line = String::new();
        if std::io::BufRead::read_line(&mut output, &mut line).unwrap() == 0 {
            break None;
        }
        if line.starts_with("ready") {
            let resp = line.split(' ').find_map(|word| word.strip_prefix("resp="));
            break resp.map(str::to_owned);
        }
    };
    let Some(resp) = resp else {
        let mut said = String::new();
        process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(2), "{context}: {said}");
        return Some(said);
    };
    let mut redis = crate::cluster::Redis::new(std::net::TcpStream::connect(resp).unwrap());
    for key in 0..KEYS {
        assert_eq!(redis.call(&["GET", &format!("k{key}")]), format!("$v{key}"), "{context}");
    }
    assert_eq!(redis.call(&["STRLEN", "large"]), ":100000", "{context}");
    process.kill().unwrap();
    process.wait().unwrap();
    None
}

#[test]
fn damaged_files_are_harmless_or_named_with_advice() {
    let scratch = tempfile::tempdir().unwrap();
    let here = scratch.path();
    let up =
        Up::start_on(here, "127.0.0.1:0", &["--data-dir", "data", "--keyspace", "objects=chunks=multicast"]);
    fill(&up);
    fs::write(here.join("in"), "y".repeat(2_000_000)).unwrap();
    assert!(nicekv(here, &["object", "put", "name", "in"]).stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(up.interrupt(), Some(0));
    let (whole, damaged) = (here.join("data"), here.join("damaged"));
    // The files of one node suffice.
    let all = files(&whole).into_iter().map(|file| file.strip_prefix(&whole).unwrap().to_owned());
    let all: Vec<_> = all.filter(|file| !file.starts_with("node-2") && !file.starts_with("node-3")).collect();
    assert!(all.len() >= 12, "{all:?}");
    let (mut named, mut harmless, mut unclear) = (0, Vec::new(), Vec::new());
    for (number, file) in all.iter().enumerate() {
        let bytes = fs::read(whole.join(file)).unwrap();
        let garbage = vec![0xa5; bytes.len().min(GARBAGE_BYTES_MAX)];
        let half = &bytes[..bytes.len() / 2];
        let damages: [_; DAMAGES] =
            [("no", None), ("empty", Some(&[][..])), ("half", Some(half)), ("garbage", Some(&garbage))];
        for (way, (damage, content)) in damages.into_iter().enumerate() {
            if !nicekv_testkit::runs_long() && way != number % DAMAGES {
                continue;
            }
            // A lock file is empty, so it cannot be truncated.
            if bytes.is_empty() && content.is_some() {
                continue;
            }
            let _ = fs::remove_dir_all(&damaged);
            copy(&whole, &damaged);
            match content {
                Some(content) => fs::write(damaged.join(file), content).unwrap(),
                None => fs::remove_file(damaged.join(file)).unwrap(),
            }
            let context = format!("{damage} {}", file.display());
            let Some(said) = start(here, &context) else {
                harmless.push(context);
                continue;
            };
            named += 1;
            // Other roles may have logged events before the error.
            let said: Vec<_> = said.lines().filter(|line| line.starts_with("nicekv: ")).collect();
            let said = said.join("\n");
            // For a table of the engine, the error names the directory of the tables.
            let is_table = file.starts_with("node-1/engine") && !file.ends_with("current");
            let path = Path::new("damaged").join(if is_table { Path::new("node-1/engine") } else { file });
            let remedies = ["remove ", "put it back from a copy"];
            // If the metadata state is missing, its path is unknown, but not that it is outdated.
            if damage == "no" && file.ends_with("metadata-state") {
                assert!(said.contains("the metadata state is an older copy"), "{said}");
                continue;
            }
            let is_clear = said.contains(&path.display().to_string())
                && said.lines().count() == 1
                && remedies.iter().any(|remedy| said.contains(remedy));
            if !is_clear {
                unclear.push(format!("{context}: {said}"));
            }
        }
    }
    assert!(unclear.is_empty(), "{unclear:#?}");
    let named_min = if nicekv_testkit::runs_long() { 10 } else { 3 };
    assert!(named >= named_min, "{named} of {all:?}");
    // The loss of these files must be noticed: no other node has their content.
    let must_be = ["no node-1/log/", "no node-1/engine/current", "no node-1/engine/tables/"];
    let is_missed = |context: &&String| must_be.iter().any(|begin| context.starts_with(begin));
    assert_eq!(harmless.iter().find(is_missed), None);
}
