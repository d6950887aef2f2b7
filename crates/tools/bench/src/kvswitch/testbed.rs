//! A switch in the kernel that is fed frames by system calls: the real programs with their maps,
//! and ports without traffic.

use crate::error::Result;
use crate::switch_links::{PORT, ROUTER_MAC, SwitchLinks, node_address, node_host, node_mac, sub_prefix};
use crate::udp_frame;
use nicekv_proto::KeyDigest;
use nicekv_proto::placement::Vrings;
use nicekv_switch::{
    Backend as _, HostId, MemberSet, MulticastEntry, Table, TableSet, UnicastEntry, VringConfig,
};
use nicekv_switch_xdp::measure::Fed;
use nicekv_switch_xdp::{Hook, KernelSwitch};
use std::net::{Ipv4Addr, SocketAddrV4};

/// More than the longest frame here.
const FRAME_BYTES_MAX: usize = 2_048;
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, 1), 40_000);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 2, 0, 1];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    /// A server, from 0.
    Server(u16),
}

/// The ring that a datagram is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    Unicast,
    Multicast,
}

/// A switch with ports for a client and for servers. It moves the thread that creates it to another
/// network namespace.
pub(crate) struct Testbed {
    pub(crate) hook: Hook,
    pub(crate) switch: KernelSwitch,
    vrings: Vrings,
    /// Interface index of the client's port, then of each server's port.
    interfaces: Vec<u32>,
    frame: Vec<u8>,
    out: Vec<u8>,
    /// Frames so far.
    pub(crate) fed: u64,
    /// Declared last: the namespaces outlive the switch in them.
    _links: SwitchLinks,
}

impl Testbed {
    /// `servers` is a power of two; each is the only replica of an equal part of the ring.
    pub(crate) fn new(hook: Hook, servers: u16) -> Result<Self> {
        let links = SwitchLinks::new(hook, servers)?;
        let ports = links.enter_switch()?;
        let mut switch = KernelSwitch::load(VringConfig::DEFAULT, ROUTER_MAC, &ports)?;
        switch.install(&tables(servers))?;
        let interfaces = ports.iter().map(|port| port.ifindex).collect();
        let (vrings, out) = (Vrings::on_network(PORT), vec![0; FRAME_BYTES_MAX]);
        Ok(Self { hook, switch, vrings, interfaces, frame: Vec::new(), out, fed: 0, _links: links })
    }

    /// Runs the program on a datagram for the vnode of this digest. [`Testbed::out`] has the
    /// resulting datagram.
    pub(crate) fn feed(
        &mut self,
        from: Sender,
        ring: Ring,
        digest: &KeyDigest,
        payload: &[u8],
    ) -> Result<Fed> {
        self.build(from, ring, digest, payload);
        self.feed_built(from)
    }

    /// Builds the frame of such a datagram, for [`Testbed::feed_built`].
    pub(crate) fn build(&mut self, from: Sender, ring: Ring, digest: &KeyDigest, payload: &[u8]) {
        let to = match ring {
            Ring::Unicast => self.vrings.unicast_address(digest),
            Ring::Multicast => self.vrings.multicast_address(digest),
        };
        let (mac, address) = match from {
            Sender::Client => (CLIENT_MAC, CLIENT),
            Sender::Server(server) => {
                (node_mac(server + 1), SocketAddrV4::new(node_address(server + 1), PORT))
            }
        };
        udp_frame::build(&mut self.frame, (mac, ROUTER_MAC), (address, to), payload);
    }

    /// Runs the program on the frame that was built last.
    pub(crate) fn feed_built(&mut self, from: Sender) -> Result<Fed> {
        let port = match from {
            Sender::Client => 0,
            Sender::Server(server) => usize::from(server) + 1,
        };
        self.fed += 1;
        self.switch.feed(self.hook, self.interfaces[port], &self.frame, &mut self.out).map_err(Into::into)
    }

    /// The datagram that the program has made of it.
    pub(crate) fn out(&self, fed: Fed) -> &[u8] {
        &self.out[udp_frame::HEADERS_BYTES..fed.bytes]
    }
}

/// Each server with its part of both rings.
fn tables(servers: u16) -> TableSet {
    assert!(servers.is_power_of_two() && usize::from(servers) <= Table::Unicast.capacity());
    let VringConfig { unicast, multicast } = VringConfig::DEFAULT;
    let bits = servers.ilog2() as u8;
    let to_server = |server: u16| UnicastEntry {
        destination: sub_prefix(unicast, bits, server.into()),
        partition: server.into(),
        host: HostId(server + 1),
        chain: None,
    };
    let to_group = |server: u16| MulticastEntry {
        destination: sub_prefix(multicast, bits, server.into()),
        members: MemberSet::new([HostId(server + 1)]),
        chain: None,
        places: None,
    };
    TableSet {
        generation: 1,
        hosts: (1..=servers).map(node_host).collect(),
        unicast: (0..servers).map(to_server).collect(),
        multicast: (0..servers).map(to_group).collect(),
        ..TableSet::default()
    }
}
