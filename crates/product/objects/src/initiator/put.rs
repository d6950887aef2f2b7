//! A put of a chunk.

use super::bid_choice::{Offered, Taken, Wanted as Choice, choose};
use super::delivery::Delivery;
use super::interface::{Handle, Placed, PutError};
use super::shared::Shared;
use crate::reservation::{COPIES_MAX, Offsets, Receipt, Window};
use crate::transmit::Transmit;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nicekv_proto::chunk::{
    Answer, CHUNK_LENGTH_MAX, Chosen, ChunkAccept, ChunkAnswer, ChunkId, Round, Wanted, frames_of,
};
use nicekv_proto::large::TransferReport;
use nicekv_proto::placement::GROUP_MASK_ALL;
use nicekv_proto::{NodeId, OpId};

/// After this many failed attempts a put takes fewer targets at once than it needs, and does not wait for silent ones.
const ATTEMPTS_FOR_ALL: u32 = 3;

/// A request was sent, and answers are awaited.
#[derive(Clone, Debug)]
struct Requesting {
    sent_ns: u64,
    until_ns: u64,
    /// Masks of targets: those asked, those that have answered, and those that have answered that
    /// they have no room.
    asked: u16,
    answered: u16,
    full: u16,
    offers: Vec<Offered>,
    /// When to ask targets again that could promise nothing.
    again_ns: u64,
}

/// Frames are sent, or acknowledgements are awaited.
#[derive(Clone, Debug)]
struct Sending {
    accept: ChunkAccept,
    deliveries: Vec<Delivery>,
    /// Mask of targets that have not acknowledged yet.
    awaited: u16,
    /// When the attempt ends.
    due_ns: u64,
    /// Number of holders before this attempt.
    holders: usize,
}

#[derive(Clone, Debug)]
enum Phase {
    Waiting {
        until_ns: u64,
    },
    /// It waits for its turn on the initiator's link.
    Queued,
    Requesting(Requesting),
    Sending(Sending),
}

/// A running put.
#[derive(Clone, Debug)]
pub(super) struct Put {
    handle: Handle,
    id: ChunkId,
    bytes: Arc<[u8]>,
    /// Targets that hold the chunk, with their stamps, by place.
    holders: BTreeMap<u8, (NodeId, Round)>,
    /// Targets that have all frames and must make them durable, by place, and how long to wait for
    /// each. Meanwhile the chunk is not sent to others.
    syncing: BTreeMap<u8, u64>,
    phase: Phase,
    /// Op id of the current attempt.
    op: OpId,
    attempts: u32,
    has_sent: bool,
    /// A target answered that it held the chunk before anything was sent.
    was_there: bool,
    /// The windows of the other bids had passed by the time a target was known to be silent: the
    /// next windows must begin later.
    is_late: bool,
    deadline_ns: u64,
}

impl Put {
    pub(super) fn new(
        now_ns: u64,
        handle: Handle,
        (id, bytes): (ChunkId, Arc<[u8]>),
        own: Option<u8>,
        shared: &mut Shared,
    ) -> Self {
        let group = shared.group_of(&id).map(|(_, group)| group);
        let own = own.and_then(|place| Some((place, (group?.at(place)?, Round(u64::MAX)))));
        let mut put = Self {
            handle,
            id,
            bytes,
            holders: own.into_iter().collect(),
            syncing: BTreeMap::new(),
            phase: Phase::Waiting { until_ns: u64::MAX },
            op: OpId::NONE,
            attempts: 0,
            has_sent: false,
            was_there: false,
            is_late: false,
            deadline_ns: now_ns.saturating_add(shared.config.timing.deadline_ns),
        };
        if put.bytes.is_empty() || put.bytes.len() > CHUNK_LENGTH_MAX as usize {
            let error = PutError::Length { bytes: put.bytes.len(), bytes_max: CHUNK_LENGTH_MAX };
            shared.end_put(handle, Err(error));
        } else {
            put.request(now_ns, shared);
        }
        put
    }

    /// Starts over with a new map.
    pub(super) fn begin_anew(&mut self, now_ns: u64, shared: &mut Shared) {
        self.holders.clear();
        self.syncing.clear();
        shared.end_turn(self.handle);
        self.request(now_ns, shared);
    }

    fn length(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Mask of targets that hold the chunk, or are about to.
    fn held(&self) -> u16 {
        self.holders.keys().chain(self.syncing.keys()).fold(0, |mask, place| mask | 1 << place)
    }

    /// To how many more targets the chunk must be sent.
    fn missing(&self, shared: &Shared) -> usize {
        shared.config.copies.saturating_sub(self.held().count_ones() as usize)
    }

    /// Sends a request to all targets that do not hold the chunk. If enough targets are about to
    /// hold it, waits for them instead.
    fn request(&mut self, now_ns: u64, shared: &mut Shared) {
        let Some((_, group)) = shared.group_of(&self.id) else { return };
        self.syncing.retain(|_, until_ns| *until_ns > now_ns);
        if let Some(until_ns) = self.syncing.values().min().filter(|_| self.missing(shared) == 0) {
            self.phase = Phase::Waiting { until_ns: *until_ns };
            return;
        }
        if shared.turn_ns(self.handle) > now_ns {
            self.phase = Phase::Queued;
            return;
        }
        let except = self.held();
        let asked = group.mask() & !except;
        let earliest_ns = if self.is_late { shared.config.timing.answers_ns } else { 0 };
        let wanted = Wanted::Put { bytes: self.length(), earliest_ns, except };
        // The whole group gets the request, including holders, so that a negotiation uses a single
        // address even with switches that know no masks.
        self.op = shared.request(self.handle, self.id, wanted);
        let until_ns = now_ns.saturating_add(shared.config.timing.answers_ns);
        shared.take_turn(self.handle, until_ns);
        self.phase = Phase::Requesting(Requesting {
            sent_ns: now_ns,
            until_ns,
            asked,
            answered: 0,
            full: 0,
            offers: Vec::new(),
            again_ns: u64::MAX,
        });
    }

    fn wait(&mut self, now_ns: u64, again_ns: u64, shared: &mut Shared) {
        shared.end_turn(self.handle);
        let pause_ns = shared.pause_ns(self.attempts);
        self.attempts += 1;
        // The target's hint when to ask again may be wrong, so it is bounded.
        let most_ns = shared.config.timing.again_ns_max;
        let hint_ns = if again_ns == u64::MAX { 0 } else { again_ns.saturating_sub(now_ns).min(most_ns) };
        self.phase = Phase::Waiting { until_ns: now_ns.saturating_add(pause_ns.max(hint_ns)) };
    }

    pub(super) fn on_answer(&mut self, now_ns: u64, answer: &ChunkAnswer, shared: &mut Shared) {
        if answer.id != self.id {
            shared.counters.unexpected += 1;
            return;
        }
        let bit = 1 << answer.place;
        // Even if the answer belongs to an earlier attempt, it shows that the target's transfer has
        // ended.
        self.syncing.remove(&answer.place);
        if let Answer::Stored { stamp, .. } = answer.answer {
            self.holders.insert(answer.place, (answer.node, stamp));
            self.was_there |= !self.has_sent;
        }
        if self.holders.len() >= shared.config.copies {
            return self.end(shared);
        }
        if answer.op != self.op {
            return;
        }
        match &mut self.phase {
            Phase::Requesting(requesting)
                if requesting.asked & bit != 0 && requesting.answered & bit == 0 =>
            {
                requesting.take(now_ns, answer);
                if requesting.answered == requesting.asked {
                    self.decide(now_ns, shared);
                }
            }
            Phase::Sending(sending) if sending.awaited & bit != 0 => {
                // Whatever the answer is, this target needs no more frames.
                sending.awaited &= !bit;
                sending.deliveries.iter_mut().for_each(|delivery| delivery.drop_target(answer.place));
                let has_more = self.holders.len() > sending.holders;
                shared.counters.lapsed += u64::from(answer.answer == Answer::Lapsed);
                match sending.awaited {
                    // Some targets have stored the chunk: continues with the others at once.
                    0 if has_more => {
                        shared.end_turn(self.handle);
                        self.request(now_ns, shared);
                    }
                    0 => self.wait(now_ns, u64::MAX, shared),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Ends the put, because enough targets hold the chunk. Cancels open bids.
    fn end(&mut self, shared: &mut Shared) {
        if let Phase::Requesting(_) = self.phase {
            self.accept(Vec::new(), shared);
        }
        shared.counters.known += u64::from(!self.has_sent);
        let stamp = self.holders.values().map(|(_, stamp)| *stamp).min();
        let placed = Placed {
            version: shared.version(),
            stamp: stamp.unwrap_or_default(),
            holders: self.holders.values().map(|(node, _)| *node).collect(),
        };
        shared.end_put(self.handle, Ok(placed));
    }

    fn accept(&mut self, chosen: Vec<Chosen>, shared: &mut Shared) -> ChunkAccept {
        shared.counters.accepts += 1;
        let accept =
            ChunkAccept { op: self.op, reply_to: None, version: shared.version(), id: self.id, chosen };
        shared.send(&self.id, GROUP_MASK_ALL, |out| accept.encode(out));
        accept
    }

    /// Decides by the bids that have arrived.
    fn decide(&mut self, now_ns: u64, shared: &mut Shared) {
        let Phase::Requesting(requesting) = &mut self.phase else { return };
        let (again_ns, is_silent) = (requesting.again_ns, requesting.answered != requesting.asked);
        let offers = core::mem::take(&mut requesting.offers);
        if requesting.full == requesting.asked {
            return shared.end_put(self.handle, Err(PutError::NoSpace));
        }
        // The chunk existed before, so silent targets may hold it: they are asked again before it
        // is sent to others.
        if is_silent && self.was_there && self.attempts < ATTEMPTS_FOR_ALL {
            self.accept(Vec::new(), shared);
            return self.wait(now_ns, again_ns, shared);
        }
        let picks = self.choose(now_ns, &offers, shared);
        let chosen: Vec<Chosen> =
            picks.iter().filter_map(|(offered, window)| chosen_of(offered, *window)).collect();
        let accept = self.accept(chosen, shared);
        if accept.chosen.is_empty() {
            shared.counters.no_common_window += u64::from(!offers.is_empty());
            self.is_late = is_silent;
            return self.wait(now_ns, again_ns, shared);
        }
        self.has_sent = true;
        let frames = frames_of(self.length());
        let deliveries = Delivery::of(&shared.config.reservation, frames, &picks_of(&picks));
        let awaited = accept.chosen.iter().fold(0, |mask, chosen| mask | 1 << chosen.place);
        let due = picks.iter().map(|(offered, window)| window.right_ns.saturating_add(offered.disk_ns));
        let due_ns = due.max().unwrap_or(now_ns).saturating_add(shared.config.timing.acks_ns);
        shared.take_turn(self.handle, due_ns);
        let holders = self.holders.len();
        self.phase = Phase::Sending(Sending { accept, deliveries, awaited, due_ns, holders });
    }

    /// Chooses bids, and a window within each.
    fn choose(&self, now_ns: u64, offered: &[Offered], shared: &mut Shared) -> Vec<Taken> {
        let most = self.missing(shared).min(offered.len()).min(COPIES_MAX);
        let must_have_all = self.attempts < ATTEMPTS_FOR_ALL;
        let wanted = Choice { bytes: self.length(), least: if must_have_all { most } else { 1 }, most };
        choose(now_ns, wanted, offered, shared)
    }

    pub(super) fn on_report(&mut self, now_ns: u64, report: &TransferReport, shared: &mut Shared) {
        let place = shared.group_of(&self.id).and_then(|(_, group)| group.place_of(report.sender));
        match (&mut self.phase, place) {
            (Phase::Sending(sending), Some(place)) if report.op == self.op => {
                sending.deliveries.iter_mut().for_each(|delivery| delivery.on_report(now_ns, place, report));
                let is_there = report.prefix == frames_of(self.bytes.len() as u32);
                if is_there && sending.awaited >> place & 1 == 1 {
                    self.syncing.insert(place, now_ns.saturating_add(shared.config.timing.disk_ns));
                }
            }
            _ => shared.counters.unexpected += 1,
        }
    }

    pub(super) fn on_deadline(&mut self, now_ns: u64, shared: &mut Shared) {
        if now_ns >= self.deadline_ns {
            return shared.end_put(self.handle, Err(PutError::Unknown));
        }
        match &self.phase {
            Phase::Waiting { until_ns } if now_ns >= *until_ns => self.request(now_ns, shared),
            Phase::Queued => self.request(now_ns, shared),
            Phase::Requesting(requesting) if now_ns >= requesting.until_ns => self.decide(now_ns, shared),
            Phase::Sending(sending) if now_ns >= sending.due_ns => {
                shared.counters.overdue += 1;
                self.wait(now_ns, u64::MAX, shared);
            }
            _ => {}
        }
    }

    pub(super) fn next_deadline(&self, shared: &Shared) -> u64 {
        let next_ns = match &self.phase {
            Phase::Waiting { until_ns } => *until_ns,
            Phase::Queued => shared.turn_ns(self.handle),
            Phase::Requesting(requesting) => requesting.until_ns,
            Phase::Sending(sending) => {
                let deliveries = sending.deliveries.iter().map(Delivery::next_deadline);
                deliveries.min().unwrap_or(u64::MAX).min(sending.due_ns)
            }
        };
        next_ns.min(self.deadline_ns)
    }

    pub(super) fn poll_transmit(&mut self, now_ns: u64, shared: &mut Shared) -> Option<Transmit> {
        let Phase::Sending(sending) = &mut self.phase else { return None };
        for delivery in &mut sending.deliveries {
            delivery.poll(now_ns, (&self.id, &self.bytes), &sending.accept, shared);
            if let Some(send) = shared.sends.pop_front() {
                return Some(send);
            }
        }
        if sending.deliveries.iter().all(Delivery::has_left) {
            shared.end_turn(self.handle);
        }
        None
    }
}

impl Requesting {
    /// Records the answer of a target.
    fn take(&mut self, now_ns: u64, answer: &ChunkAnswer) {
        self.answered |= 1 << answer.place;
        match answer.answer {
            Answer::Bid { bid, left_ns, right_ns, disk_ns } => {
                let receipt = Receipt::between(self.sent_ns, now_ns);
                let place = answer.place;
                // A window narrower than a round trip is useless.
                if let Some(window) = receipt.window(Offsets { left_ns, right_ns }) {
                    self.offers.push(Offered { place, bid, receipt, window, disk_ns });
                }
            }
            Answer::Arriving(after_ns) | Answer::NotNow(after_ns) => {
                self.again_ns = self.again_ns.min(now_ns.saturating_add(after_ns));
            }
            Answer::NoSpace => self.full |= 1 << answer.place,
            _ => {}
        }
    }
}

fn chosen_of(offered: &Offered, window: Window) -> Option<Chosen> {
    let Offsets { left_ns, right_ns } = offered.receipt.offsets(window)?;
    Some(Chosen { place: offered.place, bid: offered.bid, left_ns, right_ns })
}

fn picks_of(picks: &[(Offered, Window)]) -> Vec<(u8, Window)> {
    picks.iter().map(|(offered, window)| (offered.place, *window)).collect()
}
