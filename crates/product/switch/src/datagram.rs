//! The pipeline on datagrams instead of frames: what the user-space switch behind a socket and the
//! simulator run.
//!
//! ```text
//!  client ─▶ 127.11.x.y ─▶ [ admission ─▶ match-action ─▶ reply_to := client ] ─▶ 127.20.0.1
//!                                                                             └▶ 127.20.0.2
//! ```
//!
//! A switch behind a socket sends from its own address, so it writes the sender's address into the
//! header; a switch with ports keeps the source address and does not.

use core::net::SocketAddrV4;

use nicekv_proto::route::{room_for_stamp, room_of};
use nicekv_proto::stamp_reply_to;

use crate::admission::{self, Ingress};
use crate::hot::stage::{Request, SwitchReply, has_room_for_stamp, is_switch_message};
use crate::hot::values::write_reply;
use crate::scan_split::{self, ScanRest};
use crate::{Copies, Counter, Hop, LookupKey, Ring, Route, Router};

/// The verdict on a datagram.
#[derive(Clone, Debug)]
pub enum DatagramVerdict<'a> {
    /// The datagram is not for a vring: forward it to its own destination.
    NotVring,
    /// Send the datagram to this hop.
    Unicast(Hop),
    /// Send a copy to each of these hops.
    Multicast(Copies<'a>),
    /// The payload now holds a piece of a scan for this hop; `None`: the piece is dropped. Process
    /// the rest next ([`Router::process_scan_rest`]).
    Piece(Option<Hop>, ScanRest),
    /// The payload now begins with the switch's reply to the sender, of this many bytes (H9).
    Answered(usize),
    /// The datagram is dropped; a counter tells the reason.
    Dropped,
}

impl Router {
    /// Processes one datagram from `from` to `to`. Behind a socket, the sender's address is written
    /// into a datagram for a vring, unless a server sent it. `now_ns`: the boot-time clock, read
    /// after the datagram arrived; only requests with room for a stamp and lease messages depend on
    /// it. Does not allocate, except for values that the switch stores.
    pub fn process(
        &mut self,
        now_ns: u64,
        ingress: Ingress,
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &mut [u8],
    ) -> DatagramVerdict<'_> {
        let ring = self.vrings().ring_of(to.ip().octets());
        let sender = match self.admit(ingress, (from, to), ring, payload) {
            Ok(sender) => sender,
            Err(counter) => {
                self.refuse(ingress, counter);
                return DatagramVerdict::Dropped;
            }
        };
        let Some(ring) = ring else { return DatagramVerdict::NotVring };
        if ingress == Ingress::Socket && sender.is_none() {
            stamp_reply_to(payload, from);
        }
        if is_switch_message(payload) {
            return self.reply_to_node(sender, payload, now_ns);
        }
        let pieces = scan_split::pieces_of(payload, self.is_trunk(ingress));
        let came_by = match ingress {
            Ingress::Port { port, .. } => Some(port),
            // A datagram to a group comes from a client, which has another UDP port than the node
            // on the same host. So the port is found by the IP address.
            Ingress::Socket if ring == Ring::Group => self.port_of(from),
            Ingress::Socket => sender,
        };
        self.pass((from, to, ring), came_by, payload, pieces, now_ns)
    }

    /// The port of the host with this IP address.
    fn port_of(&self, from: SocketAddrV4) -> Option<u16> {
        Some(self.hosts()?.with_ip(from.ip().octets())?.port)
    }

    /// Handles a message to the switch. The reply, if there is one, overwrites `payload`.
    fn reply_to_node(&mut self, port: Option<u16>, payload: &mut [u8], now_ns: u64) -> DatagramVerdict<'_> {
        match self.handle_switch_message(port, payload, now_ns) {
            (Some(sender), SwitchReply::Reply(reply)) => {
                reply.write(payload);
                DatagramVerdict::Unicast(Hop::Host(sender))
            }
            _ => DatagramVerdict::Dropped,
        }
    }

    /// Processes the rest of a scan after [`Self::process`] or this method returned a piece, in
    /// `payload`. Callers loop at most [`PIECES_MAX`] times.
    ///
    /// [`PIECES_MAX`]: nicekv_proto::scan::PIECES_MAX
    pub fn process_scan_rest(
        &mut self,
        ingress: Ingress,
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &mut [u8],
        rest: &ScanRest,
    ) -> DatagramVerdict<'_> {
        let came_by = match ingress {
            Ingress::Port { port, .. } => Some(port),
            // A unicast does not need to exclude the sender.
            Ingress::Socket => None,
        };
        let pieces = rest.write(payload);
        // Scans go to unicast rings and do not depend on time.
        self.pass((from, to, Ring::Unicast), came_by, payload, pieces, 0)
    }

    /// Matches a datagram for a vring that may be split into `pieces`.
    fn pass(
        &mut self,
        (from, to, ring): (SocketAddrV4, SocketAddrV4, Ring),
        came_by: Option<u16>,
        payload: &mut [u8],
        pieces: u8,
        now_ns: u64,
    ) -> DatagramVerdict<'_> {
        let key = LookupKey::of(ring, to.ip().octets(), payload);
        let rest = self.split(key, payload, pieces);
        let has_room = has_room_for_stamp(payload);
        let request = Request { key, has_room, from, payload: Some(&*payload), now_ns };
        let (route, stamp) = self.route_hot(request, came_by);
        // Copies for trunks would have to stay without the stamp, but a switch behind a socket has
        // no trunks.
        if let (Some(stamp), Some(room)) = (stamp, room_for_stamp(payload)) {
            *room = stamp.to_bytes();
        }
        let hop = match route {
            Route::Unicast(hop) => hop,
            Route::Chain(hop, header) => {
                // If the host is behind a trunk, the switch there writes the header.
                if let (Some(Hop::Host(_)), Some(room)) = (hop, room_of(payload)) {
                    *room = header.to_bytes();
                }
                hop
            }
            Route::Answered(body) => return DatagramVerdict::Answered(write_reply(payload, body)),
            Route::Multicast(copies) => return DatagramVerdict::Multicast(copies),
            Route::Miss | Route::NotVring => None,
        };
        match (hop, rest) {
            (hop, Some(rest)) => DatagramVerdict::Piece(hop, rest),
            (Some(hop), None) => DatagramVerdict::Unicast(hop),
            (None, None) => DatagramVerdict::Dropped,
        }
    }

    /// Checks the datagram. Returns the port of the server that sent it, if a server did.
    fn admit(
        &self,
        ingress: Ingress,
        ends: (SocketAddrV4, SocketAddrV4),
        ring: Option<Ring>,
        payload: &[u8],
    ) -> Result<Option<u16>, Counter> {
        if let (Ingress::Port { port, mac }, Some(hosts)) = (ingress, self.hosts()) {
            let is_own = mac.is_none_or(|mac| admission::is_mac_of_port(hosts, port, mac))
                && admission::is_ip_of_port(hosts, port, ends.0.ip().octets());
            if !is_own {
                return Err(Counter::SourceRefused);
            }
        }
        match (ring, self.hosts()) {
            (Some(ring), hosts) => {
                let sender = admission::admit_to_vring(hosts, ingress, ends.0, ring, payload)?;
                Ok(sender.map(|host| host.port))
            }
            (None, Some(hosts)) => {
                admission::admit_to_address(hosts, ingress, ends, payload, false).map(|()| None)
            }
            (None, None) => Ok(None),
        }
    }
}
