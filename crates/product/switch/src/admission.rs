//! Admission, the ingress access control: who may send what. A client cannot pass for a server, nor
//! send what only servers send to each other. Nodes check again what they know: the addresses of
//! members.
//!
//! ```text
//!   any frame          MAC or IP address of a server, from another port than the server's     ─▶ source_refused
//!   to a vring         not a datagram of the store                                            ─▶ not_ours
//!                      from a server's port, but not with its MAC and IP address              ─▶ source_refused
//!                      from others, a reply address that is not the sender's                  ─▶ source_refused
//!                      an opcode that this ring does not take from this sender (`OPCODES_…`)  ─▶ opcode_refused
//!   to a server's      with room for a stamp                                                  ─▶ opcode_refused
//!   own UDP port       from a server's port, but not with its MAC and IP address              ─▶ source_refused
//!                      from a client, anything but requests; from a node, what only the
//!                      metadata service sends                                                 ─▶ opcode_refused
//!   anything else      passes
//! ```
//!
//! The sender is identified by the ingress port or, behind a socket, which has no ports, by the
//! source address. At a trunk it is the server behind it that has both addresses: the switch that
//! the sender is attached to has admitted the frame, and each switch on the way checks it again, as
//! far as it can tell the hosts behind a trunk apart. A server's privileges go with the UDP port
//! that it owns, so another process on its machine is a client. A switch without tables knows no
//! servers: it drops everything for a vring and passes other traffic, heartbeats included.

use core::net::SocketAddrV4;

use nicekv_proto::{HeaderLayout, Opcode, ROOM_STAMP};

use crate::{Counter, Host, HostIndex, HostRole, Ring};

/// The way by which a datagram arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingress {
    /// It arrived at a port of the switch.
    Port {
        /// The index of the port.
        port: u16,
        /// The MAC source address, if the frame has an Ethernet header.
        mac: Option<[u8; 6]>,
    },
    /// It was received from a socket. There are no ports, and the kernel vouches for the source
    /// address.
    Socket,
}

/// Opcodes that any sender may use in a unicast vring.
pub const OPCODES_UNICAST: u64 =
    bit(Opcode::Get) | bit(Opcode::Scan) | bit(Opcode::Bundle) | bit(Opcode::ReadChunks);
/// Opcodes of messages from nodes to the switch itself. Nodes send them to a vring of either kind.
pub const OPCODES_SWITCH: u64 =
    bit(Opcode::HotConfirm) | bit(Opcode::HotClose) | bit(Opcode::HotValue) | bit(Opcode::HotLease);
/// Opcodes that nodes may use in a unicast vring.
pub const OPCODES_UNICAST_NODE: u64 = OPCODES_UNICAST | OPCODES_SWITCH;
/// Opcodes that any sender may use in a multicast vring.
pub const OPCODES_MULTICAST: u64 = bit(Opcode::Update)
    | bit(Opcode::QuorumQuery)
    | bit(Opcode::QuorumStore)
    | bit(Opcode::Bundle)
    | bit(Opcode::Fragment)
    | bit(Opcode::Chunk)
    | bit(Opcode::ReadChunks)
    | bit(Opcode::Listen)
    | bit(Opcode::Publish);
/// Opcodes that nodes may use in a multicast vring.
pub const OPCODES_MULTICAST_NODE: u64 =
    OPCODES_MULTICAST | bit(Opcode::Decisions) | bit(Opcode::PeerFragment) | OPCODES_SWITCH;
/// Opcodes that any sender may use in the ring of groups: negotiation with storage targets, reads,
/// and chunks (Replicast §III).
pub const OPCODES_GROUP: u64 =
    bit(Opcode::Chunk) | bit(Opcode::ChunkRequest) | bit(Opcode::ChunkAccept) | bit(Opcode::ChunkRead);
/// Opcodes that any sender may use at a server's own address: requests, directed or not, and
/// directory queries.
pub const OPCODES_REQUEST: u64 =
    OPCODES_UNICAST | OPCODES_MULTICAST | bit(Opcode::Directed) | bit(Opcode::DirectoryQuery);
/// Opcodes that nodes may use at a server's own address: all but those that only the metadata
/// service sends, and those that only pass between nodes and switches.
pub const OPCODES_NODE: u64 = !(bit(Opcode::HeartbeatReply)
    | bit(Opcode::Assign)
    | bit(Opcode::Probe)
    | OPCODES_SWITCH
    | bit(Opcode::HotClosed)
    | bit(Opcode::HotLeased));

/// Opcodes that are counted as updates in a multicast ring, where bundles contain updates.
/// Fragments are not counted, because one op may consist of dozens.
pub const OPCODES_UPDATE: u64 = bit(Opcode::Update) | bit(Opcode::QuorumStore) | bit(Opcode::Bundle);
/// Opcodes that are counted as reads in a multicast ring. In a unicast ring every request is a
/// read.
pub const OPCODES_READ: u64 = bit(Opcode::QuorumQuery);

const fn bit(opcode: Opcode) -> u64 {
    1 << opcode as u8
}

pub(crate) fn holds(opcodes: u64, opcode: u8) -> bool {
    opcodes.checked_shr(opcode.into()).is_some_and(|shifted| shifted & 1 == 1)
}

/// Whether a frame with this MAC source address may arrive at the port.
pub(crate) fn is_mac_of_port(hosts: &HostIndex, port: u16, mac: [u8; 6]) -> bool {
    hosts.with_mac(mac).is_none_or(|owner| owner.port == port)
}

/// Whether a packet or ARP frame with this IP source address may arrive at the port.
pub(crate) fn is_ip_of_port(hosts: &HostIndex, port: u16, ip: [u8; 4]) -> bool {
    hosts.with_ip(ip).is_none_or(|owner| owner.port == port)
}

/// The sending server, and whether it sends from the UDP port that it owns.
type Server<'a> = Option<(&'a Host, bool)>;

/// The server that sent the datagram, or `None` if the sender is a client. The error is the counter
/// of the reason why the sender is refused.
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

/// The server behind a trunk port that has one of these addresses.
fn behind(hosts: &HostIndex, port: u16, ip: [u8; 4], mac: Option<[u8; 6]>) -> Result<Option<&Host>, Counter> {
    let found = hosts.with_ip(ip).or_else(|| hosts.with_mac(mac?));
    if found.is_some_and(|host| host.port != port) { Err(Counter::SourceRefused) } else { Ok(found) }
}

/// Checks a datagram to a vring. Returns the server that sent it, if a server did.
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

/// Checks a datagram to `to`, an address outside of the vrings. `is_fragment`: the datagram is the
/// first of several fragments.
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
    // Switches write stamps only into datagrams for vrings, so the sender forged this one (H2).
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
        // The store sends no fragments, and the next fragment may have the header, which cannot be
        // checked here.
        _ if is_fragment => Err(Counter::OpcodeRefused),
        _ => Ok(()),
    }
}
