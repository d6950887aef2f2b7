//! The switch behind a socket: the pipeline on datagrams instead of frames. What the user-space switch runs, and the simulator.
//!
//! ```text
//!  client ─▶ 127.11.x.y ─▶ [ admit ─▶ match ─▶ stamp reply_to := client ] ─▶ 127.20.0.1
//!                                                                        └▶ 127.20.0.2
//! ```
//!
//! A switch that sends from its own address hides the sender's, so it stamps that into the header; one that keeps it (with
//! ports) does not.

use core::net::SocketAddrV4;

use nicekv_proto::route::{room_for_stamp, room_of};
use nicekv_proto::stamp_reply_to;

use crate::hot::stage::{Heard, Request, has_room_for_stamp, is_said};
use crate::hot::values::write_reply;
use crate::stages::admit::{self, Ingress};
use crate::stages::parse::sought;
use crate::stages::split;
use crate::{Copies, Counter, Hop, Rest, Ring, Route, Router};

/// What becomes of a datagram.
#[derive(Clone, Debug)]
pub enum Passed<'a> {
    /// To no vring: to the address that it has.
    Plain,
    /// To this host, or by this trunk.
    Unicast(Hop),
    /// To each of these.
    Multicast(Copies<'a>),
    /// A piece of a scan to this host, or by this trunk; `None`: nowhere. What is left of the scan is to be processed next ([`Router::process_rest`]).
    Piece(Option<Hop>, Rest),
    /// Back to its sender, where it has come in: the switch has turned it into a reply of so many bytes (H9).
    Answered(usize),
    /// Gone; a counter says why.
    Dropped,
}

impl Router {
    /// Processes one datagram from `from` to `to`. Behind a socket, a datagram for a vring is stamped with its sender, unless a
    /// server has sent it. `now_ns`: what the boot-time clock says, read when the datagram is there; only what has room for a stamp and what nodes say of leases
    /// depends on it. Allocates nothing, but for what the switch keeps.
    pub fn process(
        &mut self,
        now_ns: u64,
        ingress: Ingress,
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &mut [u8],
    ) -> Passed<'_> {
        let ring = self.vrings().ring_of(to.ip().octets());
        let sender = match self.admit(ingress, (from, to), ring, payload) {
            Ok(sender) => sender,
            Err(counter) => {
                self.refuse(ingress, counter);
                return Passed::Dropped;
            }
        };
        let Some(ring) = ring else { return Passed::Plain };
        if ingress == Ingress::Socket && sender.is_none() {
            stamp_reply_to(payload, from);
        }
        if is_said(payload) {
            return self.answered(sender, payload, now_ns);
        }
        let pieces = split::pieces_of(payload, self.is_trunk(ingress));
        let came_by = match ingress {
            Ingress::Port { port, .. } => Some(port),
            // Who sends to groups has another UDP port than the node beside it, and is a client for that; at a port of a switch it would be on the node's host all the same.
            Ingress::Socket if ring == Ring::Group => self.port_of(from),
            Ingress::Socket => sender,
        };
        self.pass((from, to, ring), came_by, payload, pieces, now_ns)
    }

    /// The port of the host with that address.
    fn port_of(&self, from: SocketAddrV4) -> Option<u16> {
        Some(self.hosts()?.with_ip(from.ip().octets())?.port)
    }

    /// What was said to the switch ends here, but the answer, for which `payload` has room.
    fn answered(&mut self, port: Option<u16>, payload: &mut [u8], now_ns: u64) -> Passed<'_> {
        match self.hear(port, payload, now_ns) {
            (Some(sender), Heard::Answer(answer)) => {
                answer.write(payload);
                Passed::Unicast(Hop::Host(sender))
            }
            _ => Passed::Dropped,
        }
    }

    /// Processes what is left of a scan of which [`Self::process`] has made `payload`, a piece; likewise. At most [`PIECES_MAX`] times, then nothing is left.
    ///
    /// [`PIECES_MAX`]: nicekv_proto::scan::PIECES_MAX
    pub fn process_rest(
        &mut self,
        ingress: Ingress,
        from: SocketAddrV4,
        to: SocketAddrV4,
        payload: &mut [u8],
        rest: &Rest,
    ) -> Passed<'_> {
        let came_by = match ingress {
            Ingress::Port { port, .. } => Some(port),
            // Of what has one receiver nothing depends on who has sent it.
            Ingress::Socket => None,
        };
        let pieces = rest.write(payload);
        // No time matters to a scan, and all of them are for unicast rings.
        self.pass((from, to, Ring::Unicast), came_by, payload, pieces, 0)
    }

    /// Matches a datagram for a vring, of which so many pieces may be made.
    fn pass(
        &mut self,
        (from, to, ring): (SocketAddrV4, SocketAddrV4, Ring),
        came_by: Option<u16>,
        payload: &mut [u8],
        pieces: u8,
        now_ns: u64,
    ) -> Passed<'_> {
        let sought = sought(ring, to.ip().octets(), payload);
        let rest = self.split(sought, payload, pieces);
        let has_room = has_room_for_stamp(payload);
        let request = Request { sought, has_room, from, payload: Some(&*payload), now_ns };
        let (route, stamp) = self.route_hot(request, came_by);
        // Behind a socket there are no trunks, whose copies would stay as they are.
        if let (Some(stamp), Some(room)) = (stamp, room_for_stamp(payload)) {
            *room = stamp.to_bytes();
        }
        let hop = match route {
            Route::Unicast(hop) => hop,
            Route::Chain(hop, header) => {
                // Who is behind a trunk gets what the switch there writes.
                if let (Some(Hop::Host(_)), Some(room)) = (hop, room_of(payload)) {
                    *room = header.to_bytes();
                }
                hop
            }
            Route::Answered(body) => return Passed::Answered(write_reply(payload, body)),
            Route::Multicast(copies) => return Passed::Multicast(copies),
            Route::Miss | Route::NotVring => None,
        };
        match (hop, rest) {
            (hop, Some(rest)) => Passed::Piece(hop, rest),
            (Some(hop), None) => Passed::Unicast(hop),
            (None, None) => Passed::Dropped,
        }
    }

    /// The port of the server that sends, if what it sends may cross.
    fn admit(
        &self,
        ingress: Ingress,
        ends: (SocketAddrV4, SocketAddrV4),
        ring: Option<Ring>,
        payload: &[u8],
    ) -> Result<Option<u16>, Counter> {
        if let (Ingress::Port { port, mac }, Some(hosts)) = (ingress, self.hosts()) {
            let is_own = mac.is_none_or(|mac| admit::is_mac_of_port(hosts, port, mac))
                && admit::is_ip_of_port(hosts, port, ends.0.ip().octets());
            if !is_own {
                return Err(Counter::SourceRefused);
            }
        }
        match (ring, self.hosts()) {
            (Some(ring), hosts) => {
                let sender = admit::admit_to_vring(hosts, ingress, ends.0, ring, payload)?;
                Ok(sender.map(|host| host.port))
            }
            (None, Some(hosts)) => {
                admit::admit_to_address(hosts, ingress, ends, payload, false).map(|()| None)
            }
            (None, None) => Ok(None),
        }
    }
}
