//! A large value on its way to replicas.
//!
//! ```text
//!   begin ──▶ first flight, to everybody
//!   report of the primary ──▶ the members, by whose places masks go ──▶ what was said before by the others of them
//!   report of a newer epoch ──▶ the members anew
//!   everybody has everything, or nobody answers ──▶ nothing is sent ──▶ a report of one who lacks something: it is sent on from there
//! ```
//!
//! Who a report comes from is what it says; a stranger may say anything. What makes no sense changes nothing.

use super::About;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_transport::{Event, Mask, Report, Sender, SenderConfig, Transmit, checksum};
use nicekv_wire::large::{Chunk, Reference, TransferReport};
use nicekv_wire::limits::MEMBERS_MAX;
use nicekv_wire::{Epoch, NodeId, OpId, Status};

/// Chunks that leave before anybody has reported.
const FIRST_FLIGHT: u32 = 64;
/// The pace of a transfer at first.
const CHUNKS_PER_SECOND: u32 = 50_000;

/// What to make of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing.
    Nothing,
    /// A replica has told what it has, or may have.
    Report,
    /// The primary has decided: nothing is stored.
    End(Status),
}

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

    fn add_to(&self, now_ns: u64, sender: &mut Sender) {
        sender.set_members(now_ns, self.mask, self.mask.count_ones() as usize);
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    about: About,
    reference: Reference,
    value: Vec<u8>,
    members: Option<Members>,
    /// The last reports from before it was known who receives.
    early: Vec<(NodeId, Epoch, Report)>,
    sender: Option<Box<Sender>>,
}

impl Put {
    /// Of a value that is longer than a datagram has room for.
    pub(crate) fn new(about: About, value: &[u8]) -> Self {
        let reference = Reference { name: about.op, length: value.len() as u32, checksum: checksum(value) };
        let value = value.to_vec();
        Self { about, reference, value, members: None, early: Vec::new(), sender: None }
    }

    pub(crate) fn reference(&self) -> Reference {
        self.reference
    }

    /// It is put by another op from now on: nobody has anything of it yet.
    pub(crate) fn rename(&mut self, op: OpId) {
        (self.about.op, self.reference.name, self.members) = (op, op, None);
        self.early.clear();
        self.sender = None;
    }

    pub(super) fn begin(&mut self, now_ns: u64) {
        self.sender = Some(self.sender_of(now_ns, FIRST_FLIGHT));
    }

    fn sender_of(&self, now_ns: u64, first_flight: u32) -> Box<Sender> {
        let chunks = self.reference.chunks();
        Box::new(Sender::new(
            now_ns,
            SenderConfig { chunks, first_flight, chunks_per_second: CHUNKS_PER_SECOND },
        ))
    }

    pub(super) fn stop(&mut self) {
        self.sender = None;
    }

    pub(super) fn is_sending(&self) -> bool {
        self.sender.is_some()
    }

    /// A replica has told what it has.
    pub(super) fn on_report(&mut self, now_ns: u64, said: &TransferReport) -> Heard {
        let report = report_of(said);
        if !report.is_possible(self.reference.chunks()) {
            return Heard::Nothing;
        }
        let is_primary = !said.members.is_empty();
        if is_primary && !self.take_members(now_ns, said) {
            return Heard::Nothing;
        }
        if is_primary && said.status != Status::Ok {
            return Heard::End(said.status);
        }
        let Some(members) = &self.members else {
            return self.keep_early(said, report);
        };
        match members.place(said.sender).filter(|_| members.epoch == said.epoch) {
            Some(place) if said.status == Status::Ok => self.take(now_ns, place, &report),
            Some(place) => self.leave_out(now_ns, place),
            None => return Heard::Nothing,
        }
        Heard::Report
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
            members.add_to(now_ns, sender);
        }
        for (node, of, report) in core::mem::take(&mut self.early) {
            if let Some(place) = members.place(node).filter(|_| of == *epoch) {
                self.take(now_ns, place, &report);
            }
        }
        true
    }

    /// Nobody knows yet whether it is from one who receives.
    fn keep_early(&mut self, said: &TransferReport, report: Report) -> Heard {
        self.early.retain(|(node, ..)| *node != said.sender);
        if self.early.len() == MEMBERS_MAX {
            return Heard::Nothing;
        }
        self.early.push((said.sender, said.epoch, report));
        Heard::Report
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
                members.add_to(now_ns, sender);
                sender
            }
            None => {
                let members = members.clone();
                let mut sender = self.sender_of(now_ns, 0);
                members.add_to(now_ns, &mut sender);
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
            members.add_to(now_ns, sender);
        }
        self.note_end();
    }

    /// Whether everybody has everything, or nobody answers.
    fn note_end(&mut self) {
        while let Some(event) = self.sender.as_mut().and_then(|sender| sender.poll_event()) {
            if matches!(event, Event::Over | Event::Silent) {
                self.sender = None;
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
            Some(Transmit::Multicast(number, mask)) => (number, mask),
            // To one of the mask, by the way of all: where a report comes from may be the vnode's address and not the replica's.
            Some(Transmit::Unicast(number, place)) => (number, 1 << place),
        };
        let Some((start, length)) = self.reference.chunk(number) else { return Sent::Nothing };
        let bytes = &self.value[start as usize..][..length];
        let About { keyspace, op, digest } = self.about;
        Chunk { keyspace, op, digest, number, mask, bytes }.encode(out);
        Sent::Chunk
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
        held_ns: said.held_ns,
        chunks_per_second: said.chunks_per_second,
        missing: said.missing.iter().map(|hole| hole.start..hole.end).collect(),
    }
}
