//! Values that are too long for a datagram.

use crate::cluster::{Redis, Up, nicekv, outcome};
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Text of `bytes` bytes that does not repeat.
pub(crate) fn text(bytes: usize, seed: u64) -> String {
    let (mut text, mut state) = (String::with_capacity(bytes + 16), seed | 1);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        write!(text, "{state:016x}").expect("a string takes everything");
    }
    text.truncate(bytes);
    text
}

fn get(redis: &mut Redis, key: &str) -> String {
    redis.call(&["GET", key]).strip_prefix('$').unwrap_or_else(|| panic!("{key} has no value")).to_owned()
}

#[test]
fn large_values_survive_kill_minus_9() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    // One datagram; the shortest of two datagrams; one chunk and two; more than a receiver accepts
    // without flow control.
    let lengths = [1_024, 1_025, 1_409, 57_344, 57_345, 100_000, 20_000_000];
    for length in lengths {
        let (key, value) = (format!("of-{length}"), text(length, length as u64));
        assert_eq!(redis.call(&["SET", &key, &value]), "+OK", "{length} bytes");
        assert!(get(&mut redis, &key) == value, "{length} bytes come back otherwise");
        assert_eq!(redis.call(&["STRLEN", &key]), format!(":{length}"));
    }
    up.kill();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    for length in lengths {
        let value = text(length, length as u64);
        assert!(get(&mut redis, &format!("of-{length}")) == value, "{length} bytes after kill -9");
    }
}

#[test]
fn gateway_value_limit_is_configurable() {
    if !nicekv_testkit::runs_slow("gateway_value_limit_is_configurable") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--gateway-value-mib", "65"]);
    let mut redis = up.redis();
    let value = text(65 << 20, 1);
    assert_eq!(redis.call(&["SET", "k", &value]), "+OK");
    assert!(get(&mut redis, "k") == value);
    let too_long = redis.call(&["SET", "k", &text((65 << 20) + 1, 3)]);
    assert!(too_long.starts_with("-ERR") && too_long.contains("68157440"), "{too_long}");

    let longer = text((65 << 20) + 1, 4);
    let file = scratch.path().join("value");
    std::fs::write(&file, &longer).unwrap();
    let mut put = nicekv(scratch.path(), &["put", "by-command", "--endpoint", &up.endpoint]);
    put.stdin(File::open(&file).unwrap());
    assert_eq!(outcome(put), (Some(0), String::new(), String::new()));
    let refused = redis.call(&["GET", "by-command"]);
    assert!(refused.starts_with("-ERR") && refused.contains("68157440"), "{refused}");
    let (code, got, _) = outcome(nicekv(scratch.path(), &["get", "by-command", "--endpoint", &up.endpoint]));
    assert!(code == Some(0) && got == longer);
}

/// The primary builds the result of an append, and the other members fetch it. On a slow disk this
/// takes seconds, in which nobody else hears of the op.
#[test]
fn row_41_appends_to_a_large_value_replace_no_node() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    let value = text(64_000_000, 5);
    assert_eq!(redis.call(&["SET", "k", &value]), "+OK");
    let began = Instant::now();
    for length in 1..=5 {
        assert_eq!(redis.call(&["APPEND", "k", "x"]), format!(":{}", value.len() + length));
    }
    println!("5 appends to {} bytes took {:?}", value.len(), began.elapsed());
    let (code, json, error) = outcome(nicekv(scratch.path(), &["status", "--json"]));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    let epochs = status["partitions"].as_array().unwrap().iter().map(|partition| &partition["epoch"]);
    assert_eq!(epochs.filter(|epoch| **epoch != 1).count(), 0, "nodes were replaced: {status}");
    assert!(get(&mut redis, "k") == value + "xxxxx");
}

#[test]
fn commands_work_on_large_values() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--keyspace", "by-chain=replication=chain"]);
    let mut redis = up.redis();
    let [first, second] = [text(5_000, 1), text(70_000, 2)];
    assert_eq!(redis.call(&["SET", "k", &first]), "+OK");
    assert!(redis.call(&["GETSET", "k", &second]) == format!("${first}"));
    assert!(redis.call(&["SET", "k", "short", "GET"]) == format!("${second}"));
    assert_eq!(redis.call(&["SET", "k", &first, "NX"]), "$-1");
    assert_eq!(redis.call(&["SET", "k", &first, "XX", "EX", "1000"]), "+OK");
    assert_eq!(redis.call(&["PERSIST", "k"]), ":1");
    assert_eq!(redis.call(&["TTL", "k"]), ":-1");
    assert_eq!(redis.call(&["GETRANGE", "k", "4990", "-1"]), format!("${}", &first[4_990..]));
    assert_eq!(redis.call(&["INCR", "k"]), "-ERR value is not an integer or out of range");
    assert!(redis.call(&["GETEX", "k", "EX", "1000"]) == format!("${first}"));
    assert!(redis.call(&["GETDEL", "k"]) == format!("${first}"));
    assert_eq!(redis.call(&["EXISTS", "k"]), ":0");
    let too_long = redis.call(&["SET", "k", &text((64 << 20) + 1, 3)]);
    assert!(too_long.starts_with("-ERR") && too_long.contains("67108864"), "{too_long}");
    // A chain passes each value on in a single message, which limits its length.
    assert_eq!(redis.call(&["SELECT", "1"]), "+OK");
    let refused = redis.call(&["SET", "k", &second]);
    assert!(refused.starts_with("-ERR") && refused.contains("57344"), "{refused}");
    assert_eq!(redis.call(&["GET", "k"]), "$-1", "nothing is stored");
    assert_eq!(redis.call(&["SET", "k", &first]), "+OK");
    assert!(redis.call(&["GET", "k"]) == format!("${first}"));
    assert_eq!(redis.call(&["APPEND", "k", &second[..50_000]]), ":55000");
    assert!(redis.call(&["GETRANGE", "k", "5000", "-1"]) == format!("${}", &second[..50_000]));
    let refused = redis.call(&["APPEND", "k", &first[..2_345]]);
    assert!(refused.starts_with("-ERR") && refused.contains("57344"), "{refused}");
    assert_eq!(redis.call(&["STRLEN", "k"]), ":55000");
}

/// The reply of EXEC to these commands.
fn executed(redis: &mut Redis, commands: &[&[&str]]) -> String {
    assert_eq!(redis.call(&["MULTI"]), "+OK");
    for command in commands {
        assert_eq!(redis.call(command), "+QUEUED", "{command:?}");
    }
    redis.call_for_all(&["EXEC"])
}

#[test]
fn transactions_and_scripts_use_values_larger_than_a_datagram() {
    let scratch = tempfile::tempdir().unwrap();
    let spec = "by-chain=replication=chain";
    let up = Up::start(scratch.path(), &["--data-dir", "data", "--keyspace", spec]);
    let mut redis = up.redis();
    let (long, longest) = (text(5_000, 1), text(50_000, 2));
    for database in ["0", "1"] {
        assert_eq!(redis.call(&["SELECT", database]), "+OK");
        let commands: &[&[&str]] = &[
            &["SET", "{t}a", &long],
            &["APPEND", "{t}a", "and more"],
            &["GET", "{t}a"],
            &["MSET", "{t}b", &long, "{t}c", "short"],
            &["GETSET", "{t}b", "short"],
            &["INCR", "{t}a"],
        ];
        let error = "-ERR value is not an integer or out of range";
        let expected = format!("*[+OK,:5008,${long}and more,+OK,${long},{error}]");
        assert!(executed(&mut redis, commands) == expected, "database {database}");
        assert!(get(&mut redis, "{t}a") == format!("{long}and more"));
        assert_eq!(get(&mut redis, "{t}b"), "short");
        let script =
            "local old = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[2], old .. ARGV[1]) return #old";
        assert_eq!(redis.call(&["EVAL", script, "2", "{t}a", "{t}d", &longest]), ":5008");
        assert!(get(&mut redis, "{t}d") == format!("{long}and more{longest}"));
        assert_eq!(redis.call(&["COPY", "{t}d", "{t}e"]), ":1");
        assert_eq!(redis.call(&["RENAME", "{t}e", "{t}f"]), "+OK");
        assert_eq!(redis.call(&["SETBIT", "{t}f", "400000", "1"]), ":0");
        assert_eq!(redis.call(&["SETRANGE", "{t}f", "1", "X"]), ":55008");
        assert_eq!(redis.call(&["GETBIT", "{t}f", "400000"]), ":1");
        assert_eq!(redis.call(&["SETBIT", "{t}g", "100000", "1"]), ":0");
        assert_eq!(redis.call(&["STRLEN", "{t}g"]), ":12501");
        assert_eq!(redis.call(&["SET", "{t}h", &longest]), "+OK");
        let script = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('APPEND', KEYS[1], 'x')";
        assert_eq!(redis.call(&["EVAL", script, "1", "{t}h", &longest]), ":50001");
        let taken = executed(&mut redis, &[&["GETDEL", "{t}h"], &["EXISTS", "{t}h"]]);
        assert!(taken == format!("*[${longest}x,:0]"), "{}", &taken[..100]);
        let too_long = executed(&mut redis, &[&["GET", "{t}d"], &["GET", "{t}f"]]);
        assert!(too_long.starts_with("-EXECABORT"), "{}", &too_long[..100]);
        assert_eq!(redis.call(&["DEL", "{t}b", "{t}c", "{t}g"]), ":3");
    }
    up.kill();
    let up = Up::start(scratch.path(), &["--data-dir", "data", "--keyspace", spec]);
    let mut redis = up.redis();
    for database in ["0", "1"] {
        assert_eq!(redis.call(&["SELECT", database]), "+OK");
        assert!(get(&mut redis, "{t}d") == format!("{long}and more{longest}"), "after kill -9");
        assert_eq!(redis.call(&["STRLEN", "{t}f"]), ":55008");
    }
    // Appends to it until it is a large value.
    assert_eq!(redis.call(&["SELECT", "0"]), "+OK");
    assert_eq!(redis.call(&["APPEND", "{t}d", &longest]), ":105008");
    assert!(get(&mut redis, "{t}d") == format!("{long}and more{longest}{longest}"));
}

#[test]
fn exec_reads_large_values_as_of_its_execution() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory"]);
    let mut redis = up.redis();
    let values: Vec<String> = [57_345, 70_000, 3_000_000].map(|length| text(length, length as u64)).to_vec();
    for (number, value) in values.iter().enumerate() {
        assert_eq!(redis.call(&["SET", &format!("{{t}}{number}"), value]), "+OK");
    }
    let [one, two, three] = [0, 1, 2].map(|number| &values[number]);
    let commands: &[&[&str]] = &[
        &["GET", "{t}0"],
        &["SET", "{t}short", "x"],
        &["MGET", "{t}2", "{t}short", "{t}none", "{t}1"],
        &["STRLEN", "{t}2"],
        &["GETRANGE", "{t}1", "69990", "-1"],
        &["GETEX", "{t}1", "EX", "1000"],
        &["TYPE", "{t}1"],
    ];
    let end = &two[69_990..];
    let expected = format!("*[${one},+OK,*[${three},$x,$-1,${two}],:3000000,${end},${two},+string]");
    let told = executed(&mut redis, commands);
    let place = told.bytes().zip(expected.bytes()).position(|(one, other)| one != other);
    assert!(told == expected, "from byte {place:?}: {}", &told[place.unwrap_or(0)..][..80]);
    // If EXEC could not return a value that the transaction deletes or overwrites, it would be
    // lost. So nothing is executed.
    for last in [&["DEL", "{t}1"][..], &["SET", "{t}1", "x"]] {
        let refused = executed(&mut redis, &[&["GET", "{t}1"], last]);
        assert!(refused.starts_with("-EXECABORT"), "{refused}");
    }
    let refused = executed(&mut redis, &[&["GETDEL", "{t}1"], &["INCR", "{t}n"]]);
    assert!(refused.starts_with("*[-ERR value would exceed") && refused.ends_with(",:1]"), "{refused}");
    assert!(get(&mut redis, "{t}1") == *two);

    // While another client overwrites all keys in transactions, EXEC returns values of one moment.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writer = up.redis();
        let done = &done;
        scope.spawn(move || {
            for round in 0..200_u64 {
                let (value, number) = (text(3_000, round), round.to_string());
                let all: &[&[&str]] = &[&["SET", "{t}0", &value], &["SET", "{t}round", &number]];
                assert_eq!(executed(&mut writer, all), "*[+OK,+OK]");
                let large = text(60_000, round);
                assert_eq!(writer.call(&["SET", "{t}1", &large]), "+OK");
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut reads = 0;
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            let read = executed(&mut redis, &[&["GET", "{t}round"], &["GET", "{t}0"], &["GET", "{t}1"]]);
            let parts: Vec<&str> = read
                .strip_prefix("*[$")
                .and_then(|read| read.strip_suffix(']'))
                .unwrap()
                .split(",$")
                .collect();
            let Ok(round) = parts[0].parse::<u64>() else { continue };
            assert!(parts[1] == text(3_000, round), "round {round}");
            let large = [round, round.saturating_sub(1)].map(|of| text(60_000, of));
            assert!(round == 0 || large.iter().any(|large| large == parts[2]), "round {round}");
            reads += 1;
        }
        assert!(reads > 10, "{reads} reads");
    });
}

/// The expected value of key k, which grows with each APPEND.
struct Grown(String);

impl Grown {
    fn append(&mut self, redis: &mut Redis, suffix: &str) {
        self.0 += suffix;
        assert_eq!(redis.call(&["APPEND", "k", suffix]), format!(":{}", self.0.len()));
    }
}

#[test]
fn append_grows_large_values_that_survive_kill_minus_9() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    let mut grown = Grown(String::new());
    // Appends to no value and to a short one; beyond a datagram, and beyond a message; to a value
    // of many parts; more than a datagram holds, and much more.
    for (seed, bytes) in
        (1..).zip([1_000, 24, 1, 900, 5_000, 50_000, 419, 1, 3_000, 3_000_000, 1, 70_000, 700_000])
    {
        grown.append(&mut redis, &text(bytes, seed));
        assert_eq!(redis.call(&["STRLEN", "k"]), format!(":{}", grown.0.len()));
        assert!(get(&mut redis, "k") == grown.0, "after {bytes} bytes more");
    }
    assert_eq!(redis.call(&["EXPIRE", "k", "1000"]), ":1");
    grown.append(&mut redis, "end");
    assert_ne!(redis.call(&["TTL", "k"]), ":-1", "APPEND keeps the expiry");
    let large = text(60_000, 20);
    assert_eq!(redis.call(&["APPEND", "new", &large]), ":60000");
    assert!(get(&mut redis, "new") == large);
    up.kill();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    let mut redis = up.redis();
    assert!(get(&mut redis, "k") == grown.0 && get(&mut redis, "new") == large, "after kill -9");
    grown.append(&mut redis, "more");
    assert!(get(&mut redis, "k") == grown.0);
    let rest = text((64 << 20) - grown.0.len(), 10);
    grown.append(&mut redis, &rest);
    let too_long = redis.call(&["APPEND", "k", "1"]);
    assert!(too_long.starts_with("-ERR") && too_long.contains("67108864"), "{too_long}");
    assert!(redis.call(&["GETSET", "k", "short"]) == format!("${}", grown.0), "nothing was added");
    assert_eq!(redis.call(&["GET", "k"]), "$short");
}

#[test]
fn large_values_in_quorum_keyspaces_survive_kill_minus_9() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", "data", "--replication", "quorum", "--write-set", "2"];
    let up = Up::start(scratch.path(), &arguments);
    let mut redis = up.redis();
    let lengths = [1_024, 1_025, 100_000, 8_000_000];
    for length in lengths {
        let (key, value) = (format!("of-{length}"), text(length, length as u64));
        assert_eq!(redis.call(&["SET", &key, "short"]), "+OK");
        assert_eq!(redis.call(&["SET", &key, &value]), "+OK", "{length} bytes");
        assert!(get(&mut redis, &key) == value, "{length} bytes come back otherwise");
        assert_eq!(redis.call(&["STRLEN", &key]), format!(":{length}"));
    }
    assert_eq!(redis.call(&["DEL", "of-1025"]), ":1");
    up.kill();
    let up = Up::start(scratch.path(), &arguments);
    let mut redis = up.redis();
    assert_eq!(redis.call(&["GET", "of-1025"]), "$-1");
    for length in lengths.into_iter().filter(|length| *length != 1_025) {
        let value = text(length, length as u64);
        assert!(get(&mut redis, &format!("of-{length}")) == value, "{length} bytes after kill -9");
    }
}

/// Values begin at multiples of this offset in their segments.
const ALIGN_BYTES: usize = 4_096;

/// The segments of large values of the first node that has any.
fn segments_of_a_node(data: &Path) -> Vec<PathBuf> {
    let nodes = std::fs::read_dir(data).unwrap().map(|node| node.unwrap().path().join("values"));
    let mut values: Vec<PathBuf> = nodes.filter(|values| values.is_dir()).collect();
    values.sort();
    std::fs::read_dir(&values[0]).unwrap().map(|segment| segment.unwrap().path()).collect()
}

/// The offset at which a segment contains the whole value.
fn place(segment: &[u8], value: &str) -> Option<usize> {
    (0..segment.len()).step_by(ALIGN_BYTES).find(|at| segment[*at..].starts_with(value.as_bytes()))
}

#[test]
fn scrub_repairs_damaged_values_that_nobody_reads() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", "data", "--nodes", "3", "--replicas", "3"];
    let up = Up::start(scratch.path(), &arguments);
    let mut redis = up.redis();
    // Later values show that the first is durable, so its damage is not taken for a torn write.
    for number in 0..3 {
        assert_eq!(redis.call(&["SET", &format!("of-{number}"), &text(300_000, 2 * number + 1)]), "+OK");
    }
    up.kill();
    let (data, value) = (scratch.path().join("data"), text(300_000, 1));
    let damaged = segments_of_a_node(&data).into_iter().find_map(|path| {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = place(&bytes, &value)?;
        bytes[at + 200_000] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        place(&bytes, &value).is_none().then_some(path)
    });
    assert!(damaged.is_some(), "the value is on the disk");
    let up = Up::start(scratch.path(), &arguments);
    let deadline = Instant::now() + Duration::from_secs(60);
    // The segment may have been moved or removed since it was listed.
    let is_there = |path: PathBuf| place(&std::fs::read(path).unwrap_or_default(), &value).is_some();
    while !segments_of_a_node(&data).into_iter().any(is_there) {
        assert!(Instant::now() < deadline, "the scrub did not repair the value");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(get(&mut up.redis(), "of-0") == value);
}
