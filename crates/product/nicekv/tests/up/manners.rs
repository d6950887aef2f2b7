//! The output of `up` and of commands; also that data files are private.

use crate::cluster::{Up, nicekv, outcome};
use crate::refusals::refused;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn up_prints_data_directory_connection_and_stop() {
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
fn memory_engine_refuses_a_directory_with_durable_data() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--data-dir", "data", "--nodes", "1", "--replicas", "1"]);
    assert_eq!(up.interrupt(), Some(0));
    refused(scratch.path(), &["--engine", "memory", "--data-dir", "data"], "leave out --engine memory");
    fs::rename(scratch.path().join("data"), scratch.path().join("nicekv-data")).unwrap();
    refused(scratch.path(), &["--engine", "memory"], "nicekv-data holds durable data");
}

/// All files below `directory` that other users may read or write.
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
    // Started twice, because the engine writes tables when the first process stops.
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
    // [`Up::start`] passes `localhost` as the address.
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
fn empty_endpoint_variable_is_ignored() {
    let scratch = tempfile::tempdir().unwrap();
    let get = |endpoint: &str| {
        let mut command = nicekv(scratch.path(), &["get", "color"]);
        command.env("NICEKV_ENDPOINT", endpoint);
        outcome(command)
    };
    for endpoint in ["", " ", ","] {
        let (code, _, error) = get(endpoint);
        assert!(code == Some(2) && error.contains("no cluster is running"), "{endpoint:?}: {error}");
    }
    let (code, _, error) = get("nonsense");
    assert!(
        code == Some(2) && error.contains("NICEKV_ENDPOINT: \"nonsense\" is not an address such as"),
        "{error}"
    );
    let up = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    let (code, _, error) = get(&up.endpoint);
    assert!(code == Some(1) && error.contains("has no value"), "{error}");
}

#[test]
fn wrong_endpoints_are_recognised() {
    let scratch = tempfile::tempdir().unwrap();
    let up = Up::start(scratch.path(), &["--engine", "memory", "--nodes", "1", "--replicas", "1"]);
    let port = up.endpoint.rsplit_once(':').unwrap().1;
    let node = format!("127.20.0.1:{port}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    for (endpoint, parts) in [
        (&up.resp, &["this is a port for Redis clients", "prints as endpoint="][..]),
        (&node, &["it is no metadata service"]),
        (&silent, &["no answer in 5 s"]),
    ] {
        let (code, _, error) = outcome(nicekv(scratch.path(), &["get", "color", "--endpoint", endpoint]));
        assert_eq!((code, error.lines().count()), (Some(2), 1), "{endpoint}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{endpoint}: {parts:?} in {error}");
    }
}

#[test]
fn gateway_without_a_route_says_what_it_waits_for() {
    let name = "gateway_without_a_route_says_what_it_waits_for";
    if !rustix::process::geteuid().is_root() {
        // Written directly, because the test harness captures what the print macros write.
        writeln!(std::io::stderr(), "NOT RUN (needs root): {name}").unwrap();
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (_, file, _) = outcome(nicekv(scratch.path(), &["config", "print", "gateway"]));
    fs::write(scratch.path().join("gateway.toml"), file).unwrap();
    // A network namespace in which only the loopback interface is up.
    let mut process = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_nicekv")])
        .args(["gateway", "--config", "gateway.toml", "--name", "gateway-0"])
        .current_dir(scratch.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut logged = BufReader::new(process.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    let event = logged.find(|line| line.as_ref().is_ok_and(|line| line.contains("metadata-silent")));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(first.contains("gateway-0: no route to 10.10.0.0/16"), "{first}");
    let event = event.expect("it logs what it waits for").unwrap();
    assert!(event.contains("waits for the metadata service") && event.contains("10.20.0.2:7400"), "{event}");
}

#[test]
fn help_of_a_role_shows_its_configuration() {
    let scratch = tempfile::tempdir().unwrap();
    for (role, parts) in [
        ("node", ["[[nodes]]", "busy_poll_us", "#heartbeat_ms = 40", "microseconds"]),
        ("metadata", ["[metadata]", "data_directory", "#heartbeat_ms = 40", "milliseconds"]),
        ("switch", ["[[switches]]", "router_mac", "ports = [", "data_directory"]),
        ("gateway", ["[[gateways]]", "listen = ", "#large_mib_max = 256", "MiB"]),
    ] {
        let (code, help, _) = outcome(nicekv(scratch.path(), &[role, "--help"]));
        assert_eq!(code, Some(0));
        for part in parts {
            assert!(help.contains(part), "{role}: {part} in {help}");
        }
    }
}

#[test]
fn wrong_configuration_names_its_line() {
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
fn status_lists_partitions_only_on_request() {
    let scratch = tempfile::tempdir().unwrap();
    let _up = Up::start(scratch.path(), &["--engine", "memory"]);
    let status = |arguments: &[&str]| {
        let (code, text, error) = outcome(nicekv(scratch.path(), &[&["status"], arguments].concat()));
        assert_eq!((code, error.as_str()), (Some(0), ""));
        text
    };
    let (summary, whole) = (status(&[]), status(&["--partitions"]));
    let listed = |text: &str| text.lines().filter(|line| line.contains(" primary)")).count();
    assert_eq!((listed(&summary), listed(&whole)), (0, 32));
    assert!(
        summary.contains("32 of 32 partitions whole") && summary.contains("3 of 3 nodes live"),
        "{summary}"
    );
    assert!(summary.lines().count() < 50, "{summary}");
}

#[test]
fn usage_errors_are_one_line() {
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
