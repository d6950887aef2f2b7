//! Network namespaces: who works inside of one, and the tools that make them.

use crate::error::{BenchError, Result};
use nicekv_lab::topology::Host;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Command, Output, Stdio};

/// Every datagram takes as much of a limited link as one of this many bytes.
const DATAGRAM_BYTES: u32 = 1_500;
/// Of a frame, before its datagram's packet.
const HEADER_BYTES: u32 = 14;

/// Hosts that are namespaces.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// Before each one's name.
    prefix: String,
}

impl Hosts {
    /// Those whose namespaces are called so, each with its own name behind that.
    pub(crate) fn called(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The name of a host's namespace.
    pub(crate) fn namespace(&self, host: Host) -> String {
        format!("{}{host}", self.prefix)
    }

    /// Runs `work` on a thread in a host's network namespace: sockets that it makes stay there, and so do processes that it starts.
    pub(crate) fn inside<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> Result<T> {
        let namespace = self.namespace(host);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| enter(&namespace).map(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What a host sends waits for its link, which carries so much.
    pub(crate) fn limit(&self, host: Host, mbit: u32, burst: &str) -> Result<()> {
        self.shape(host, "eth0", mbit, burst, "100ms")
    }

    /// What comes to a host waits, too: behind a device of its own, as links in the lab are shaped at their hosts. Once for each host; then [`Self::change_ingress`].
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

    /// What comes to a host that was limited has another rate from now on.
    pub(crate) fn change_ingress(&self, host: Host, mbit: u32, burst: &str) -> Result<()> {
        self.shape(host, "ifb0", mbit, burst, "50ms")
    }

    /// What a host sends to this address waits: so many datagrams a second may leave, however long each of them is. All else that it sends is let through.
    pub(crate) fn limit_datagrams(&self, host: Host, to: Ipv4Addr, per_second: u32) -> Result<()> {
        // A train is longer than one datagram may be, and so cut before it is counted.
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

/// Runs a tool, with this for it to read.
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
    // One that ends early says why.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output { status, stderr, .. } = child.wait_with_output().map_err(failed("wait for"))?;
    if status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&stderr);
    let line =
        format!("{tool} {}: {}; is this run by root?", arguments.join(" "), why.lines().next().unwrap_or(""));
    Err(BenchError::Environment(line))
}
