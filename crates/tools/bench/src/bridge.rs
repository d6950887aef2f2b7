//! A plain network of hosts: a bridge, and cables on which nothing is changed, so that TCP keeps its offloads from end to end. What a peer could have where no switch of ours is.
//!
//! ```text
//!   nicekv-bench-PID-N-client-0  eth0 ═══ veth ═══ client-0 ┐
//!   nicekv-bench-PID-N-node-0    eth0 ═══ veth ═══ node-0   ├ bridge, in nicekv-bench-PID-N-fabric
//!   …                                                     ┘
//! ```

use crate::error::Result;
use crate::netns::{Hosts, run};
use nicekv_lab::topology::Host;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bridges that this process has made: several may be up at once.
static MADE: AtomicU32 = AtomicU32::new(0);

/// See the module. Removed on drop.
pub(crate) struct Bridge {
    hosts: Hosts,
    members: Vec<Host>,
}

impl Bridge {
    /// Between these hosts, with their addresses of a lab.
    pub(crate) fn between(members: Vec<Host>) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts::called(format!("nicekv-bench-{}-{number}-", std::process::id()));
        let bridge = Self { hosts, members };
        let mut middle = "link add bridge type bridge\nlink set bridge up\n".to_owned();
        let fabric = bridge.hosts.namespace(Host::Fabric);
        for host in bridge.all() {
            run("ip", &["netns", "add", &bridge.hosts.namespace(host)], "")?;
        }
        for &host in &bridge.members {
            let namespace = bridge.hosts.namespace(host);
            let _ = writeln!(middle, "link add {host} type veth peer name eth0 netns {namespace}");
            let _ = writeln!(middle, "link set {host} master bridge up");
        }
        run("ip", &["-n", &fabric, "-batch", "-"], &middle)?;
        for &host in &bridge.members {
            let end = format!("link set lo up\naddr add {}/16 dev eth0\nlink set eth0 up\n", host.address());
            run("ip", &["-n", &bridge.hosts.namespace(host), "-batch", "-"], &end)?;
        }
        Ok(bridge)
    }

    fn all(&self) -> impl Iterator<Item = Host> {
        self.members.iter().copied().chain([Host::Fabric])
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for host in self.all() {
            // Perhaps it was never made.
            let _ = run("ip", &["netns", "del", &self.hosts.namespace(host)], "");
        }
    }
}
