//! A large value on its way to replicas.
//!
//! ```text
//!   begin ──▶ first flight, to everybody
//!   report of the primary ──▶ the members, by whose places reports go ──▶ what was said before by the others of them
//!   report of a newer epoch ──▶ the members anew
//!   everybody has everything, or nobody answers ──▶ nothing is sent ──▶ a report of one who lacks something: it is sent on from there
//! ```
//!
//! Who a report comes from is what it says; a stranger may say anything. What makes no sense changes nothing.
//!
//! A report is about the value, never about the op: whoever has all of the value may have logged the op, and it may yet be decided (R1, R15). So a replica that takes
//! nothing, the primary too, is left out and nothing else; the op ends by its decision, which is a reply, or at its deadline with its outcome unknown.

use super::slow::{Slow, SlowReplicas};
use super::{About, SharedBytes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::large::{Chunk, RECEIVERS_ALL, Reference, TransferReport, receiver_bit};
use nicekv_proto::limits::MEMBERS_MAX;
use nicekv_proto::quorum::Quorum;
use nicekv_proto::{Epoch, NodeId, OpId, Status};
use nicekv_transport::{Event, Mask, Report, Sender, SenderConfig, Stragglers, Transmit, checksum};

/// Chunks that leave before anybody has reported.
const FIRST_FLIGHT: u32 = 64;
/// The pace of a transfer at first: no bound before something is lost. Until then receivers' room is one, which they tell, and reports are the clock.
const CHUNKS_PER_SECOND: u32 = 1_000_000;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Nothing,
    Chunk,
    /// Nothing, but the update is to be sent again: who gets it reports.
    Question,
}

/// Who receives.
#[derive(Clone, Debug)]
struct Members {
    epoch: Epoch,
    nodes: Vec<NodeId>,
    /// Those that take it.
    mask: Mask,
}

impl Members {
    fn place(&self, node: NodeId) -> Option<u8> {
        self.nodes.iter().position(|known| *known == node).map(|place| place as u8)
    }

    fn add_to(&self, now_ns: u64, sender: &mut Sender, quorum: Option<Quorum>) {
        let all = self.mask.count_ones() as usize;
        sender.set_members(now_ns, self.mask, quorum.map_or(all, |quorum| quorum.write_set().min(all)));
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    about: About,
    reference: Reference,
    value: SharedBytes,
    members: Option<Members>,
    /// In a quorum keyspace not all are needed (R14).
    quorum: Option<Quorum>,
    /// Of them, those that it does without from the beginning.
    slow: Vec<Slow>,
    /// Those that are served alone, and are counted as such.
    alone: Vec<NodeId>,
    /// So many have everything.
    is_held: bool,
    /// The last reports from before it was known who receives.
    early: Vec<(NodeId, Epoch, Report)>,
    /// Chunks have left.
    has_begun: bool,
    sender: Option<Box<Sender>>,
}

impl Put {
    /// Of a value by the op that it is about.
    pub(crate) fn new(about: About, value: SharedBytes, quorum: Option<Quorum>) -> Self {
        let reference = Reference { name: about.op, length: value.len() as u32, checksum: checksum(&value) };
        Self {
            about,
            reference,
            value,
            members: None,
            quorum,
            slow: Vec::new(),
            alone: Vec::new(),
            is_held: false,
            early: Vec::new(),
            has_begun: false,
            sender: None,
        }
    }

    pub(crate) fn reference(&self) -> Reference {
        self.reference
    }

    /// It is put by another op from now on: nobody has anything of it yet.
    pub(crate) fn rename(&mut self, op: OpId) {
        (self.about.op, self.reference.name) = (op, op);
        (self.members, self.is_held) = (None, false);
        self.early.clear();
        self.stop();
    }

    /// False if it has begun.
    pub(super) fn begin(&mut self, now_ns: u64, slow: &SlowReplicas) -> bool {
        if core::mem::replace(&mut self.has_begun, true) {
            return false;
        }
        let spare = self.quorum.map_or(0, |quorum| quorum.replicas() - quorum.write_set());
        self.slow = slow.of_late(now_ns, spare);
        // Who receives is said anew.
        (self.members, self.is_held) = (None, false);
        self.sender = Some(self.sender_of(now_ns, FIRST_FLIGHT));
        true
    }

    fn sender_of(&self, now_ns: u64, first_flight: u32) -> Box<Sender> {
        let chunks = self.reference.chunks();
        Box::new(Sender::new(
            now_ns,
            SenderConfig { chunks, first_flight, chunks_per_second: CHUNKS_PER_SECOND },
        ))
    }

    pub(super) fn stop(&mut self) {
        (self.has_begun, self.sender) = (false, None);
    }

    /// Whether chunks are under way.
    pub(super) fn is_sending(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether more replicas are to have everything before there can be an answer.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_sending() && !self.is_held
    }

    /// A replica has told what it has, or that it takes nothing. False: that changes nothing.
    pub(super) fn on_report(&mut self, now_ns: u64, said: &TransferReport) -> bool {
        let report = report_of(said);
        if !report.is_possible(self.reference.chunks()) {
            return false;
        }
        // Where there is no primary each replica names the members.
        let names_members = !said.members.is_empty();
        if names_members && !self.take_members(now_ns, said) {
            return false;
        }
        let Some(members) = &self.members else {
            return self.keep_early(said, report);
        };
        match members.place(said.sender).filter(|_| members.epoch == said.epoch) {
            Some(place) if said.status == Status::Ok => self.take(now_ns, place, &report),
            Some(place) => self.leave_out(now_ns, place),
            None => return false,
        }
        true
    }

    /// Whether the list of members that a primary gives is the known one, or is from now on.
    fn take_members(&mut self, now_ns: u64, said: &TransferReport) -> bool {
        let TransferReport { epoch, sender: primary, members: nodes, .. } = said;
        let is_once = |node: &NodeId| nodes.iter().filter(|other| *other == node).count() == 1;
        if !nodes.contains(primary) || !nodes.iter().all(is_once) {
            return false;
        }
        if let Some(known) = self.members.as_ref().filter(|known| known.epoch >= *epoch) {
            return known.epoch == *epoch && known.nodes == *nodes;
        }
        let mask = ((1_u32 << nodes.len()) - 1) as Mask;
        let members = Members { epoch: *epoch, nodes: nodes.clone(), mask };
        let before = self.members.replace(members.clone());
        let has_others = |before: Members| before.nodes.iter().zip(nodes).any(|(was, is)| was != is);
        if self.sender.is_some() && before.is_some_and(has_others) {
            // What was known of places was known of others. They are asked what they have.
            self.sender = Some(self.sender_of(now_ns, 0));
        }
        if let Some(sender) = &mut self.sender {
            members.add_to(now_ns, sender, self.quorum);
            for (node, chunks_per_second) in &self.slow {
                let place = members.place(*node);
                place.into_iter().for_each(|place| sender.set_apart(now_ns, place, *chunks_per_second));
            }
        }
        for (node, of, report) in core::mem::take(&mut self.early) {
            if let Some(place) = members.place(node).filter(|_| of == *epoch) {
                self.take(now_ns, place, &report);
            }
        }
        true
    }

    /// Nobody knows yet whether it is from one who receives.
    fn keep_early(&mut self, said: &TransferReport, report: Report) -> bool {
        self.early.retain(|(node, ..)| *node != said.sender);
        if self.early.len() == MEMBERS_MAX {
            return false;
        }
        self.early.push((said.sender, said.epoch, report));
        true
    }

    fn take(&mut self, now_ns: u64, place: u8, report: &Report) {
        let is_whole = report.prefix == self.reference.chunks();
        let Some(members) = self.members.as_mut().filter(|_| self.sender.is_some() || !is_whole) else {
            return;
        };
        let is_back = members.mask >> place & 1 == 0;
        members.mask |= 1 << place;
        let sender = match &mut self.sender {
            Some(sender) if !is_back => sender,
            Some(sender) => {
                members.add_to(now_ns, sender, self.quorum);
                sender
            }
            None => {
                let members = members.clone();
                let mut sender = self.sender_of(now_ns, 0);
                members.add_to(now_ns, &mut sender, self.quorum);
                self.sender.insert(sender)
            }
        };
        sender.handle_report(now_ns, place, report);
        self.note_end();
    }

    /// A member does not take it for now: others are not to wait for it.
    fn leave_out(&mut self, now_ns: u64, place: u8) {
        let Some(members) = &mut self.members else { return };
        members.mask &= !(1 << place);
        if let Some(sender) = &mut self.sender {
            members.add_to(now_ns, sender, self.quorum);
        }
        self.note_end();
    }

    /// Whether enough have everything, or all, or nobody answers.
    fn note_end(&mut self) {
        while let Some(event) = self.sender.as_mut().and_then(|sender| sender.poll_event()) {
            match event {
                Event::Over | Event::Silent => self.sender = None,
                Event::Held(_) => self.is_held = true,
                Event::Lags(_) | Event::CaughtUp(_) | Event::GivenUp(_) => {}
            }
        }
    }

    /// Writes the next chunk to `out`, if one may leave now.
    pub(super) fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Sent {
        let transmit = self.sender.as_mut().and_then(|sender| sender.poll_transmit(now_ns));
        self.note_end();
        let (number, mask) = match transmit {
            None => return Sent::Nothing,
            Some(Transmit::Probe(_)) => return Sent::Question,
            Some(Transmit::Multicast(number, mask)) => (number, self.all_but_left_out(mask)),
            // By the way of all, on which the switch makes one copy: where a report comes from may be the vnode's address and not the replica's.
            Some(Transmit::Unicast(number, place)) => (number, self.receivers(1 << place)),
        };
        let Some((start, length)) = self.reference.chunk(number) else { return Sent::Nothing };
        let bytes = &self.value[start as usize..][..length];
        let About { keyspace, op, digest } = self.about;
        Chunk { keyspace, op, digest, number, mask, bytes }.encode(out);
        Sent::Chunk
    }

    /// A replica that is served alone in too many puts at a time is left to the others of this one, who give it the value when it asks them.
    pub(super) fn count_alone(&mut self, stragglers: &mut Stragglers<NodeId>) {
        let (Some(sender), Some(members)) = (&mut self.sender, &self.members) else {
            return self.uncount_alone(stragglers);
        };
        let places = sender.alone();
        let is_alone = |node: NodeId| members.place(node).is_some_and(|place| places >> place & 1 == 1);
        self.alone.retain(|node| {
            is_alone(*node) || {
                stragglers.end(node);
                false
            }
        });
        for (place, node) in members.nodes.iter().enumerate() {
            if places >> place & 1 == 0 || self.alone.contains(node) {
                continue;
            }
            if stragglers.begin(*node) {
                self.alone.push(*node);
            } else if sender.can_do_without_one() {
                sender.drop_member(place as u8);
            }
        }
    }

    pub(super) fn uncount_alone(&mut self, stragglers: &mut Stragglers<NodeId>) {
        self.alone.drain(..).for_each(|node| stragglers.end(&node));
    }

    /// Those who have got much less than who has everything, and how much in a second.
    pub(super) fn slow(&self) -> impl Iterator<Item = Slow> {
        let known = self.members.as_ref().zip(self.sender.as_deref());
        known.into_iter().flat_map(|(members, sender)| {
            sender.far_behind().map(|(place, rate)| (members.nodes[usize::from(place)], rate))
        })
    }

    /// The bits of members in the masks of chunks.
    fn receivers(&self, mask: Mask) -> u16 {
        let nodes = self.members.iter().flat_map(|members| members.nodes.iter().enumerate());
        nodes
            .filter(|(place, _)| mask >> place & 1 == 1)
            .fold(0, |bits, (_, node)| bits | receiver_bit(*node))
    }

    /// Everybody who receives by the vnode, also who joins and is no member yet, but members that are not of the mask, or are known to be slow.
    fn all_but_left_out(&self, mask: Mask) -> u16 {
        if self.members.is_none() {
            return self.slow.iter().fold(RECEIVERS_ALL, |bits, (node, _)| bits & !receiver_bit(*node));
        }
        RECEIVERS_ALL & !self.receivers(!mask) | self.receivers(mask)
    }

    /// When [`Self::poll_transmit`] is to be called at the latest.
    pub(super) fn next_deadline(&self) -> u64 {
        self.sender.as_ref().map_or(u64::MAX, |sender| sender.next_deadline())
    }
}

fn report_of(said: &TransferReport) -> Report {
    Report {
        prefix: said.prefix,
        end: said.end,
        limit: said.limit,
        arrived: said.arrived,
        asked: said.asked,
        held_ns: said.held_ns,
        chunks_per_second: said.chunks_per_second,
        missing: said.missing.iter().map(|hole| hole.start..hole.end).collect(),
    }
}
