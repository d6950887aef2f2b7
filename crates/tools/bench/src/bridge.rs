//! A plain network of hosts: a bridge and untouched links, so that TCP keeps its offloads from end
//! to end. It is the network that a peer could have without the NICEKV switch.
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

/// Number of bridges that this process has created: several may be up at once.
static CREATED: AtomicU32 = AtomicU32::new(0);

/// Removed on drop.
pub(crate) struct Bridge {
    hosts: Hosts,
    members: Vec<Host>,
}

impl Bridge {
    /// Connects these hosts, which have the addresses of a lab.
    pub(crate) fn between(members: Vec<Host>) -> Result<Self> {
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts::with_prefix(format!("nicekv-bench-{}-{number}-", std::process::id()));
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
            // It may not exist, if creating it failed.
            let _ = run("ip", &["netns", "del", &self.hosts.namespace(host)], "");
        }
    }
}
