//! `nicekv config`: printed files are valid, and problems are reported with file, line, key and advice.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn nicekv(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nicekv")).args(arguments).output().unwrap()
}

fn printed(role: &str) -> String {
    let output = nicekv(&["config", "print", role]);
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

/// The files of a cluster of three nodes: printed by `nicekv config print`, then edited for each
/// node and host.
struct Files {
    directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Files {
    fn new() -> Self {
        let mut files = Self { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
        for role in ["metadata", "switch", "gateway"] {
            files.add(role, &printed(role));
        }
        for number in 0..3 {
            files.add(&format!("node-{number}"), &node(number));
        }
        files
    }

    fn add(&mut self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        self.paths.push(path);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.toml"))
    }

    fn check(&self) -> Output {
        let paths: Vec<&str> = self.paths.iter().map(|path| path.to_str().unwrap()).collect();
        nicekv(&[&["config", "check"], &paths[..]].concat())
    }

    /// If `from` in one file is replaced by `to`, `config check` reports exactly `told`.
    #[track_caller]
    fn refused(&self, name: &str, from: &str, to: &str, told: &[&str]) {
        let path = self.path(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let output = self.check();
        std::fs::write(&path, text).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{error}");
        let line = error.lines().find(|line| told.iter().all(|part| line.contains(part)));
        assert!(
            line.is_some_and(|line| line.contains(&format!("{name}.toml"))),
            "{told:?} is not in: {error}"
        );
        assert!(error.lines().all(|line| line.starts_with("nicekv: ")), "{error}");
    }
}

fn node(number: u16) -> String {
    let (port, name) = (number + 1, format!("node-{number}"));
    printed("node")
        .replace("node-0", &name)
        .replace("\nid = 0\n", &format!("\nid = {number}\n"))
        .replace("10.20.1.1", &format!("10.20.1.{port}"))
        .replace("02:00:00:00:01:01", &format!("02:00:00:00:01:0{port}"))
        .replace("\nswitch_port = 1\n", &format!("\nswitch_port = {port}\n"))
}

fn line_of(path: &Path, start: &str) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.starts_with(start)).unwrap() + 1
}

#[test]
fn printed_files_form_a_cluster_and_a_further_node_is_noted() {
    let mut files = Files::new();
    let output = files.check();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told.lines().count(), 6, "{told}");
    assert!(told.lines().all(|line| line.contains(": valid, for a ")), "{told}");
    files.add("node-3", &node(3));
    let switch = printed("switch").replacen("ports = [", "ports = [{ number = 4, device = \"port-4\" },", 1);
    std::fs::write(files.path("switch"), switch).unwrap();
    let told = String::from_utf8(files.check().stdout).unwrap();
    assert!(told.contains("note: ") && told.contains("nicekv node add node-3 --config "), "{told}");
}

#[test]
fn file_for_all_roles_is_valid_and_read_by_every_role() {
    let mut files = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
    files.add("cluster", &printed("cluster"));
    let output = files.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap().contains("valid, for all roles"));
    let path = files.path("cluster");
    let refused = nicekv(&["gateway", "--config", path.to_str().unwrap(), "--name", "nobody"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("no gateway named"));
}

#[test]
fn problems_in_a_file_have_line_key_and_advice() {
    let files = Files::new();
    let at = |name: &str, start: &str| format!("{name}.toml:{}:", line_of(&files.path(name), start));
    let replicas = at("metadata", "#replicas");
    files.refused(
        "metadata",
        "#replicas = 3",
        "replicas = 4",
        &[&replicas, "replicas: 4 replicas need as many nodes", "there are 3"],
    );
    files.refused(
        "node-1",
        "#busy_poll_us",
        "busy_polls_us",
        &["nodes[0].busy_polls_us: unknown key; did you mean `busy_poll_us`?"],
    );
    files.refused(
        "switch",
        "number = 1",
        "number = 2",
        &["ports[2].number", "two ports have the number 2; change one"],
    );
    files.refused("gateway", "127.0.0.1:6379", "6379", &[&at("gateway", "listen"), "localhost:7400"]);
    files.refused("node-2", "cluster_id", "# cluster_id", &["cluster_id: missing: "]);
    files.refused("metadata", "#lease_ms = 150", "lease_ms = 40", &["timing.lease_ms", "heartbeat_ms"]);
    files.refused(
        "gateway",
        "# metrics = \"127.0.0.1:9464\"",
        "metrics = \"127.0.0.1:6379\"",
        &["metrics", "another port"],
    );
}

#[test]
fn contradictions_between_files_are_found() {
    let files = Files::new();
    let at = |name: &str, start: &str| format!("{name}.toml:{}:", line_of(&files.path(name), start));
    let address = at("node-1", "address = \"10.20.1.2\"");
    files.refused(
        "node-1",
        "\"10.20.1.2\"",
        "\"10.20.1.3\"",
        &[&address, "nodes[0].address", "make them equal"],
    );
    files.refused("node-2", "\nid = 2\n", "\nid = 1\n", &["nodes[0].id", "node-2 has 2"]);
    files.refused("gateway", "#port = 7400", "port = 7401", &[&at("gateway", "#port"), "7401 here, 7400 in"]);
    files.refused("switch", "10.30.0.1:7400", "10.30.0.9:7400", &["10.30.0.9:7400 is not a control address"]);
    files.refused("switch", "name = \"switch\"", "name = \"other\"", &["switches[0].name", "add it there"]);
    files.refused("switch", "{ number = 1", "{ number = 9", &["node-0 is connected at port 1"]);
    files.refused("node-0", "#heartbeat_ms = 40", "heartbeat_ms = 50", &["50 here, 40 in"]);
}

#[test]
fn roles_refuse_files_of_other_roles_and_missing_files() {
    let files = Files::new();
    let path = files.path("node-0");
    let output = nicekv(&["switch", "--config", path.to_str().unwrap(), "--name", "switch"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("this file is for a node, not for a switch"), "{error}");
    let output = nicekv(&["config", "check", "/nowhere.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere.toml"));
    assert_eq!(nicekv(&["config", "check"]).status.code(), Some(2));
}

#[test]
fn etcd_certificates_are_read_before_anything_is_bound() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let text: String = printed("metadata")
        .lines()
        .filter(|line| !line.starts_with("data_directory"))
        .map(|line| format!("{line}\n"))
        .collect();
    let text =
        text.replace("10.20.0.2", "127.20.0.2").replace(", \"10.30.0.1:7400\"", "").replace(":7400", ":7419");
    std::fs::write(path("metadata.toml"), text.replace("#port = 7400", "port = 7419")).unwrap();
    std::fs::write(path("no.pem"), "nothing").unwrap();
    let config = path("metadata.toml");
    let metadata = ["metadata", "--config", &config, "--store", "etcd", "--endpoints", "https://127.0.0.1:9"];
    let (missing, broken) = (path("missing.pem"), path("no.pem"));
    for (arguments, told) in [
        (&[][..], "ca_file"),
        (&["--ca-file", &missing], "missing.pem: No such file"),
        (&["--ca-file", &broken], "no.pem: it has no certificate"),
    ] {
        let output = nicekv(&[&metadata[..], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(told), "{told}: {error}");
    }
    let output = nicekv(&[&metadata[..], &["--ca-file", &broken, "--certificate-file", &broken]].concat());
    assert_eq!(output.status.code(), Some(2), "a certificate without its key");
}

/// A printed file whose switches are replaced.
fn with_switches(role: &str, switches: &str) -> String {
    let text = printed(role);
    let begin = text.find("\n[[switches]]").unwrap() + 1;
    let end = text[begin..].find("\n[log]").map_or(text.len(), |end| begin + end);
    format!("{}{switches}{}", &text[..begin], &text[end..])
}

#[test]
fn switch_examples_of_the_documents_are_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide/operations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = examples.filter(|example| example.contains("[[switches]]")).collect();
    let [openflow, first, second, rack] = examples[..] else { panic!("{examples:?}") };
    for example in [openflow, rack] {
        let mut alone = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
        alone.add("switch", &with_switches("switch", example));
        let output = alone.check();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let files = |homes: [&str; 3]| {
        let mut files = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
        let mut metadata = with_switches("metadata", &format!("{first}\n{second}"));
        metadata = metadata.replace("\nswitch_port = 0\n", "\nswitch = \"switch\"\nswitch_port = 0\n");
        for (number, home) in homes.into_iter().enumerate() {
            let name = format!("name = \"node-{number}\"");
            metadata = metadata.replacen(&name, &format!("switch = {home:?}\n{name}"), 1);
        }
        files.add("metadata", &metadata);
        files.add("first", &with_switches("switch", first));
        files.add("second", &with_switches("switch", second));
        files
    };
    let output = files(["switch", "switch-1", "switch-1"]).check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let output = files(["switch-1", "switch-1", "switch-1"]).check();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains("node-0 is connected at port 1"), "{told}");
}

#[test]
fn container_file_copies_and_runs_what_exists() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let file = std::fs::read_to_string(tree.join("deploy/Containerfile")).unwrap();
    let line = |word: &str| {
        file.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{word}"))
    };
    // The file copies what the package's build produces, by its name, and runs a program of that
    // package.
    let build = std::fs::read_to_string(tree.join("deploy/debian/build")).unwrap();
    assert!(line("COPY ").starts_with("nicekv_*.deb ") && build.contains("nicekv_"), "{build}");
    assert!(build.contains("usr/bin/nicekv") && line("ENTRYPOINT ") == "[\"/usr/bin/nicekv\"]");
    assert!(file.contains("deploy/debian/build deploy && podman build -f deploy/Containerfile"));
    // Its command is a valid `nicekv` command: with `--help` it succeeds.
    let command: Vec<String> = serde_json::from_str(line("CMD ")).unwrap();
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    assert_eq!(nicekv(&arguments).status.code(), Some(0), "{command:?}");
}

/// A cluster with all roles on one host.
const ONE_HOST: &str = r#"
cluster_id = "000000000000000000000000c0ffee00"
replicas = 1
[metadata]
address = "127.20.255.1"
control = ["127.20.255.1:7400"]
data_directory = "metadata"
[[nodes]]
name = "node-0"
id = 0
address = "127.20.0.1"
mac = "02:00:00:00:01:01"
switch_port = 1
metrics = "127.0.0.1:9464"
[[switches]]
name = "switch"
control = ["127.20.255.1:7400"]
device = "other"
[[gateways]]
name = "gateway-0"
listen = "127.0.0.1:6379"
[[gateways]]
name = "gateway-1"
listen = "127.0.0.1:6380"
"#;

#[test]
fn bind_conflicts_within_a_file_are_found() {
    let mut files = Files { directory: tempfile::tempdir().unwrap(), paths: Vec::new() };
    files.add("cluster", ONE_HOST);
    let output = files.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let lo = ("device = \"other\"", "device = \"lo\"");
    files.refused(
        "cluster",
        lo.0,
        lo.1,
        &["switches[0].device", "UDP port 7400 of every address of lo", "nicekv up"],
    );
    let same_port = [
        "gateways[1].listen: 127.0.0.1:6379 is already used by gateway-0 (listen)",
        "give gateway-1 another",
    ];
    files.refused("cluster", "127.0.0.1:6380", "127.0.0.1:6379", &same_port);
    files.refused(
        "cluster",
        "127.0.0.1:6380",
        "0.0.0.0:9464",
        &["0.0.0.0:9464 is already used by node-0 (metrics)"],
    );
    let every_network = ["metadata.control", "0.0.0.0 opens it to every network", "without a login"];
    files.refused(
        "cluster",
        "control = [\"127.20.255.1:7400\"]",
        "control = [\"0.0.0.0:7400\"]",
        &every_network,
    );
    files.refused(
        "cluster",
        "address = \"127.20.0.1\"",
        "address = \"0.0.0.0\"",
        &["nodes[0].address", "every network"],
    );
}

#[test]
fn bind_conflicts_between_files_are_found() {
    let files = Files::new();
    let edit = |name: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(files.path(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        std::fs::write(files.path(name), text.replacen(from, to, 1)).unwrap();
    };
    files.refused(
        "gateway",
        "127.0.0.1:6379",
        "10.20.1.2:7400",
        &["10.20.1.2:7400 is already used by node-1 (address)"],
    );
    // A gateway on a node's host; both would serve metrics on the same port.
    edit("gateway", "# metrics = \"127.0.0.1:9464\"", "metrics = \"10.20.1.1:9464\"");
    let told = [
        "nodes[0].metrics: 10.20.1.1:9464 is already used by gateway-0 (metrics) in ",
        "give node-0 another",
    ];
    files.refused("node-0", "# metrics", "metrics", &told);
    // On separate hosts, both may use the same loopback address.
    edit("gateway", "10.20.1.1:9464", "127.0.0.1:9464");
    edit("node-0", "# metrics = \"10.20.1.1:9464\"", "metrics = \"127.0.0.1:9464\"");
    let output = files.check();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
