//! `up` with an existing data directory uses the nodes and keyspaces that are stored in it.

use crate::cluster::{Up, nicekv, outcome};
use crate::refusals::refused;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Partitions have to move, possibly on a busy machine.
const MOVED_TIMEOUT: Duration = Duration::from_secs(120);

fn status(scratch: &Path, up: &Up) -> Value {
    let (code, text, error) = outcome(nicekv(scratch, &["status", "--json", "--endpoint", &up.endpoint]));
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str(&text).unwrap()
}

fn keyspaces(status: &Value) -> Vec<(u64, String, String, u64)> {
    let keyspaces = status["keyspaces"].as_array().unwrap().iter();
    let told = keyspaces.map(|keyspace| {
        let text = |field: &str| keyspace[field].as_str().unwrap().to_owned();
        (
            keyspace["id"].as_u64().unwrap(),
            text("name"),
            text("replication"),
            keyspace["replicas"].as_u64().unwrap(),
        )
    });
    told.collect()
}

#[test]
fn up_uses_keyspaces_and_nodes_of_its_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let first = [
        "--data-dir",
        "data",
        "--nodes",
        "2",
        "--replicas",
        "2",
        "--replication",
        "chain",
        "--keyspace",
        "orders=range,chain",
        "--keyspace",
        "carts=replicas=1",
    ];
    let up = Up::start(scratch.path(), &first);
    let (code, _, error) =
        outcome(nicekv(scratch.path(), &["keyspace", "create", "later", "--endpoint", &up.endpoint]));
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
    let before = keyspaces(&status(scratch.path(), &up));
    assert_eq!(before.len(), 4, "{before:?}");
    assert_eq!(up.interrupt(), Some(0));

    // If an option contradicts the directory, the error names both values.
    let carts = "keyspace carts";
    for (options, parts) in [
        (&["--nodes", "1"][..], &["--nodes 1 contradicts", "2 nodes", "nicekv node remove"][..]),
        (&["--replicas", "1"], &["--replicas 1 contradicts", "2 replicas"]),
        (&["--replication", "multicast"], &["--replication multicast contradicts", "replication chain"]),
        (&["--keyspace", "carts=replicas=2"], &["--keyspace carts=replicas=2 contradicts", carts]),
    ] {
        for part in parts {
            refused(scratch.path(), &[&["--data-dir", "data"], options].concat(), part);
        }
    }
    // Options need not be repeated; the same ones may be, and a new keyspace may be added.
    for options in [&[][..], &first[2..], &["--keyspace", "carts=replicas=1", "--keyspace", "new"]] {
        let up = Up::start(scratch.path(), &[&["--data-dir", "data"], options].concat());
        let status = status(scratch.path(), &up);
        let now = keyspaces(&status);
        assert!(before.iter().all(|keyspace| now.contains(keyspace)), "{options:?}: {now:?}");
        assert_eq!(now.len() > before.len(), options.contains(&"new"), "{now:?}");
        assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{options:?}");
        assert_eq!(up.redis().call(&["GET", "color"]), "$blue");
        assert_eq!(up.interrupt(), Some(0));
    }
}

#[test]
fn up_adds_nodes_beyond_those_of_its_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
    assert_eq!(up.interrupt(), Some(0));

    let mut up = Up::start(scratch.path(), &["--data-dir", "data", "--nodes", "5"]);
    up.hear("added node-5");
    let until = Instant::now() + MOVED_TIMEOUT;
    let held = |status: &Value| -> Vec<u64> {
        status["nodes"].as_array().unwrap().iter().map(|node| node["members"].as_u64().unwrap()).collect()
    };
    loop {
        let status = status(scratch.path(), &up);
        let held = held(&status);
        if held.len() == 5 && held.iter().all(|held| *held > 0) && status["moves"] == 0 {
            break;
        }
        assert!(Instant::now() < until, "partitions do not move: {held:?}");
    }
    assert_eq!(up.redis().call(&["GET", "color"]), "$blue");
    assert_eq!(up.interrupt(), Some(0));

    let up = Up::start(scratch.path(), &["--data-dir", "data"]);
    assert_eq!(
        held(&status(scratch.path(), &up)).len(),
        5,
        "without options it starts all nodes of the directory"
    );
    assert_eq!(up.redis().call(&["GET", "color"]), "$blue");
}
