//! Handles clients' requests: unpacks bundles, and finds the partition of each request.

use crate::modes::messages::Request;
use crate::node::Replica;
use crate::node::trace::Step;
use core::net::SocketAddrV4;
use nicekv_proto::bundle::Bundle;
use nicekv_proto::hot::Stamp;
use nicekv_proto::route::{ChainHeader, Room};
use nicekv_proto::scan::Scan;
use nicekv_proto::{Datagram, Header, KeyDigest, KeyspaceId, MatchRange, Now, Opcode};

impl Replica {
    /// Handles a bundle, which holds requests of one client. Switches do not look inside, so the
    /// requests themselves do not contain the address for replies.
    pub(crate) fn on_bundle(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        header: &Header,
        bundle: &Bundle<'_>,
        room: Option<&Room>,
    ) {
        let reply_to = header.reply_to.unwrap_or(from);
        self.host.outbox.bundle_to(reply_to);
        let mut whole = core::mem::take(&mut self.bundled);
        for (header, body) in bundle.datagrams(header) {
            match header.opcode {
                // The update is logged in the form in which the client would have sent it by
                // itself.
                Opcode::Update => {
                    header.with_body(body, &mut whole);
                    self.handle_plain(now, from, &whole, room);
                }
                Opcode::Get | Opcode::QuorumQuery | Opcode::QuorumStore => {
                    match Datagram::of(&header, body) {
                        Ok(request) => self.on_request(now, from, &header, &request, (body, room)),
                        Err(_) => self.host.counters.malformed += 1,
                    }
                }
                _ => self.host.counters.malformed += 1,
            }
        }
        self.bundled = whole;
    }

    /// Handles one request. `bytes`: the datagram of an update, which contains the parts of
    /// `datagram`; unused for other requests. `room`: what a switch has written into the request's
    /// room.
    pub(crate) fn on_request(
        &mut self,
        now: Now,
        from: SocketAddrV4,
        header: &Header,
        datagram: &Datagram<'_>,
        (bytes, room): (&[u8], Option<&Room>),
    ) {
        let (chain, stamp) = written_in(room);
        // Clients may ask a node that coordinates directly, without a switch. If a chain header is
        // there, a switch has forwarded the request.
        let may_be_direct = self.host.config.coordinates && chain.is_none();
        if may_be_direct && !self.may_answer_directly(now, datagram) {
            return;
        }
        if let Datagram::Get(get) = datagram
            && self.is_answered_hot(now, from, get, stamp)
        {
            return;
        }
        let (keyspace, reached) = (header.keyspace, &mut None);
        let (slot, request) = match datagram {
            Datagram::Get(get) => match get.forwarded {
                Some((id, epoch, node)) => (
                    self.heard(from, id, epoch, node).filter(|slot| self.holds(*slot, get.key, &get.digest)),
                    Request::Get(get),
                ),
                None => (self.route(keyspace, get.key, &get.digest), Request::Get(get)),
            },
            Datagram::Scan(scan) => {
                let (slot, scan) = self.route_scan(from, keyspace, scan);
                (slot, Request::Scan(reached.insert(scan)))
            }
            Datagram::Update(update) => {
                (self.route(keyspace, update.key, &update.digest), Request::Update(update, bytes))
            }
            Datagram::QuorumQuery(query) => {
                (self.route(keyspace, query.key, &query.digest), Request::Query(query))
            }
            Datagram::QuorumStore(store) => {
                (self.route(keyspace, store.key, &store.digest), Request::Store(store, bytes))
            }
            _ => unreachable!("no request"),
        };
        let slot = slot.filter(|slot| self.came_by_its_chain(*slot, request.is_put(), chain));
        let is_ending = |slot: &usize| {
            self.takeovers.waits() && self.takeovers.ends(self.partitions[*slot].membership().partition)
        };
        if let Some(slot) = slot.filter(|slot| !is_ending(slot)) {
            self.host.trace.note(now, header.op, Step::Arrived);
            let membership = self.partitions[slot].membership();
            self.usage.note_request(self.host.config.node, membership, &request);
            if let Request::Get(get) = &request
                && get.forwarded.is_none()
            {
                self.sources.note(membership.partition, *header.reply_to.unwrap_or(from).ip(), 1);
            }
            let (id, value) = (membership.partition, asked_value(&request));
            if let Some(value) = value {
                self.note_heat(id, value);
            }
            if let Request::Update(update, _) = &request {
                self.note_stamp(slot, update, stamp);
            }
            self.partitions[slot].on_request(&mut self.host, now, from, request);
        }
    }

    /// Whether a request fits this epoch's chain (C5), if a switch has written a chain header. A
    /// request without room names no epoch; then the roles alone decide who answers (C3).
    pub(crate) fn came_by_its_chain(
        &mut self,
        slot: usize,
        is_put: bool,
        chain: Option<&ChainHeader>,
    ) -> bool {
        let Some(chain) = chain else { return true };
        let is_its = self.partitions[slot].membership().is_passed_by(chain, is_put);
        self.host.counters.refused += u64::from(!is_its);
        is_its
    }

    /// The partition of a request, if its digest is correct. Switches route by the digest, and a
    /// wrong digest must not store a key in a partition that does not own it.
    pub(crate) fn route(&mut self, keyspace: KeyspaceId, key: &[u8], digest: &KeyDigest) -> Option<usize> {
        let Some(slot) = self.partitions.find(keyspace, digest.match_value()) else {
            // No reply: this node may not have its assignment yet, and another member may serve the
            // request.
            self.host.counters.dropped += 1;
            return None;
        };
        if self.partitions[slot].membership().digest(key) != *digest {
            self.host.counters.malformed += 1;
            return None;
        }
        Some(slot)
    }

    /// The partition in which a scan begins, and the scan limited to the keys of that partition.
    /// Another partition may have taken over the rest of the range (R17).
    fn route_scan<'a>(
        &mut self,
        from: SocketAddrV4,
        keyspace: KeyspaceId,
        scan: &Scan<'a>,
    ) -> (Option<usize>, Scan<'a>) {
        let (first, last) = (scan.range.first(), scan.range.last());
        let slot = match scan.forwarded {
            Some((id, epoch, node)) => self.heard(from, id, epoch, node),
            None => self.partitions.find(keyspace, first),
        };
        let reach = slot.and_then(|slot| self.partitions.reach(slot, first));
        let range = reach.and_then(|reach| MatchRange::new(first, last.min(reach)).ok());
        self.host.counters.dropped += u64::from(range.is_none());
        (slot.filter(|_| range.is_some()), Scan { range: range.unwrap_or(scan.range), ..*scan })
    }

    /// Whether a key that another member sends belongs to the partition.
    pub(crate) fn holds(&mut self, slot: usize, key: &[u8], digest: &KeyDigest) -> bool {
        let membership = self.partitions[slot].membership();
        let holds = membership.digest(key) == *digest && membership.range.contains(digest.match_value());
        self.host.counters.malformed += u64::from(!holds);
        holds
    }
}

/// The chain header and the stamp that a switch has written into a request's room.
pub(crate) fn written_in(room: Option<&Room>) -> (Option<&ChainHeader>, Stamp) {
    match room {
        Some(Room::Chain(chain)) => (Some(chain), Stamp::NONE),
        Some(Room::Stamp(stamp)) => (None, *stamp),
        None => (None, Stamp::NONE),
    }
}

/// The match value of the key that a client requests; `None` for a scan, or for a request that
/// another node passed on.
fn asked_value(request: &Request<'_>) -> Option<u128> {
    let digest = match request {
        Request::Get(get) if get.forwarded.is_none() => &get.digest,
        Request::Update(update, _) => &update.digest,
        Request::Query(query) => &query.digest,
        Request::Store(store, _) => &store.digest,
        Request::Get(_) | Request::Scan(_) => return None,
    };
    Some(digest.match_value())
}
