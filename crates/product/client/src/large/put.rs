//! One large value that is put.
//!
//! ```text
//!   begin ──▶ first flight, to all receivers
//!   report of the primary ──▶ members, whose order gives each its place ──▶ earlier reports of these members count
//!   report of a newer epoch ──▶ new members
//!   all members have everything, or none answers ──▶ sending stops ──▶ a member reports missing chunks: it resumes
//! ```
//!
//! A report is not authenticated: it may claim any sender. A report that contradicts the transfer changes nothing.
//!
//! A report is about the value, never about the op. A replica with all of the value may have logged the op, which may
//! still be decided (R1, R15). So a replica that refuses the value, even the primary, is only left out of the transfer. The
//! op ends with its decision, which is a reply, or at its deadline with its outcome unknown.

use super::read_source::About;
use super::shared_bytes::SharedBytes;
use super::slow_replicas::{Slow, SlowReplicas};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::large::{Chunk, RECEIVERS_ALL, Reference, TransferReport, receiver_bit};
use nicekv_proto::limits::MEMBERS_MAX;
use nicekv_proto::quorum::Quorum;
use nicekv_proto::{Epoch, NodeId, OpId, Status};
use nicekv_transport::{Event, Mask, Report, Sender, SenderConfig, Stragglers, Transmit, checksum};

/// Chunks that are sent before the first report.
const FIRST_FLIGHT: u32 = 64;
/// The initial pace: practically unbounded until something is lost. Until then, the receivers'
/// window limits the transfer, and their reports clock it.
const CHUNKS_PER_SECOND: u32 = 1_000_000;

/// The content of the datagram that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Nothing,
    Chunk,
    /// Nothing; the update is to be sent again, to make its receivers report.
    Question,
}

/// The receivers.
#[derive(Clone, Debug)]
struct Members {
    epoch: Epoch,
    nodes: Vec<NodeId>,
    /// Mask of the members that take the value, by place.
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

/// The transfer of a value that is put.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    about: About,
    reference: Reference,
    value: SharedBytes,
    members: Option<Members>,
    /// A quorum keyspace does not need all members (R14).
    quorum: Option<Quorum>,
    /// Members that are left out from the beginning, because they are slow.
    slow: Vec<Slow>,
    /// Members that are served by unicast, each counted in [`Stragglers`].
    alone: Vec<NodeId>,
    /// Enough members have received everything.
    is_held: bool,
    /// The last report of each sender, until the members are known.
    early: Vec<(NodeId, Epoch, Report)>,
    /// Chunks have been sent.
    has_begun: bool,
    sender: Option<Box<Sender>>,
}

impl Put {
    /// The put of `value` by the op in `about`.
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

    /// Starts over under another op id; no replica has received anything under it.
    pub(crate) fn rename(&mut self, op: OpId) {
        (self.about.op, self.reference.name) = (op, op);
        (self.members, self.is_held) = (None, false);
        self.early.clear();
        self.stop();
    }

    /// Starts the transfer. Returns false if it has already begun.
    pub(crate) fn begin(&mut self, now_ns: u64, slow: &SlowReplicas) -> bool {
        if core::mem::replace(&mut self.has_begun, true) {
            return false;
        }
        let spare = self.quorum.map_or(0, |quorum| quorum.replicas() - quorum.write_set());
        self.slow = slow.recent(now_ns, spare);
        // The primary will name the members again.
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

    pub(crate) fn stop(&mut self) {
        (self.has_begun, self.sender) = (false, None);
    }

    /// Whether chunks are being sent.
    pub(crate) fn is_sending(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether more members must have received everything before there can be an answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_sending() && !self.is_held
    }

    /// A replica reports which chunks it has, or that it refuses the value. Returns false if the
    /// report changes nothing.
    pub(crate) fn on_report(&mut self, now_ns: u64, said: &TransferReport) -> bool {
        let report = report_of(said);
        if !report.is_valid(self.reference.chunks()) {
            return false;
        }
        // Without a primary each replica names the members.
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

    /// Takes the list of members from a report. Returns false if it contradicts what is known.
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
            // The places now belong to other members, which are asked what they have.
            self.sender = Some(self.sender_of(now_ns, 0));
        }
        if let Some(sender) = &mut self.sender {
            members.add_to(now_ns, sender, self.quorum);
            for (node, chunks_per_second) in &self.slow {
                let place = members.place(*node);
                place
                    .into_iter()
                    .for_each(|place| sender.serve_by_unicast(now_ns, place, *chunks_per_second));
            }
        }
        for (node, of, report) in core::mem::take(&mut self.early) {
            if let Some(place) = members.place(node).filter(|_| of == *epoch) {
                self.take(now_ns, place, &report);
            }
        }
        true
    }

    /// Keeps a report until the members are known.
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

    /// A member refuses the value for now, so the others do not wait for it.
    fn leave_out(&mut self, now_ns: u64, place: u8) {
        let Some(members) = &mut self.members else { return };
        members.mask &= !(1 << place);
        if let Some(sender) = &mut self.sender {
            members.add_to(now_ns, sender, self.quorum);
        }
        self.note_end();
    }

    /// Processes the events of the sender.
    fn note_end(&mut self) {
        while let Some(event) = self.sender.as_mut().and_then(|sender| sender.poll_event()) {
            match event {
                Event::Finished | Event::NoAnswer => self.sender = None,
                Event::RequiredComplete(_) => self.is_held = true,
                Event::FellBehind(_) | Event::CaughtUp(_) | Event::Dropped(_) => {}
            }
        }
    }

    /// Writes the next chunk to `out`, if one may be sent now.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Sent {
        let transmit = self.sender.as_mut().and_then(|sender| sender.poll_transmit(now_ns));
        self.note_end();
        let (number, mask) = match transmit {
            None => return Sent::Nothing,
            Some(Transmit::Probe(_)) => return Sent::Question,
            Some(Transmit::Multicast(number, mask)) => (number, self.all_but_left_out(mask)),
            // To the multicast address too, with one receiver in its mask: the source of a report may be the vnode's
            // address instead of the replica's.
            Some(Transmit::Unicast(number, place)) => (number, self.receivers(1 << place)),
        };
        let Some((start, length)) = self.reference.chunk(number) else { return Sent::Nothing };
        let bytes = &self.value[start as usize..][..length];
        let About { keyspace, op, digest } = self.about;
        Chunk { keyspace, op, digest, number, mask, bytes }.encode(out);
        Sent::Chunk
    }

    /// Counts members that are served by unicast. A member that is served that way in too many puts
    /// at once is dropped; it fetches the value from other members.
    pub(crate) fn count_alone(&mut self, stragglers: &mut Stragglers<NodeId>) {
        let (Some(sender), Some(members)) = (&mut self.sender, &self.members) else {
            return self.uncount_alone(stragglers);
        };
        let places = sender.unicast_members();
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
            } else if sender.has_spare_member() {
                sender.drop_member(place as u8);
            }
        }
    }

    pub(crate) fn uncount_alone(&mut self, stragglers: &mut Stragglers<NodeId>) {
        self.alone.drain(..).for_each(|node| stragglers.end(&node));
    }

    /// Members that have received far fewer chunks than the others, with the chunks per second that
    /// each received.
    pub(crate) fn slow(&self) -> impl Iterator<Item = Slow> {
        let known = self.members.as_ref().zip(self.sender.as_deref());
        known.into_iter().flat_map(|(members, sender)| {
            sender.slow_members().map(|(place, rate)| (members.nodes[usize::from(place)], rate))
        })
    }

    /// The bits of these members in the mask of a chunk.
    fn receivers(&self, mask: Mask) -> u16 {
        let nodes = self.members.iter().flat_map(|members| members.nodes.iter().enumerate());
        nodes
            .filter(|(place, _)| mask >> place & 1 == 1)
            .fold(0, |bits, (_, node)| bits | receiver_bit(*node))
    }

    /// The mask of all receivers of the vnode, including those that are joining and are no members
    /// yet, but without members outside `mask` or known to be slow.
    fn all_but_left_out(&self, mask: Mask) -> u16 {
        if self.members.is_none() {
            return self.slow.iter().fold(RECEIVERS_ALL, |bits, (node, _)| bits & !receiver_bit(*node));
        }
        RECEIVERS_ALL & !self.receivers(!mask) | self.receivers(mask)
    }

    /// When to call [`Self::poll_transmit`] at the latest.
    pub(crate) fn next_deadline(&self) -> u64 {
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
