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

use nicekv_wire::route::{room_for_stamp, room_of};
use nicekv_wire::stamp_reply_to;

use crate::hot::stage::{Heard, answer, has_room_for_stamp, is_said};
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
    /// Gone; a counter says why.
    Dropped,
}

impl Router {
    /// Processes one datagram from `from` to `to`. Behind a socket, a datagram for a vring is stamped with its sender, unless a
    /// server has sent it. Allocates nothing.
    pub fn process(
        &mut self,
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
        if ring.is_none() {
            return Passed::Plain;
        }
        if ingress == Ingress::Socket && sender.is_none() {
            stamp_reply_to(payload, from);
        }
        if is_said(payload) {
            return self.answered(sender, payload);
        }
        let pieces = split::pieces_of(payload, self.is_trunk(ingress) && !self.cuts_again());
        let came_by = match ingress {
            Ingress::Port { port, .. } => Some(port),
            Ingress::Socket => sender,
        };
        self.pass((from, to), came_by, payload, pieces)
    }

    /// What was said to the switch ends here, but the answer, for which `payload` has room.
    fn answered(&mut self, port: Option<u16>, payload: &mut [u8]) -> Passed<'_> {
        match self.hear(port, payload) {
            (Some(sender), Heard::Answer(stamp)) => {
                answer(payload, stamp);
                Passed::Unicast(Hop::Host(sender))
            }
            _ => Passed::Dropped,
        }
    }

    /// Processes what is left of a scan of which [`Self::process`] has made `payload`, a piece; likewise. At most [`PIECES_MAX`] times, then nothing is left.
    ///
    /// [`PIECES_MAX`]: nicekv_wire::scan::PIECES_MAX
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
        self.pass((from, to), came_by, payload, pieces)
    }

    /// Matches a datagram for a vring, of which so many pieces may be made.
    fn pass(
        &mut self,
        (from, to): (SocketAddrV4, SocketAddrV4),
        came_by: Option<u16>,
        payload: &mut [u8],
        pieces: u8,
    ) -> Passed<'_> {
        let sought = sought(to.ip().octets(), payload);
        let rest = self.split(sought, payload, pieces);
        let (believes_clients, believes_stamps) = (self.believes_clients(), self.believes_stamps());
        let has_room = has_room_for_stamp(payload);
        let (route, stamp) = self.route_hot(from.ip().octets(), sought, came_by, has_room);
        // Behind a socket there are no trunks, whose copies would stay as they are.
        if let (Some(stamp), Some(room)) = (stamp, room_for_stamp(payload))
            && (stamp.is_some() || !believes_stamps)
        {
            *room = stamp.to_bytes();
        }
        let hop = match route {
            Route::Unicast(hop) => hop,
            Route::Chain(hop, header) => {
                // Who is behind a trunk gets what the switch there writes.
                if let (Some(Hop::Host(_)), Some(room)) = (hop, room_of(payload))
                    && !(believes_clients && room.iter().any(|byte| *byte != 0))
                {
                    *room = header.to_bytes();
                }
                hop
            }
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
