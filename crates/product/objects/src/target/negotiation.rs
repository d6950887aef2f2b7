//! Negotiations: requests, bids, and how bids end.

use super::Target;
use super::interface::Storage;
use super::transfer::Transfer;
use crate::reservation::{Bid, BidId, Offsets, Refused, Request};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::chunk::{Answer, Chosen, ChunkAccept, ChunkId, ChunkRequest, Wanted};
use nicekv_proto::{NodeId, OpId};

/// A bid that is neither accepted nor cancelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Negotiation {
    pub(super) bid: Bid,
    pub(super) id: ChunkId,
    pub(super) bytes: u32,
    /// Places that hold the chunk already.
    pub(super) except: u16,
    pub(super) initiator: SocketAddrV4,
    pub(super) received_ns: u64,
}

/// Minimum time after which a refused initiator should request again.
const AGAIN_NS: u64 = 1_000_000;

impl Target {
    pub(super) fn on_request(&mut self, now_ns: u64, from: SocketAddrV4, request: &ChunkRequest) {
        let to = request.reply_to.unwrap_or(from);
        self.counters.requests += 1;
        let own = match request.wanted {
            Wanted::Get => self.reading_place(&request.id),
            Wanted::Put { .. } => self.own_place(&request.id),
        };
        let Some(place) = self.admit(to, request.op, request.version, request.id, own) else { return };
        let answer = match request.wanted {
            Wanted::Get => Some(self.offer_get(to, &request.id)),
            Wanted::Put { except, .. } if except >> place & 1 == 1 => None,
            Wanted::Put { bytes, earliest_ns, except } => {
                self.offer_put(now_ns, to, request, (bytes, earliest_ns, except))
            }
        };
        if let Some(answer) = answer {
            self.answer(to, request.op, place, request.id, answer);
        }
    }

    fn offer_put(
        &mut self,
        now_ns: u64,
        initiator: SocketAddrV4,
        request: &ChunkRequest,
        (bytes, earliest_ns, except): (u32, u64, u16),
    ) -> Option<Answer> {
        if self.confirm(&request.id) {
            self.counters.confirmed += 1;
            return Some(self.stored());
        }
        if let Some(known) = self.negotiations.get(&request.op) {
            // A duplicate request: the window stays the same, because the first request was sent
            // earlier or at the same time.
            let is_same = known.id == request.id && known.initiator == initiator;
            return is_same.then(|| bid_of(&known.bid));
        }
        if self.transfers.contains_key(&request.op) {
            return None;
        }
        if let Some(op) = self.arriving.get(&request.id) {
            self.counters.arriving += 1;
            return Some(Answer::Arriving(self.transfers[op].left_ns(now_ns).max(AGAIN_NS)));
        }
        if !self.disk.has_room(bytes) {
            self.counters.no_space += 1;
            return Some(Answer::NoSpace);
        }
        // Complete chunks occupy memory until the disk has them.
        if self.promised_memory() + u64::from(bytes) > self.config.reservation.bytes_max {
            self.counters.not_now += 1;
            return Some(Answer::NotNow(self.disk.half_queue_ns().max(AGAIN_NS)));
        }
        let random = self.random.bits();
        let backlog = self.disk.backlog(now_ns, bytes);
        match self.book.bid(now_ns, &Request { bytes, earliest_ns, backlog, random }) {
            Ok(bid) => {
                self.counters.bids += 1;
                self.disk.promise(bytes);
                let negotiation =
                    Negotiation { bid, id: request.id, bytes, except, initiator, received_ns: now_ns };
                self.negotiations.insert(request.op, negotiation);
                Some(bid_of(&bid))
            }
            Err(refused) => {
                self.counters.not_now += 1;
                Some(Answer::NotNow(again_ns(refused)))
            }
        }
    }

    /// Gives a chunk the stamp of the present round (P7). False if it is not held.
    fn confirm(&mut self, id: &ChunkId) -> bool {
        let round = self.stamp();
        let Some(held) = self.holdings.held.get_mut(id) else { return false };
        held.stamp = held.stamp.max(round);
        true
    }

    /// The initiator has chosen targets. If this one is among them, the chunk will arrive in the
    /// window; otherwise the promised time becomes free.
    pub(super) fn on_accept(&mut self, now_ns: u64, from: SocketAddrV4, accept: &ChunkAccept) {
        let to = accept.reply_to.unwrap_or(from);
        let own = self.own_place(&accept.id);
        let Some(place) = self.admit(to, accept.op, accept.version, accept.id, own) else { return };
        let chosen = accept.chosen.iter().find(|chosen| chosen.place == place);
        if let Some(transfer) = self.transfers.get_mut(&accept.op) {
            if chosen.is_some() {
                transfer.on_probe(now_ns);
                self.report(now_ns);
            }
            return;
        }
        let known = self.negotiations.get(&accept.op);
        if known.is_some_and(|known| known.initiator != to || known.id != accept.id) {
            self.counters.refused += 1;
            return;
        }
        let known = self.negotiations.remove(&accept.op);
        let answer = match (known, chosen) {
            (None, None) => None,
            (None, Some(_)) if self.confirm(&accept.id) => Some(self.stored()),
            (None, Some(_)) => Some(Answer::Lapsed),
            (Some(known), None) => {
                self.cancel(now_ns, &known);
                None
            }
            (Some(known), Some(chosen)) => self.take(now_ns, accept, known, chosen),
        };
        if let Some(answer) = answer {
            self.answer(to, accept.op, place, accept.id, answer);
        }
    }

    fn cancel(&mut self, now_ns: u64, known: &Negotiation) {
        self.counters.cancelled += 1;
        self.disk.release(known.bytes);
        // The bid may have expired at this very time.
        let _ = self.book.cancel(now_ns, known.bid.id);
    }

    /// A bid was accepted: begins a transfer, unless the chunk has arrived or is arriving in the
    /// meantime.
    fn take(
        &mut self,
        now_ns: u64,
        accept: &ChunkAccept,
        known: Negotiation,
        chosen: &Chosen,
    ) -> Option<Answer> {
        let Chosen { bid, left_ns, right_ns, .. } = *chosen;
        if self.confirm(&known.id) {
            self.cancel(now_ns, &known);
            return Some(self.stored());
        }
        if let Some(op) = self.arriving.get(&known.id) {
            let left_ns = self.transfers[op].left_ns(now_ns).max(AGAIN_NS);
            self.cancel(now_ns, &known);
            return Some(Answer::Arriving(left_ns));
        }
        let offsets = Offsets { left_ns, right_ns };
        if BidId(bid) != known.bid.id || self.book.accept(now_ns, known.bid.id, offsets).is_err() {
            self.cancel(now_ns, &known);
            return Some(Answer::Lapsed);
        }
        let until_ns = known.received_ns.saturating_add(right_ns).saturating_add(known.bid.disk_ns);
        self.begin(now_ns, accept, &known, until_ns);
        None
    }

    fn begin(&mut self, now_ns: u64, accept: &ChunkAccept, known: &Negotiation, until_ns: u64) {
        let holders = self.holders(accept, known.except);
        let Negotiation { bid, id, bytes, initiator, .. } = *known;
        let seed = self.random.bits() ^ u64::from(self.config.node.0);
        let transfer =
            Transfer::new(now_ns, (id, bytes), (bid.id, initiator), holders.clone(), (until_ns, seed));
        self.counters.transfers += 1;
        self.transfers.insert(accept.op, transfer);
        self.arriving.insert(id, accept.op);
        self.holdings.storage.push_back(Storage::Begin { op: accept.op, id, bytes, holders });
    }

    /// The rendezvous set of a chunk: the targets that the accept names, and those that held it before.
    fn holders(&self, accept: &ChunkAccept, except: u16) -> Vec<NodeId> {
        let group = self.map.as_ref().map(|map| map.group_of(&accept.id).1);
        let mask = accept
            .chosen
            .iter()
            .fold(except, |mask, chosen| mask | 1_u16.checked_shl(chosen.place.into()).unwrap_or(0));
        let members = group.into_iter().flat_map(|group| group.members());
        members.filter(|(place, _)| mask >> place & 1 == 1).map(|(_, node)| node).collect()
    }

    /// The map has changed, so initiators start their negotiations over. A transfer is abandoned if
    /// its chunk now belongs to another group: it was not acknowledged by the old map, and will not
    /// be by the new one (P2, P13).
    pub(super) fn give_up_for_map(&mut self, now_ns: u64) {
        let negotiations = core::mem::take(&mut self.negotiations);
        negotiations.values().for_each(|known| self.cancel(now_ns, known));
        let is_over = |(_, transfer): &(&OpId, &Transfer)| {
            !transfer.is_ending && self.own_place(&transfer.id).is_none()
        };
        let over: Vec<OpId> = self.transfers.iter().filter(is_over).map(|(op, _)| *op).collect();
        for op in over {
            let Some(transfer) = self.transfers.remove(&op) else { continue };
            self.counters.given_up += 1;
            // The transfer's bid may have expired at this very time.
            let _ = self.book.finish(transfer.bid);
            self.disk.release(transfer.bytes);
            self.arriving.remove(&transfer.id);
            self.holdings.storage.push_back(Storage::Abandon { op });
        }
    }

    /// Frees bids and transfers that have expired.
    pub(super) fn lapse(&mut self, now_ns: u64) {
        if self.book.lapse(now_ns) == 0 {
            return;
        }
        let (book, counters) = (&self.book, &mut self.counters);
        let (disk, storage) = (&mut self.disk, &mut self.holdings.storage);
        self.negotiations.retain(|_, known| {
            let is_over = !book.has(known.bid.id);
            counters.lapsed += u64::from(is_over);
            if is_over {
                disk.release(known.bytes);
            }
            !is_over
        });
        let arriving = &mut self.arriving;
        self.transfers.retain(|op, transfer| {
            let is_over = !transfer.is_ending && !book.has(transfer.bid);
            if is_over {
                counters.transfers_lapsed += 1;
                disk.release(transfer.bytes);
                arriving.remove(&transfer.id);
                storage.push_back(Storage::Abandon { op: *op });
            }
            !is_over
        });
    }
}

fn bid_of(bid: &Bid) -> Answer {
    Answer::Bid {
        bid: bid.id.0,
        left_ns: bid.window.left_ns,
        right_ns: bid.window.right_ns,
        disk_ns: bid.disk_ns,
    }
}

/// When a refused initiator should request again: promises expire soon, or the disk's queue must become shorter.
fn again_ns(refused: Refused) -> u64 {
    match refused {
        Refused::Full { .. } | Refused::Memory { .. } => AGAIN_NS,
        Refused::TooLate { after_ns, horizon_ns } => after_ns.saturating_sub(horizon_ns).max(AGAIN_NS),
    }
}
