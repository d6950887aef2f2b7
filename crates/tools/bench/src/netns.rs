//! Network namespaces: working inside them, and shaping their links.

use crate::error::{BenchError, Result};
use nicekv_lab::topology::Host;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Command, Output, Stdio};

/// On a link limited in datagrams, every datagram counts as this many bytes.
const DATAGRAM_BYTES: u32 = 1_500;
/// Bytes of an Ethernet header.
const HEADER_BYTES: u32 = 14;

/// Hosts, each of which is a network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// Prefix of the namespaces' names; the host's name follows.
    prefix: String,
}

impl Hosts {
    pub(crate) fn with_prefix(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(crate) fn namespace(&self, host: Host) -> String {
        format!("{}{host}", self.prefix)
    }

    /// Runs `work` on a thread in a host's network namespace: sockets that it opens and processes
    /// that it starts stay there.
    pub(crate) fn inside<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> Result<T> {
        let namespace = self.namespace(host);
        apart(|| enter(&namespace).map(|()| work()))
    }

    /// Limits what a host sends to `mbit` Mbit/s.
    pub(crate) fn limit(&self, host: Host, mbit: u32, burst: &str) -> Result<()> {
        self.shape(host, "eth0", mbit, burst, "100ms")
    }

    /// Limits what a host receives, by an ifb device, as links of the lab are shaped at their
    /// hosts. Call it once per host, later [`Self::change_ingress`].
    pub(crate) fn limit_ingress(&self, host: Host, mbit: u32, burst: &str) -> Result<()> {
        let steps: [(&str, &[&str]); 3] = [
            ("ip", &["link", "add", "ifb0", "type", "ifb"]),
            ("ip", &["link", "set", "ifb0", "up"]),
            ("tc", &["qdisc", "add", "dev", "eth0", "clsact"]),
        ];
        let filter =
            ["filter", "add", "dev", "eth0", "ingress", "protocol", "all", "u32", "match", "u32", "0", "0"];
        let redirect = ["action", "mirred", "egress", "redirect", "dev", "ifb0"];
        self.inside(host, || steps.iter().try_for_each(|(tool, arguments)| run(tool, arguments, "")))??;
        self.change_ingress(host, mbit, burst)?;
        self.inside(host, || run("tc", &[filter.as_slice(), redirect.as_slice()].concat(), ""))?
    }

    /// Changes the rate of what a limited host receives.
    pub(crate) fn change_ingress(&self, host: Host, mbit: u32, burst: &str) -> Result<()> {
        self.shape(host, "ifb0", mbit, burst, "50ms")
    }

    /// Limits what a host sends to the address `to`, in datagrams per second of any length. Other
    /// traffic is not limited.
    pub(crate) fn limit_datagrams(&self, host: Host, to: Ipv4Addr, per_second: u32) -> Result<()> {
        // A GSO batch is longer than the burst, so it is segmented before it is counted.
        let rate = format!("{}bit", u64::from(per_second) * u64::from(DATAGRAM_BYTES) * 8);
        let [least, burst] = [DATAGRAM_BYTES, DATAGRAM_BYTES + HEADER_BYTES].map(|bytes| bytes.to_string());
        let limit =
            format!("qdisc add dev eth0 parent 1:1 tbf rate {rate} mpu {least} burst {burst} limit 1m");
        let filter =
            format!("filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst {to}/32 flowid 1:1");
        let steps = [
            "qdisc add dev eth0 root handle 1: htb default 2",
            "class add dev eth0 parent 1: classid 1:1 htb rate 100gbit quantum 60000",
            "class add dev eth0 parent 1: classid 1:2 htb rate 100gbit quantum 60000",
            &limit,
            &filter,
        ];
        let add = |step: &&str| run("tc", &step.split(' ').collect::<Vec<_>>(), "");
        self.inside(host, || steps.iter().try_for_each(add))?
    }

    fn shape(&self, host: Host, device: &str, mbit: u32, burst: &str, latency: &str) -> Result<()> {
        let rate = format!("{mbit}mbit");
        let filter = ["root", "tbf", "rate", &rate, "burst", burst, "latency", latency];
        let arguments = [["qdisc", "replace", "dev", device].as_slice(), &filter].concat();
        self.inside(host, || run("tc", &arguments, ""))?
    }
}

/// Moves the calling thread to a namespace.
pub(crate) fn enter(namespace: &str) -> Result<()> {
    let path = format!("/run/netns/{namespace}");
    let file = File::open(&path).map_err(BenchError::system(format!("open {path}")))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(BenchError::system(format!("enter {path}")))
}

/// Runs `work` on a separate thread, which may change its network namespace.
pub(crate) fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a tool with `input` as its standard input.
pub(crate) fn run(tool: &str, arguments: &[&str], input: &str) -> Result<()> {
    let failed = |what: &str| BenchError::system(format!("{what} {tool}"));
    let mut child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed("start"))?;
    let mut stdin = child.stdin.take().expect("piped");
    // A tool that ends early prints why.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output { status, stderr, .. } = child.wait_with_output().map_err(failed("wait for"))?;
    if status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&stderr);
    let line = format!("{tool} {}: {}; are you root?", arguments.join(" "), why.lines().next().unwrap_or(""));
    Err(BenchError::Environment(line))
}
