//! A switch in the kernel that is given frames and no network: the real programs with their maps, and ports that nobody sends to.

use crate::error::{BenchError, Result};
use crate::frames;
use crate::tables::cables::{Cables, PORT, ROUTER_MAC, node_address, node_mac};
use nicekv_proto::KeyDigest;
use nicekv_proto::placement::Vrings;
use nicekv_switch::{
    Backend as _, BackendError, Host, HostId, HostRole, MemberSet, MulticastEntry, Prefix, Table, TableSet,
    UnicastEntry, VringConfig,
};
use nicekv_switch_xdp::measure::Fed;
use nicekv_switch_xdp::{Hook, KernelSwitch, XdpError};
use std::net::{Ipv4Addr, SocketAddrV4};

/// More than the longest frame here.
const FRAME_BYTES_MAX: usize = 2_048;
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, 1), 40_000);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 2, 0, 1];

/// Who sends a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    Client,
    /// A server, from 0.
    Server(u16),
}

/// To which ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    Unicast,
    Multicast,
}

/// See the module. Made and used by a thread of its own, which it moves to another network namespace.
pub(crate) struct Bed {
    pub(crate) hook: Hook,
    pub(crate) switch: KernelSwitch,
    vrings: Vrings,
    /// Of the client's port, and then of each server's.
    interfaces: Vec<u32>,
    frame: Vec<u8>,
    out: Vec<u8>,
    /// Frames so far.
    pub(crate) fed: u64,
    /// Declared last: the namespaces outlive what works in them.
    _cables: Cables,
}

impl Bed {
    /// Of so many servers, a power of two; each is the only replica of an equal part of the ring.
    pub(crate) fn new(hook: Hook, servers: u16) -> Result<Self> {
        let cables = Cables::new(hook, servers)?;
        let ports = cables.enter_switch()?;
        let mut switch = KernelSwitch::load(VringConfig::DEFAULT, ROUTER_MAC, &ports).map_err(failed)?;
        switch.install(&tables(servers)).map_err(refused)?;
        let interfaces = ports.iter().map(|port| port.ifindex).collect();
        let (vrings, out) = (Vrings::on_network(PORT), vec![0; FRAME_BYTES_MAX]);
        Ok(Self { hook, switch, vrings, interfaces, frame: Vec::new(), out, fed: 0, _cables: cables })
    }

    /// Puts a datagram for the vnode of this digest through the program. What becomes of it is in [`Bed::out`].
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

    /// The frame of it, for [`Bed::feed_built`].
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
        frames::build(&mut self.frame, (mac, ROUTER_MAC), (address, to), payload);
    }

    /// Puts the frame through that was built last.
    pub(crate) fn feed_built(&mut self, from: Sender) -> Result<Fed> {
        let port = match from {
            Sender::Client => 0,
            Sender::Server(server) => usize::from(server) + 1,
        };
        self.fed += 1;
        self.switch.feed(self.hook, self.interfaces[port], &self.frame, &mut self.out).map_err(failed)
    }

    /// The datagram that has become of it.
    pub(crate) fn out(&self, fed: Fed) -> &[u8] {
        &self.out[frames::HEADERS_BYTES..fed.bytes]
    }
}

/// Who is there, and who has which part of the ring.
fn tables(servers: u16) -> TableSet {
    assert!(servers.is_power_of_two() && usize::from(servers) <= Table::Unicast.capacity());
    let host = |number: u16| Host {
        id: HostId(number),
        role: HostRole::Node,
        ip: node_address(number).octets(),
        udp_port: PORT,
        mac: node_mac(number),
        port: number,
        is_remote: false,
    };
    let VringConfig { unicast, multicast } = VringConfig::DEFAULT;
    let part = |ring: Prefix, server: u16| {
        let length = ring.length + servers.ilog2() as u8;
        Prefix::new((ring.first() + (u32::from(server) << (32 - length))).to_be_bytes(), length)
    };
    let to_server = |server: u16| UnicastEntry {
        destination: part(unicast, server),
        partition: server.into(),
        host: HostId(server + 1),
        chain: None,
    };
    let to_group = |server: u16| MulticastEntry {
        destination: part(multicast, server),
        members: MemberSet::new([HostId(server + 1)]),
        chain: None,
        places: None,
    };
    TableSet {
        generation: 1,
        hosts: (1..=servers).map(host).collect(),
        unicast: (0..servers).map(to_server).collect(),
        multicast: (0..servers).map(to_group).collect(),
        ..TableSet::default()
    }
}

pub(crate) fn failed(error: XdpError) -> BenchError {
    BenchError::Environment(error.to_string())
}

pub(crate) fn refused(error: BackendError) -> BenchError {
    BenchError::Failed(error.to_string())
}
