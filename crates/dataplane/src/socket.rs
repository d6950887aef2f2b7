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

use nicekv_wire::route::room_of;
use nicekv_wire::{HeaderLayout, stamp_reply_to};

use crate::hot::{has_room_for_stamp, is_concerned};
use crate::stages::admit::{self, Ingress};
use crate::stages::parse::sought;
use crate::stages::split;
use crate::{Copies, Counter, Hop, HostIndex, Rest, Ring, Route, Router};

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
        if is_concerned(payload)
            && let Some(hop) = ring.and_then(|ring| self.heat(ring, sender, payload))
        {
            return hop.map_or(Passed::Dropped, Passed::Unicast);
        }
        let pieces = split::pieces_of(payload, self.is_trunk(ingress) && !self.cuts_again());
        let came_by = match ingress {
            Ingress::Port { port, .. } => Some(port),
            Ingress::Socket => sender,
        };
        self.pass((from, to), came_by, payload, pieces)
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
        let believes_clients = self.believes_clients();
        let hop = match self.route(from.ip().octets(), sought, came_by) {
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
            // A stamp that no switch has written.
            (None, Some(hosts)) if is_stamped_for_server(hosts, ends.1, payload) => {
                Err(Counter::OpcodeRefused)
            }
            (None, Some(hosts)) => {
                admit::admit_to_address(hosts, ingress, ends, payload, false).map(|()| None)
            }
            (None, None) => Ok(None),
        }
    }
}

/// Whether it has room for a stamp, and goes to a server itself, past the tables.
fn is_stamped_for_server(hosts: &HostIndex, to: SocketAddrV4, payload: &[u8]) -> bool {
    has_room_for_stamp(payload)
        && HeaderLayout::peek(payload).is_some()
        && hosts.with_ip(to.ip().octets()).is_some_and(|host| host.udp_port == to.port())
}
