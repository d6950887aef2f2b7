//! A switch without a cluster: the network namespaces of its hosts, their links, and the client's
//! sockets. Removed on drop.
//!
//! ```text
//!   nicekv-bench-PID-HOOK-client   …-switch          …-nodes
//!        c0 ═══════ veth ═════════ p0    p1 … p255 ═══ n1 … n255      or fewer
//! ```

use crate::error::{BenchError, Result};
use crate::netns::{enter, run};
use nicekv_switch::{Host, HostId, HostRole, Prefix};
use nicekv_switch_xdp::{Hook, Port};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, UdpSocket};

/// Number of nodes that fill all ports but the client's.
pub(crate) const NODES: u16 = 255;
/// UDP port of all nodes.
pub(crate) const PORT: u16 = 7400;
/// MAC address of the router to the vrings.
pub(crate) const ROUTER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0xff, 0xfe];
/// The client's addresses, and how many of them have a socket.
pub(crate) const CLIENTS_PREFIX: Prefix = Prefix::new([10, 20, 2, 0], 24);
pub(crate) const CLIENTS: usize = 64;
const ROUTER: &str = "10.20.255.254";

pub(crate) struct SwitchLinks {
    hook: Hook,
    nodes_count: u16,
    client: String,
    switch: String,
    nodes: String,
}

pub(crate) fn node_address(number: u16) -> Ipv4Addr {
    let [_, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 20, 1, low)
}

pub(crate) fn node_mac(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

/// A node as the switch's tables have it, at the port of its number.
pub(crate) fn node_host(number: u16) -> Host {
    Host {
        id: HostId(number),
        role: HostRole::Node,
        ip: node_address(number).octets(),
        udp_port: PORT,
        mac: node_mac(number),
        port: number,
        is_remote: false,
    }
}

/// Part number `number` of a prefix that is divided into 2^`bits` parts.
pub(crate) fn sub_prefix(prefix: Prefix, bits: u8, number: u32) -> Prefix {
    let length = prefix.length + bits;
    Prefix::new((prefix.first() + (number << (32 - length))).to_be_bytes(), length)
}

impl SwitchLinks {
    /// With `nodes_count` nodes, at most [`NODES`].
    pub(crate) fn new(hook: Hook, nodes_count: u16) -> Result<Self> {
        let name = |role| format!("nicekv-bench-{}-{hook}-{role}", std::process::id());
        let (client, switch, nodes) = (name("client"), name("switch"), name("nodes"));
        let links = Self { hook, nodes_count, client, switch, nodes };
        for namespace in links.namespaces() {
            run("ip", &["netns", "add", namespace], "")?;
            let quiet = "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";
            run("ip", &["netns", "exec", namespace, "sh", "-c", quiet], "")?;
        }
        links.create()?;
        links.set_offloads()?;
        Ok(links)
    }

    fn namespaces(&self) -> [&str; 3] {
        [&self.client, &self.switch, &self.nodes]
    }

    fn create(&self) -> Result<()> {
        let Self { client, switch, nodes, .. } = self;
        let mut links = format!("link add p0 type veth peer name c0 netns {client}\nlink set p0 up\n");
        let mut ends = String::new();
        for number in 1..=self.nodes_count {
            let _ = writeln!(links, "link add p{number} type veth peer name n{number} netns {nodes}");
            let _ = writeln!(links, "link set p{number} up");
            let _ = writeln!(ends, "link set n{number} address {} up", text(node_mac(number)));
        }
        let at_client = format!(
            "link set lo up\nlink set c0 up\naddr add 10.20.0.1/16 dev c0\nroute add local {CLIENTS_PREFIX} dev lo\n\
             neigh add {ROUTER} lladdr {} dev c0 nud permanent\nroute add 10.8.0.0/13 via {ROUTER} dev c0\n",
            text(ROUTER_MAC)
        );
        for (namespace, commands) in [(switch, links), (nodes, ends), (client, at_client)] {
            run("ip", &["-n", namespace, "-batch", "-"], &commands)?;
        }
        Ok(())
    }

    /// Sets the offloads that the loader of the programs demands of both ends.
    fn set_offloads(&self) -> Result<()> {
        let features = match self.hook {
            Hook::Xdp => "gro on tx off rx off txvlan off tx-udp-segmentation off",
            _ => "gro on tx-udp-segmentation off",
        };
        let count = self.nodes_count;
        let each =
            |device: &str| format!("for n in $(seq 1 {count}); do ethtool -K {device}$n {features}; done");
        let at_client = format!("ethtool -K c0 {features}");
        for (namespace, commands) in [(&self.client, at_client), (&self.nodes, each("n"))] {
            run("ip", &["netns", "exec", namespace, "sh", "-e", "-c", &commands], "")?;
        }
        Ok(())
    }

    /// Moves the calling thread to the switch's namespace; returns its ports.
    pub(crate) fn enter_switch(&self) -> Result<Vec<Port>> {
        enter(&self.switch)?;
        let port = |index| {
            let name = format!("p{index}");
            let ifindex = rustix::net::netdevice::name_to_index(socket()?, &name);
            let ifindex = ifindex.map_err(BenchError::system(format!("find {name}")))?;
            Ok(Port { index, ifindex, hook: self.hook, is_trunk: false })
        };
        (0..=self.nodes_count).map(port).collect()
    }

    /// A socket at each of the client's addresses. Moves the calling thread to the switch's
    /// namespace.
    pub(crate) fn clients(&self) -> Result<Vec<UdpSocket>> {
        enter(&self.client)?;
        let socket = |number: u32| {
            let address = Ipv4Addr::from(CLIENTS_PREFIX.first() + 1 + number * (254 / CLIENTS as u32));
            UdpSocket::bind((address, 0)).map_err(BenchError::system(format!("bind {address}")))
        };
        let sockets = (0..CLIENTS as u32).map(socket).collect();
        enter(&self.switch)?;
        sockets
    }
}

impl Drop for SwitchLinks {
    fn drop(&mut self) {
        for namespace in self.namespaces() {
            // It may not exist, if creating it failed.
            let _ = run("ip", &["netns", "del", namespace], "");
        }
    }
}

fn socket() -> Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(BenchError::system("open a socket"))
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
