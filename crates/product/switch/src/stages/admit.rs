//! Admission: who may send what. A client, or whoever else is on a port, cannot pass for a server, nor say to servers what
//! servers say to each other; nodes check the same again by what they know (addresses of members).
//!
//! ```text
//!   any frame          source MAC or IP of a server, from another port than the server's   ─▶ source_refused
//!   to a vring         no datagram of the store                                            ─▶ not_ours
//!                      from a server's port, but not with its MAC and IP                   ─▶ source_refused
//!                      from others, a place for replies that is not the sender             ─▶ source_refused
//!                      unicast: anything but gets, scans and reads of chunks; multicast: anything but updates,
//!                      chunks, reads of these, what is published and who listens, quorum requests, and
//!                      decisions of a node; bundles and fragments of these;
//!                      in both what nodes say to the switch of hot keys;
//!                      ring of groups: anything but chunks and what is said of these       ─▶ opcode_refused
//!   to a server's      what has room for a stamp                                           ─▶ opcode_refused
//!   own UDP port       from a server's port, but not with its MAC and IP                   ─▶ source_refused
//!                      from a client, anything but requests; from a node, what only
//!                      the metadata service says                                           ─▶ opcode_refused
//!   all else           crosses
//! ```
//!
//! Who the sender is, the port says; behind a socket, which has no ports, the source address. At a trunk it is whoever has both addresses, of
//! those behind it: the switch where a sender hangs has admitted what it sends, and each one on the way does so again, as far as it can tell hosts
//! behind a trunk apart. A server's privileges go with the UDP port that it owns, so that another process on its machine is a client. A switch without tables knows no servers: it
//! drops everything for a vring, and lets others' traffic cross, heartbeats among it.

use core::net::SocketAddrV4;

use nicekv_proto::{HeaderLayout, Opcode, ROOM_STAMP};

use crate::{Counter, Host, HostIndex, HostRole, Ring};

/// Where a datagram has come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// At a port of the switch.
    Port {
        /// Its index.
        port: u16,
        /// The Ethernet source, where there is Ethernet.
        mac: Option<[u8; 6]>,
    },
    /// From a socket: there are no ports, the kernel vouches for the source address.
    Socket,
}

/// What may go to unicast vrings, from anybody.
pub const OPCODES_UNICAST: u64 =
    bit(Opcode::Get) | bit(Opcode::Scan) | bit(Opcode::Bundle) | bit(Opcode::ReadChunks);
/// What nodes say to a switch, to a vring of either kind; it ends there.
pub const OPCODES_SAID: u64 =
    bit(Opcode::HotConfirm) | bit(Opcode::HotClose) | bit(Opcode::HotValue) | bit(Opcode::HotLease);
/// What may go to unicast vrings from nodes.
pub const OPCODES_UNICAST_NODE: u64 = OPCODES_UNICAST | OPCODES_SAID;
/// What may go to multicast vrings, from anybody.
pub const OPCODES_MULTICAST: u64 = bit(Opcode::Update)
    | bit(Opcode::QuorumQuery)
    | bit(Opcode::QuorumStore)
    | bit(Opcode::Bundle)
    | bit(Opcode::Fragment)
    | bit(Opcode::Chunk)
    | bit(Opcode::ReadChunks)
    | bit(Opcode::Listen)
    | bit(Opcode::Publish);
/// What may go to multicast vrings from nodes.
pub const OPCODES_MULTICAST_NODE: u64 =
    OPCODES_MULTICAST | bit(Opcode::Decisions) | bit(Opcode::PeerFragment) | OPCODES_SAID;
/// What may go to the ring of groups, from anybody: what negotiates with storage targets and reads from them, and frames (Replicast §III).
pub const OPCODES_GROUP: u64 =
    bit(Opcode::Chunk) | bit(Opcode::ChunkRequest) | bit(Opcode::ChunkAccept) | bit(Opcode::ChunkRead);
/// What anybody may send to a server's own address: requests, directed or not, and questions for whom to direct them to.
pub const OPCODES_REQUEST: u64 =
    OPCODES_UNICAST | OPCODES_MULTICAST | bit(Opcode::Directed) | bit(Opcode::DirectoryQuery);
/// What nodes may send to a server's own address: all but what the metadata service alone says, and what is between nodes and switches.
pub const OPCODES_NODE: u64 = !(bit(Opcode::HeartbeatReply)
    | bit(Opcode::Assign)
    | bit(Opcode::Probe)
    | OPCODES_SAID
    | bit(Opcode::HotClosed)
    | bit(Opcode::HotLeased));

/// What counts as an update in a multicast ring: bundles there are of updates. Fragments do not: one op may be dozens of them.
pub const OPCODES_UPDATE: u64 = bit(Opcode::Update) | bit(Opcode::QuorumStore) | bit(Opcode::Bundle);
/// What counts as a read in a multicast ring. In a unicast ring there is nothing else.
pub const OPCODES_READ: u64 = bit(Opcode::QuorumQuery);

const fn bit(opcode: Opcode) -> u64 {
    1 << opcode as u8
}

pub(crate) fn holds(opcodes: u64, opcode: u8) -> bool {
    opcodes.checked_shr(opcode.into()).is_some_and(|shifted| shifted & 1 == 1)
}

/// Whether a frame may have this Ethernet source at a port.
pub(crate) fn is_mac_of_port(hosts: &HostIndex, port: u16, mac: [u8; 6]) -> bool {
    hosts.with_mac(mac).is_none_or(|owner| owner.port == port)
}

/// Whether a packet, or what an ARP frame says, may have this source at a port.
pub(crate) fn is_ip_of_port(hosts: &HostIndex, port: u16, ip: [u8; 4]) -> bool {
    hosts.with_ip(ip).is_none_or(|owner| owner.port == port)
}

/// A server that sends, and whether by the UDP port that it owns.
type Server<'a> = Option<(&'a Host, bool)>;

/// The server that sends from there, if one does.
fn server(hosts: &HostIndex, ingress: Ingress, from: SocketAddrV4) -> Result<Server<'_>, Counter> {
    let ip = from.ip().octets();
    match ingress {
        Ingress::Socket => {
            let host = hosts.with_ip(ip).filter(|host| host.udp_port == from.port());
            Ok(host.map(|host| (host, true)))
        }
        Ingress::Port { port, mac } => {
            let host = match hosts.at_port(port) {
                Some(host) => host,
                None => match behind(hosts, port, ip, mac)? {
                    Some(host) => host,
                    None => return Ok(None),
                },
            };
            match host.ip == ip && mac.is_none_or(|mac| mac == host.mac) {
                true => Ok(Some((host, host.udp_port == from.port()))),
                false => Err(Counter::SourceRefused),
            }
        }
    }
}

/// The server with one of these addresses, at a port where none hangs itself: then there is a trunk.
fn behind(hosts: &HostIndex, port: u16, ip: [u8; 4], mac: Option<[u8; 6]>) -> Result<Option<&Host>, Counter> {
    let found = hosts.with_ip(ip).or_else(|| hosts.with_mac(mac?));
    if found.is_some_and(|host| host.port != port) { Err(Counter::SourceRefused) } else { Ok(found) }
}

/// Whether a datagram may go to a vring; if so, the server that has sent it.
pub(crate) fn admit_to_vring<'a>(
    hosts: Option<&'a HostIndex>,
    ingress: Ingress,
    from: SocketAddrV4,
    ring: Ring,
    payload: &[u8],
) -> Result<Option<&'a Host>, Counter> {
    let header = HeaderLayout::peek(payload).ok_or(Counter::NotOurs)?;
    let server = hosts.map_or(Ok(None), |hosts| server(hosts, ingress, from))?;
    let is_node = server.is_some_and(|(host, is_own_port)| is_own_port && host.role == HostRole::Node);
    let allowed = match ring {
        Ring::Unicast if is_node => OPCODES_UNICAST_NODE,
        Ring::Unicast => OPCODES_UNICAST,
        Ring::Multicast if is_node => OPCODES_MULTICAST_NODE,
        Ring::Multicast => OPCODES_MULTICAST,
        Ring::Group => OPCODES_GROUP,
    };
    if !holds(allowed, header.opcode) {
        return Err(Counter::OpcodeRefused);
    }
    let reply_to = header.reply_to();
    if !is_node && reply_to.is_some_and(|reply_to| reply_to != from) {
        return Err(Counter::SourceRefused);
    }
    Ok(server.map(|(host, _)| host))
}

/// Whether a datagram may go to `to`, which is in no vring. `is_fragment`: the first part of one.
pub(crate) fn admit_to_address(
    hosts: &HostIndex,
    ingress: Ingress,
    (from, to): (SocketAddrV4, SocketAddrV4),
    payload: &[u8],
    is_fragment: bool,
) -> Result<(), Counter> {
    let is_server = hosts.with_ip(to.ip().octets()).is_some_and(|host| host.udp_port == to.port());
    if !is_server {
        return Ok(());
    }
    let header = HeaderLayout::peek(payload);
    // A stamp that no switch has written (H2).
    if header.is_some_and(|header| header.room == ROOM_STAMP) {
        return Err(Counter::OpcodeRefused);
    }
    let server = server(hosts, ingress, from)?;
    let allowed = match server {
        Some((host, true)) if host.role == HostRole::Metadata => return Ok(()),
        Some((_, true)) => OPCODES_NODE,
        _ => OPCODES_REQUEST,
    };
    match header {
        Some(header) if !holds(allowed, header.opcode) => Err(Counter::OpcodeRefused),
        // The store sends none, and what is in the next one cannot be seen.
        _ if is_fragment => Err(Counter::OpcodeRefused),
        _ => Ok(()),
    }
}
