//! What people are told, and what others may see.

use crate::cluster::{Up, nicekv, outcome};
use crate::refusals::refused;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[test]
fn up_says_where_the_data_are_how_to_connect_and_when_it_has_stopped() {
    let scratch = tempfile::tempdir().unwrap();
    let mut up = Up::start(scratch.path(), &["--data-dir", "data", "--nodes", "1", "--replicas", "1"]);
    let data = scratch.path().join("data");
    let data = data.to_str().unwrap();
    assert!(up.said[0].contains(&format!("data in {data}")), "{:?}", up.said);
    let port = up.resp.rsplit_once(':').unwrap().1.to_owned();
    let connect = up.hear("connect");
    assert!(connect.contains(&format!("redis-cli -h 127.0.0.1 -p {port}")), "{connect}");
    let stopped = up.interrupt_and_hear();
    assert!(stopped.contains(data), "{stopped}");
}

#[test]
fn durable_data_are_not_hidden_behind_the_memory_engine() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data", "--nodes", "1", "--replicas", "1"]);
    assert_eq!(up.interrupt(), Some(0));
    refused(scratch.path(), &["--engine", "memory", "--data-dir", "data"], "leave out --engine memory");
    fs::rename(scratch.path().join("data"), scratch.path().join("nicekv-data")).unwrap();
    refused(scratch.path(), &["--engine", "memory"], "nicekv-data holds durable data");
}

/// Every file below that somebody else may read or write.
fn open_to_others(directory: &Path) -> Vec<String> {
    let metadata = fs::metadata(directory).unwrap();
    let mut found = Vec::new();
    if metadata.mode() & 0o077 != 0 {
        found.push(format!("{} {:o}", directory.display(), metadata.mode()));
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(directory).unwrap() {
            found.extend(open_to_others(&entry.unwrap().path()));
        }
    }
    found
}

#[test]
fn data_are_private() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    // Twice: the engine's tables are written when the first one stops.
    for _ in 0..2 {
        let up = Up::start(scratch.path(), &["--data-dir", "data"]);
        assert_eq!(up.redis().call(&["SET", "color", "blue"]), "+OK");
        assert_eq!(open_to_others(&data), Vec::<String>::new());
        assert_eq!(up.interrupt(), Some(0));
        assert_eq!(open_to_others(&data), Vec::<String>::new());
    }
}

#[test]
fn localhost_is_an_address() {
    let scratch = tempfile::tempdir().unwrap();
    // Which is where it is told to listen.
    let up = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    assert!(up.resp.starts_with("127.0.0.1:"), "{}", up.resp);
    for (endpoint, part) in
        [("localhost:1", "127.0.0.1:1"), ("localhost", "localhost:7400"), ("", "localhost:7400")]
    {
        let (code, _, error) = outcome(nicekv(scratch.path(), &["get", "color", "--endpoint", endpoint]));
        assert!(code == Some(2) && error.contains(part), "{endpoint:?}: {code:?} {error}");
    }
}

#[test]
fn the_help_of_the_roles_shows_the_configuration() {
    let scratch = tempfile::tempdir().unwrap();
    for role in ["node", "metadata", "switch", "gateway"] {
        let (code, help, _) = outcome(nicekv(scratch.path(), &[role, "--help"]));
        assert_eq!(code, Some(0));
        for part in ["[[nodes]]", "data_directory", "heartbeat_ms = 40", "milliseconds", "linger_us"] {
            assert!(help.contains(part), "{role}: {part} in {help}");
        }
    }
}

#[test]
fn a_configuration_that_is_wrong_names_its_line() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(
        scratch.path().join("cluster.toml"),
        "cluster_id = \"c0\"\nport = 7400\nreplicas = \"three\"\n",
    )
    .unwrap();
    for role in [&["node", "--name", "node-0"][..], &["metadata"]] {
        let (code, _, error) =
            outcome(nicekv(scratch.path(), &[role, &["--config", "cluster.toml"]].concat()));
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains("cluster.toml:3: replicas: "), "{error}");
    }
}

#[test]
fn status_is_a_summary_unless_partitions_are_asked_for() {
    let scratch = tempfile::tempdir().unwrap();
    let _up = Up::start(scratch.path(), &["--engine", "memory"]);
    let status = |arguments: &[&str]| {
        let (code, text, error) = outcome(nicekv(scratch.path(), &[&["status"], arguments].concat()));
        assert_eq!((code, error.as_str()), (Some(0), ""));
        text
    };
    let (summary, whole) = (status(&[]), status(&["--partitions"]));
    let listed = |text: &str| text.lines().filter(|line| line.starts_with("partition ")).count();
    assert_eq!((listed(&summary), listed(&whole)), (0, 32));
    assert!(
        summary.contains("32 of 32 partitions whole") && summary.contains("3 of 3 nodes live"),
        "{summary}"
    );
    assert!(summary.lines().count() < 25, "{summary}");
}

#[test]
fn wrong_usage_is_told_in_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    for (arguments, parts) in [
        (&["up", "--nodes", "0"][..], &["--nodes", "1..=64", "nicekv up --help"][..]),
        (&["up", "--gateway-threads", "0"], &["--gateway-threads", "1 to 64", "nicekv up --help"]),
        (&["up", "--gateway-value-mib", "513"], &["--gateway-value-mib", "1 to 512 MiB", "nicekv up --help"]),
        (&["put"], &["<KEY>", "nicekv put --help"]),
        (&["get", "color", "--endpont", "x"], &["--endpont", "--endpoint", "nicekv get --help"]),
        (&["node", "--name", "node-0"], &["--config", "nicekv node --help"]),
        (&["statsu"], &["statsu", "status", "nicekv --help"]),
    ] {
        let (code, output, error) = outcome(nicekv(scratch.path(), arguments));
        assert_eq!((code, output.as_str(), error.lines().count()), (Some(2), "", 1), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}
