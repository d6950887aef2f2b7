//! Hosts as network namespaces, connected to one that is the switch. They are made with `ip` as
//! docs/guide/operations.md describes, and are removed with their processes.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// Address of the switch, through which the hosts reach the vrings.
const ROUTER: (&str, &str) = ("10.20.0.1", "02:00:00:00:00:01");
const VRINGS: [&str; 2] = ["10.10.0.0/16", "10.11.0.0/16"];
pub(crate) const SWITCH: &str = "switch";

/// A host that is connected to a port of the switch.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) name: &'static str,
    pub(crate) address: &'static str,
    pub(crate) mac: &'static str,
    pub(crate) port: u16,
}

/// All hosts; they are removed when this is dropped.
pub(crate) struct Network {
    prefix: String,
    namespaces: Vec<String>,
}

static NETWORKS: AtomicU16 = AtomicU16::new(0);

impl Network {
    /// A network with the switch's host only.
    pub(crate) fn new() -> Self {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("nicekv-deploy-{}-{number}-", std::process::id());
        let mut network = Self { prefix, namespaces: Vec::new() };
        network.namespace(SWITCH);
        network
    }

    pub(crate) fn name(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    fn namespace(&mut self, host: &str) -> String {
        let name = self.name(host);
        ip(&format!("netns add {name}"));
        self.namespaces.push(name.clone());
        run("ip", &format!("netns exec {name} sysctl -qw net.ipv6.conf.all.disable_ipv6=1"));
        ip(&format!("-n {name} link set lo up"));
        name
    }

    /// Adds a host and connects it to the switch's port with the host's number.
    pub(crate) fn add(&mut self, Host { name, address, mac, port }: Host) {
        let (host, switch, (router, router_mac)) = (self.namespace(name), self.name(SWITCH), ROUTER);
        ip(&format!("-n {switch} link add port-{port} type veth peer name eth0 address {mac} netns {host}"));
        run("ip", &format!("netns exec {host} ethtool -K eth0 gro on tx-udp-segmentation off"));
        run("ip", &format!("netns exec {switch} ethtool -K port-{port} tso off"));
        ip(&format!("-n {host} addr add {address}/16 dev eth0"));
        ip(&format!("-n {host} link set eth0 up"));
        run("ip", &format!("netns exec {host} sysctl -qw net.ipv4.conf.eth0.accept_local=1"));
        ip(&format!("-n {switch} link set port-{port} up"));
        ip(&format!("-n {host} neigh add {router} lladdr {router_mac} nud permanent dev eth0"));
        for vring in VRINGS {
            ip(&format!("-n {host} route add {vring} via {router}"));
        }
    }

    /// Links the switch to an instance of the metadata service, in the management network.
    pub(crate) fn manage(&self, number: usize, name: &str) {
        let (switch, host) = (self.name(SWITCH), self.name(name));
        ip(&format!("-n {switch} link add mgmt{number} type veth peer name mgmt0 netns {host}"));
        for (namespace, device, end) in [(&host, "mgmt0".into(), 1), (&switch, format!("mgmt{number}"), 2)] {
            ip(&format!("-n {namespace} addr add 10.30.{number}.{end}/30 dev {device}"));
            ip(&format!("-n {namespace} link set {device} up"));
        }
    }

    /// Runs `work` on a thread in a host's network namespace.
    pub(crate) fn inside<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name(host))).unwrap();
        let on_host = || {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(on_host).join().unwrap())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.namespaces {
            // All processes that still run in the namespace were started by this test.
            let pids = Command::new("ip").args(["netns", "pids", name]).output();
            for pid in pids.map(|output| output.stdout).unwrap_or_default().split(|byte| *byte == b'\n') {
                let pid = std::str::from_utf8(pid).ok().and_then(|pid| pid.parse().ok());
                if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                    _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

#[track_caller]
fn ip(arguments: &str) {
    run("ip", arguments);
}

#[track_caller]
fn run(tool: &str, arguments: &str) {
    let output = Command::new(tool).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{tool} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
