//! A cluster deployed as docs/guide/operations.md describes: from the files that `nicekv config
//! print` prints and the systemd units of the source tree, without `nicekv lab`. It has three
//! storage hosts around a switch host, the metadata service on three hosts with etcd, and a
//! gateway. Under load, a node is added, one is replaced, one is removed, and the leader of the
//! metadata service is killed. After each step, `status`, `explain`, `top` and the metrics are
//! checked.

mod files;
mod guide;
mod hosts;
mod load;
mod parts;
mod units;

use files::{edited, metadata_file, node_file, switch_file};
use hosts::{Host, Network, SWITCH};
use load::Load;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Running, Unit, give, start};

/// Timeout for everything that the test waits for.
const TIMEOUT: Duration = Duration::from_secs(40);
const ENDPOINTS: &str = "10.20.0.2:7400,10.20.0.3:7400,10.20.0.4:7400";
const ROLES: [&str; 4] = ["metadata", "node", "switch", "gateway"];
const fn host(name: &'static str, address: &'static str, mac: &'static str, port: u16) -> Host {
    Host { name, address, mac, port }
}
const METADATA: [Host; 3] = [
    host("metadata", "10.20.0.2", "02:00:00:00:00:02", 0),
    host("metadata-1", "10.20.0.3", "02:00:00:00:00:03", 8),
    host("metadata-2", "10.20.0.4", "02:00:00:00:00:04", 9),
];
const NODES: [Host; 5] = [
    host("node-0", "10.20.1.1", "02:00:00:00:01:01", 1),
    host("node-1", "10.20.1.2", "02:00:00:00:01:02", 2),
    host("node-2", "10.20.1.3", "02:00:00:00:01:03", 3),
    host("node-3", "10.20.1.4", "02:00:00:00:01:04", 4),
    host("node-4", "10.20.1.5", "02:00:00:00:01:05", 5),
];
const CLIENT: Host = host("gateway-0", "10.20.2.1", "02:00:00:00:02:01", 10);

use nicekv_testkit::{needs, not_run};

#[test]
fn units_are_valid_and_restricted() {
    if !needs(&["systemd-analyze"], "units_are_valid_and_restricted") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for role in ROLES {
        let unit = Unit::of(role);
        let text = fs::read_to_string(&unit.path).unwrap();
        // `systemd-analyze` checks that the program exists; it is not installed here.
        let text = text.replace("/usr/bin/nicekv", env!("CARGO_BIN_EXE_nicekv"));
        let path = directory.path().join(format!("nicekv-{role}@x.service"));
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no", path]).output().unwrap();
        assert!(verified.status.success() && verified.stderr.is_empty(), "{role}: {verified:?}");
        // On a scale to 100: systemd calls up to 20 "ok"; a unit without restrictions has 96.
        let threshold = if role == "switch" { "--threshold=35" } else { "--threshold=20" };
        let judged =
            Command::new("systemd-analyze").args(["security", "--offline=yes", threshold, path]).output();
        let judged = judged.unwrap();
        assert!(judged.status.success(), "{role}: {}", String::from_utf8_lossy(&judged.stdout));
        assert_eq!(unit.value("AmbientCapabilities").is_some(), role == "switch", "{role}");
    }
}

/// An operator's cluster: hosts, files, and running roles.
struct Deployment {
    network: Arc<Network>,
    directory: tempfile::TempDir,
    running: Vec<Running>,
    etcd: Vec<Child>,
}

impl Drop for Deployment {
    fn drop(&mut self) {
        for member in &mut self.etcd {
            _ = member.kill();
            _ = member.wait();
        }
    }
}

impl Deployment {
    fn new() -> Self {
        let mut network = Network::new();
        for host in METADATA.iter().chain(&NODES).chain([&CLIENT]) {
            network.add(*host);
        }
        for (number, instance) in METADATA.iter().enumerate() {
            network.manage(number, instance.name);
        }
        let directory = tempfile::tempdir().unwrap();
        // Roles that run as ordinary users read their files there.
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let deployment =
            Self { network: Arc::new(network), directory, running: Vec::new(), etcd: Vec::new() };
        for Host { name, .. } in &METADATA {
            deployment.write(name, "metadata", &metadata_file());
        }
        deployment.write(SWITCH, "switch", &switch_file());
        deployment.write(CLIENT.name, "gateway", &edited("gateway", &[("# metrics", "metrics")]));
        for node in &NODES {
            deployment.write(node.name, "node", &node_file(node));
        }
        deployment
    }

    /// The directory that stands for /etc/nicekv on a host.
    fn host(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, host: &str, role: &str) -> PathBuf {
        self.host(host).join(format!("{role}.toml"))
    }

    fn write(&self, host: &str, role: &str, text: &str) {
        give(&self.host(host));
        let data = self.host(host).join("data");
        give(&data);
        assert!(text.contains("#format = \"line\""), "by default {role} logs text lines");
        let text = text.replace("#format = \"line\"", "format = \"json\"");
        fs::write(self.file(host, role), text.replace("/var/lib/nicekv", data.to_str().unwrap())).unwrap();
        if role == "switch" {
            // The default data directory would be shared by all hosts on this machine, so it is set
            // explicitly.
            let text = fs::read_to_string(self.file(host, role)).unwrap();
            fs::write(self.file(host, role), text.replace("# data_directory", "data_directory")).unwrap();
        }
    }

    fn start(&mut self, role: &str, name: &str, host: &str) {
        self.running.push(start(&self.network, role, name, host, &self.host(host)));
    }

    fn take(&mut self, name: &str) -> Running {
        let place = self.running.iter().position(|role| role.name == name).expect("it runs");
        self.running.remove(place)
    }

    fn start_etcd(&mut self) {
        let url = |host: &Host, port: u16| format!("http://{}:{port}", host.address);
        let members: Vec<_> =
            METADATA.iter().map(|host| format!("{}={}", host.name, url(host, 2380))).collect();
        for member in &METADATA {
            let (clients, peers) = (url(member, 2379), url(member, 2380));
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.network.name(member.name), "etcd", "--name", member.name]);
            command.args(["--initial-cluster", &members.join(","), "--heartbeat-interval", "50"]);
            command.args(["--election-timeout", "500", "--listen-peer-urls", &peers]);
            command.args(["--initial-advertise-peer-urls", &peers, "--listen-client-urls", &clients]);
            command.args(["--advertise-client-urls", &clients, "--data-dir"]);
            command.arg(self.host(member.name).join("etcd"));
            let log = fs::File::create(self.host(member.name).join("etcd.log")).unwrap();
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            self.etcd.push(command.spawn().unwrap());
        }
    }

    /// Runs an operator's command on the client's host.
    fn nicekv(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.network.name(CLIENT.name), env!("CARGO_BIN_EXE_nicekv")]);
        command.args(arguments).env("NICEKV_ENDPOINT", ENDPOINTS).output().unwrap()
    }

    #[track_caller]
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.nicekv(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Option<Value> {
        serde_json::from_slice(&self.nicekv(&["status", "--json"]).stdout).ok()
    }

    #[track_caller]
    fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let status = self.status();
            match status {
                Some(status) if holds(&status) => return status,
                status if Instant::now() > deadline => {
                    let logs: String = self.running.iter().map(Running::log).collect();
                    panic!("not so: {what}: {status:?}\n{logs}");
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Reads a page of metrics from the client's host, without `curl`.
    fn metrics(&self, address: &str) -> String {
        self.network.inside(CLIENT.name, || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n").unwrap();
            std::io::read_to_string(stream).unwrap()
        })
    }

    fn metric(&self, address: &str, name: &str) -> Option<f64> {
        let page = self.metrics(address);
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Waits until status, explain, top and the metrics report a healthy cluster of this many
    /// nodes. Primaries may still move after that.
    #[track_caller]
    fn assert_well(&self, nodes: usize, leader: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while let Err(told) = self.is_well(nodes, leader) {
            if Instant::now() > deadline {
                let logs: String = self.running.iter().map(Running::log).collect();
                panic!("not healthy with {nodes} nodes: {told}\n{logs}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The output of the first command that does not report a healthy cluster.
    fn is_well(&self, nodes: usize, leader: &str) -> Result<(), String> {
        let whole = format!("health {nodes} of {nodes} nodes live, 64 of 64 partitions whole");
        for (command, expected, wrong) in [
            (&["status"][..], whole.as_str(), "WRONG"),
            (&["explain", "key-1"], "agree", "DIFFERENT"),
            (&["top", "--once"], "node-0", "WRONG"),
        ] {
            let output = self.nicekv(command);
            let told = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() || !told.contains(expected) || told.contains(wrong) {
                return Err(format!("{command:?}: {output:?}"));
            }
        }
        let live = self.metric(leader, "nicekv_metadata_nodes{state=\"live\"}");
        let ready = self.metric(leader, "nicekv_metadata_ready");
        match (live, ready) {
            (Some(live), Some(1.0)) if live == nodes as f64 => Ok(()),
            _ => Err(self.metrics(leader)),
        }
    }
}

fn live(status: &Value) -> usize {
    status["nodes"].as_array().unwrap().iter().filter(|node| node["state"] == "live").count()
}

fn leader(status: &Value) -> &Host {
    let name = status["control_plane"]["instance"].as_str().unwrap();
    METADATA.iter().find(|host| host.name == name).unwrap()
}

fn metrics_of(host: &Host) -> String {
    format!("{}:9464", host.address)
}

#[test]
fn deployed_cluster_is_operated_under_load() {
    let name = "deployed_cluster_is_operated_under_load";
    if !rustix::process::geteuid().is_root() {
        return not_run("root", name);
    }
    if !needs(&["ip", "ethtool", "sysctl", "setpriv", "etcd"], name) {
        return;
    }
    let mut deployment = Deployment::new();
    check_files(&deployment);
    deployment.start_etcd();
    for instance in METADATA {
        deployment.start("metadata", instance.name, instance.name);
    }
    deployment.start("switch", "switch", SWITCH);
    for node in &NODES[..3] {
        deployment.start("node", node.name, node.name);
    }
    let status = deployment.wait_for("ready", |status| status["ready"] == true);
    deployment.start("gateway", CLIENT.name, CLIENT.name);
    deployment.assert_well(3, &metrics_of(leader(&status)));
    let network = deployment.network.clone();
    Load::during(&network, |load| operate(&mut deployment, load));
    for role in deployment.running.drain(..) {
        role.stop();
    }
    read_logs(&deployment);
}

/// Checks the roles' logs: every line is one event; together the events show what happened, and
/// none is about a request.
fn read_logs(deployment: &Deployment) {
    let of = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(deployment.host(name).join(format!("{name}.log"))).unwrap();
        let event =
            |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
        let events: Vec<Value> = text.lines().map(event).collect();
        let is_whole =
            |event: &Value| ["time", "level", "event"].iter().all(|field| event[field].is_string());
        assert!(events.iter().all(is_whole), "{name}: {text}");
        events
    };
    let metadata: Vec<Value> = METADATA.iter().flat_map(|host| of(host.name)).collect();
    let has = |events: &[Value], name: &str, field: &str, value: &str| {
        events.iter().any(|event| event["event"] == name && event[field] == value)
    };
    for (name, node) in [
        ("node-added", "node-3"),
        ("node-silent", "node-1"),
        ("node-removed", "node-1"),
        ("node-removed", "node-2"),
    ] {
        assert!(has(&metadata, name, "node", node), "no {name} of {node}: {metadata:#?}");
    }
    let terms: BTreeSet<u64> = metadata
        .iter()
        .filter(|event| event["event"] == "leads")
        .filter_map(|event| event["term"].as_u64())
        .collect();
    assert!(terms.len() > 1, "two instances have led: {terms:?}");
    let nodes: Vec<(&str, Vec<Value>)> = NODES.iter().map(|node| (node.name, of(node.name))).collect();
    for (name, events) in &nodes {
        assert!(has(events, "partition", "standing", "consistent"), "{name}: {events:#?}");
        assert!(events.iter().all(|event| event["event"] == "said" || event["name"] == *name), "{events:#?}");
    }
    // Partitions whose primary died have a new primary in a later epoch.
    let led = |events: &[Value]| -> BTreeMap<u64, u64> {
        let led = events.iter().filter(|event| event["event"] == "partition" && event["leads"] == true);
        led.map(|event| (event["partition"].as_u64().unwrap(), event["epoch"].as_u64().unwrap())).collect()
    };
    let by_the_dead = led(&nodes[1].1);
    assert!(!by_the_dead.is_empty());
    for (partition, epoch) in by_the_dead {
        let is_later = |(_, events): &(&str, Vec<Value>)| {
            led(events).get(&partition).is_some_and(|later| *later > epoch)
        };
        assert!(nodes.iter().any(is_later), "partition {partition} after epoch {epoch}");
    }
    let gateway = of(CLIENT.name);
    assert!(has(&gateway, "started", "role", "gateway") && gateway.len() < 20, "{gateway:#?}");
}

fn check_files(deployment: &Deployment) {
    let roles = [("metadata", "metadata"), (SWITCH, "switch"), (CLIENT.name, "gateway")];
    let nodes = NODES.iter().map(|node| (node.name, "node"));
    let files: Vec<_> =
        roles.into_iter().chain(nodes).map(|(host, role)| deployment.file(host, role)).collect();
    let files: Vec<&str> = files.iter().map(|path: &PathBuf| Path::to_str(path).unwrap()).collect();
    let told = deployment.told(&[&["config", "check"], &files[..]].concat());
    assert_eq!(told.matches("valid, for a ").count(), files.len(), "{told}");
    assert_eq!(told.matches("note: ").count(), 2, "two nodes are not added yet: {told}");
}

/// Does everything that docs/guide/operations.md describes for nodes, and kills the leader of the
/// metadata service.
fn operate(deployment: &mut Deployment, load: &Load) {
    let add = |deployment: &mut Deployment, node: &Host, further: &[&str]| {
        deployment.start("node", node.name, node.name);
        let file = deployment.file(node.name, "node");
        let arguments = ["node", "add", node.name, "--config", file.to_str().unwrap()];
        deployment.told(&[&arguments, further].concat())
    };
    // Adds a node.
    let added = add(deployment, &NODES[3], &[]);
    assert!(added.ends_with("done\n"), "{added}");
    let leading = metrics_of(leader(&deployment.status().unwrap()));
    deployment.assert_well(4, &leading);
    load.wait_for_progress();

    // Replaces a node: it dies, and another one is added instead.
    deployment.take("node-1").kill();
    deployment.wait_for("node-1 is reported dead", |status| live(status) == 3);
    let told = deployment.told(&["status"]);
    assert!(
        told.starts_with("WRONG: ") && told.contains("node node-1 (10.20.1.2:7400) is suspected"),
        "{told}"
    );
    assert!(deployment.told(&["top", "--once"]).contains("node-1"));
    // Replicas do not move in a partition that lacks a member, so the new node waits until the dead
    // one is removed.
    add(deployment, &NODES[4], &["--no-wait"]);
    let removed = deployment.told(&["node", "remove", "node-1"]);
    assert!(removed.ends_with("done\n"), "{removed}");
    deployment.assert_well(4, &leading);
    load.wait_for_progress();

    // Replaces a disk: the node restarts with an empty directory.
    deployment.take("node-3").stop();
    fs::remove_dir_all(deployment.host("node-3").join("data/node-3")).unwrap();
    deployment.start("node", "node-3", "node-3");
    deployment.assert_well(4, &leading);
    load.wait_for_progress();

    // Removes a healthy node.
    let removed = deployment.told(&["node", "remove", "node-2"]);
    assert!(removed.ends_with("done\n"), "{removed}");
    deployment.take("node-2").stop();
    deployment.assert_well(3, &leading);
    load.wait_for_progress();

    // Kills the leader of the metadata service.
    let status = deployment.status().unwrap();
    let (before, term) = (leader(&status).name, status["term"].as_u64());
    deployment.take(before).kill();
    let status = deployment.wait_for("another instance leads", |status| {
        leader(status).name != before && status["term"].as_u64() > term
    });
    let leads = metrics_of(leader(&status));
    assert_eq!(deployment.metric(&leads, "nicekv_metadata_leads"), Some(1.0));
    // Its unit restarts it, and it becomes a standby. Until then status reports it as missing.
    deployment.start("metadata", before, before);
    deployment.assert_well(3, &leads);
}
