//! `nicekv backup` while clients write, then the loss of all data and `nicekv restore`; also
//! invalid backup files.

use crate::cluster::{Redis, Up, nicekv, outcome};
use crate::large::text;
use crate::refusals::one_line;
use nicekv_proto::placement::{key_digest, partitions_for};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: &[&str] = &["--nodes", "3", "--replicas", "3"];
const WRITERS: usize = 4;
const KEPT: usize = 3000;

/// A key of this name, and a second key of the same partition.
fn pair(name: &str) -> (String, String) {
    let bits = partitions_for(3).ilog2();
    let partition = |key: &str| key_digest(key.as_bytes()).match_value() >> (128 - bits);
    let second = (0..).map(|number| format!("{name}-second-{number}"));
    let second = second.into_iter().find(|key| partition(key) == partition(name)).unwrap();
    (name.to_owned(), second)
}

/// Repeatedly writes to the first key of a pair and then to the second; both get the number of the
/// round.
fn write_pairs(mut redis: Redis, writer: usize, stopped: &AtomicBool, rounds: &AtomicU64) {
    let (first, second) = pair(&format!("pair-{writer}"));
    for round in 1u64.. {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        for key in [&first, &second] {
            assert_eq!(redis.call(&["SET", key, &round.to_string()]), "+OK");
        }
        rounds.store(round, Ordering::Release);
        // Also writes keys all over the keyspace, both before and behind the backup's position.
        assert_eq!(redis.call(&["SET", &format!("moving-{}", round % 5000), "x"]), "+OK");
    }
}

fn command(scratch: &Path, arguments: &[&str]) -> String {
    let (code, output, error) = outcome(nicekv(scratch, arguments));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}: {output}");
    output
}

fn number(reply: &str) -> u64 {
    reply.strip_prefix('$').and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{reply}"))
}

#[test]
fn backup_under_load_restores_everything() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &[&["--data-dir", "data"], NODES].concat());
    let mut redis = up.redis();
    for kept in 0..KEPT {
        assert_eq!(redis.call(&["SET", &format!("kept-{kept}"), &"v".repeat(kept % 900)]), "+OK");
    }
    assert_eq!(redis.call(&["SET", "short", "x", "PX", "1"]), "+OK");
    assert_eq!(redis.call(&["SET", "long", "x", "PXAT", "4102444800000"]), "+OK");
    assert_eq!(redis.call(&["DEL", "kept-7"]), ":1");
    let (stopped, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; WRITERS]);
    let before = std::thread::scope(|scope| {
        for (writer, rounds) in rounds.iter().enumerate() {
            let (redis, stopped) = (up.redis(), &stopped);
            scope.spawn(move || write_pairs(redis, writer, stopped, rounds));
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while rounds.iter().any(|rounds| rounds.load(Ordering::Acquire) < 20) {
            assert!(Instant::now() < deadline, "the writers are stuck");
            std::thread::sleep(Duration::from_millis(5));
        }
        let before: Vec<u64> = rounds.iter().map(|rounds| rounds.load(Ordering::Acquire)).collect();
        let told = command(scratch.path(), &["backup", "file", "--endpoint", &up.endpoint]);
        stopped.store(true, Ordering::Relaxed);
        assert!(told.contains(" partitions, ") && told.ends_with("in file\n"), "{told}");
        before
    });
    let (code, _, error) = outcome(nicekv(scratch.path(), &["backup", "file", "--endpoint", &up.endpoint]));
    assert!(code == Some(2) && error.contains("already exists"), "{error}");
    up.kill();
    std::fs::remove_dir_all(scratch.path().join("data")).unwrap();

    // The new cluster has other numbers of nodes and partitions.
    let up = Up::start(scratch.path(), &["--data-dir", "data", "--nodes", "1", "--replicas", "1"]);
    assert!(command(scratch.path(), &["restore", "file", "--dry-run"]).starts_with("valid: cluster "));
    let told = command(scratch.path(), &["restore", "file", "--endpoint", &up.endpoint]);
    assert!(told.starts_with("restored "), "{told}");
    let mut redis = up.redis();
    for kept in (0..KEPT).filter(|kept| *kept != 7) {
        assert_eq!(redis.call(&["GET", &format!("kept-{kept}")]), format!("${}", "v".repeat(kept % 900)));
    }
    assert_eq!([redis.call(&["GET", "kept-7"]), redis.call(&["GET", "short"])], ["$-1", "$-1"]);
    assert_eq!(redis.call(&["PEXPIRETIME", "long"]), ":4102444800000");
    for (writer, before) in before.into_iter().enumerate() {
        let (first, second) = pair(&format!("pair-{writer}"));
        let (first, second) = (number(&redis.call(&["GET", &first])), number(&redis.call(&["GET", &second])));
        assert!(
            first >= before && second >= before,
            "{first} and {second}, {before} were acknowledged before"
        );
        // If a later write is in the backup, so are all writes before it.
        assert!(first >= second && first <= second + 1, "writer {writer}: {first} and {second}");
    }
}

/// Large values are overwritten and deleted while the backup reads them.
#[test]
fn large_values_are_backed_up_under_load_and_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &[&["--data-dir", "data"], NODES].concat());
    let mut redis = up.redis();
    let lengths = [1_024, 1_025, 57_344, 57_345, 1_000_000, 5_000_000];
    for length in lengths {
        assert_eq!(redis.call(&["SET", &format!("of-{length}"), &text(length, 1)]), "+OK");
    }
    assert_eq!(redis.call(&["SET", "short-lived", &text(5_000, 2), "PX", "1"]), "+OK");
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut redis, stopped) = (up.redis(), &stopped);
        scope.spawn(move || {
            for round in 1.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let bytes = if round % 2 == 0 { 20_000 } else { 70_000 };
                let (key, value) = (format!("moving-{}", round % 20), text(bytes, round));
                assert_eq!(redis.call(&["SET", &key, &value]), "+OK");
            }
        });
        let told = command(scratch.path(), &["backup", "file", "--endpoint", &up.endpoint]);
        stopped.store(true, Ordering::Relaxed);
        assert!(told.contains(" entries, "), "{told}");
    });
    up.kill();
    std::fs::remove_dir_all(scratch.path().join("data")).unwrap();
    assert!(std::fs::metadata(scratch.path().join("file")).unwrap().len() > 6_100_000);
    damage_and_check(scratch.path());
    for arguments in
        [&["--nodes", "1", "--replicas", "1"][..], &["--replication", "quorum", "--write-set", "2"]]
    {
        let up = Up::start(scratch.path(), &[&["--engine", "memory"], arguments].concat());
        command(scratch.path(), &["restore", "file", "--endpoint", &up.endpoint]);
        let mut redis = up.redis();
        for length in lengths {
            let found = redis.call(&["GET", &format!("of-{length}")]);
            assert!(found == format!("${}", text(length, 1)), "{length} bytes, {arguments:?}");
        }
        assert_eq!(redis.call(&["GET", "short-lived"]), "$-1");
        let found = redis.call(&["GET", "moving-1"]);
        assert!(found == "$-1" || found.len() == 70_001, "{} bytes", found.len());
    }
}

/// If a bit of a large value in the file flips, restore fails before it puts anything.
fn damage_and_check(scratch: &Path) {
    let path = scratch.join("file");
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    one_line(nicekv(scratch, &["restore", "file", "--dry-run"]), "damaged");
    std::fs::write(&path, whole).unwrap();
}

#[test]
fn damaged_backups_and_nonempty_clusters_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
    command(scratch.path(), &["backup", "file", "--endpoint", &up.endpoint]);
    let path = scratch.path().join("file");
    let whole = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], why: &str| {
        std::fs::write(&path, bytes).unwrap();
        one_line(nicekv(scratch.path(), &["restore", "file", "--endpoint", &up.endpoint]), why);
    };
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    refused(&damaged, "damaged");
    refused(&whole[..whole.len() - 1], "the file is truncated");
    let of_format = |format: &str| [format.as_bytes(), &whole[16..]].concat();
    refused(
        &of_format("nicekv-backup 5\n"),
        "backup format 5 is not supported (this release reads format 4)",
    );
    refused(
        &of_format("nicekv-backup 3\n"),
        "backup format 3 is not supported (this release reads format 4)",
    );
    refused(b"color=blue", "not a nicekv backup");
    one_line(nicekv(scratch.path(), &["restore", "nowhere", "--endpoint", &up.endpoint]), "nowhere");
    std::fs::write(&path, &whole).unwrap();
    // The nodes count new keys within a second or two.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !command(scratch.path(), &["status", "--endpoint", &up.endpoint]).contains("stored 1 keys") {
        assert!(Instant::now() < deadline, "status does not count the key");
        std::thread::sleep(Duration::from_millis(50));
    }
    refused(&whole, "has 1 keys");
    assert_eq!(up.redis().call(&["SET", "color", "red"]), "+OK");
    command(scratch.path(), &["restore", "file", "--merge", "--endpoint", &up.endpoint]);
    assert_eq!(up.redis().call(&["GET", "color"]), "$blue");
    let other = Up::start(
        scratch.path(),
        &[
            "--engine",
            "memory",
            "--nodes",
            "1",
            "--replicas",
            "1",
            "--replication",
            "quorum",
            "--write-set",
            "1",
        ],
    );
    one_line(nicekv(scratch.path(), &["backup", "other", "--endpoint", &other.endpoint]), "quorum keyspace");
}

/// The output of `keyspace list` for each keyspace except the default one, without stored data and
/// rings.
fn settings(scratch: &Path, up: &Up) -> Vec<(String, serde_json::Value)> {
    let text = command(scratch, &["keyspace", "list", "--json", "--endpoint", &up.endpoint]);
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |keyspace: &serde_json::Value| {
        let kept = ["replication", "write_set", "replicas", "partitions", "balancing"];
        let kept = kept.map(|name| keyspace[name].clone());
        (keyspace["name"].as_str().unwrap().to_owned(), serde_json::Value::from(kept.to_vec()))
    };
    let mut all: Vec<_> = listed["keyspaces"].as_array().unwrap().iter().map(of).collect();
    all.retain(|(name, _)| name != "default");
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn restore_creates_missing_keyspaces_and_reports_all_problems() {
    const CREATED: [&[&str]; 4] = [
        &[
            "orders",
            "--replication",
            "chain",
            "--partitioning",
            "range",
            "--replicas",
            "2",
            "--partitions",
            "16",
        ],
        &["carts", "--balancing", "migrate", "--partition-keys", "100000", "--replicas", "2"],
        &["hot", "--balancing", "hot"],
        &["plain", "--partitions", "8"],
    ];
    let scratch = tempfile::tempdir().unwrap();
    let run = |up: &Up, arguments: &[&str]| {
        command(scratch.path(), &[arguments, &["--endpoint", &up.endpoint]].concat())
    };
    let put = |up: &Up, name: &str| run(up, &["put", "--keyspace", name, "key", &format!("of {name}")]);
    let get = |up: &Up, name: &str| run(up, &["get", "--keyspace", name, "key"]);
    let up = Up::start(scratch.path(), &[&["--engine", "memory"], NODES].concat());
    for arguments in CREATED {
        run(&up, &[&["keyspace", "create"], arguments].concat());
        put(&up, arguments[0]);
    }
    run(&up, &["backup", "file"]);
    let shown = run(&up, &["restore", "file", "--dry-run"]);
    assert!(
        shown.contains("keyspace orders=replication=chain,replicas=2,partitioning=range,partitions=16"),
        "{shown}"
    );
    let before = settings(scratch.path(), &up);
    up.kill();

    let up = Up::start(scratch.path(), &[&["--engine", "memory"], NODES].concat());
    let told = run(&up, &["restore", "file"]);
    assert!(told.contains("created: orders=") && told.contains("restored 4 keys"), "{told}");
    assert_eq!(settings(scratch.path(), &up), before);
    for arguments in CREATED {
        assert_eq!(get(&up, arguments[0]).trim_end(), format!("of {}", arguments[0]));
    }
    up.kill();

    // Two keyspaces do not fit on one node: the error names both, and nothing is changed.
    let one = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    let refused = |more: &[&str]| {
        let arguments = [&["restore", "file", "--endpoint", &one.endpoint], more].concat();
        let (code, output, error) = outcome(nicekv(scratch.path(), &arguments));
        assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1), "{error}");
        error
    };
    let error = refused(&["--keyspace", "nobody=chain", "--keyspace", "plain=replicas=1"]);
    for part in [
        "4 problems",
        "--keyspace nobody",
        "\"orders\": 2 replicas",
        "\"carts\": 2 replicas",
        "\"hot\": 3 replicas",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(settings(scratch.path(), &one).is_empty());
    let changes = [
        "orders=replicas=1",
        "carts=quorum,write-set=1,replicas=1,balancing=none",
        "hot=replicas=1",
        "plain=replicas=1",
    ];
    let changes: Vec<&str> = changes.iter().flat_map(|change| ["--keyspace", *change]).collect();
    run(&one, &[&["restore", "file"], &changes[..]].concat());
    let after = settings(scratch.path(), &one);
    assert_eq!(after[0], ("carts".into(), serde_json::json!(["quorum", 1, 1, before[0].1[3], null])));
    assert_eq!(get(&one, "carts").trim_end(), "of carts");
    assert_eq!(get(&one, "orders").trim_end(), "of orders");
}
