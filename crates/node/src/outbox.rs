//! Datagrams that wait for the driver. Acks and decisions of one batch are merged per destination.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicekv_wire::bundle::{BUNDLED_BYTES_MAX, Bundle, Common, append_bundled, bundled_bytes};
use nicekv_wire::limits::DATAGRAM_BYTES_MAX;
use nicekv_wire::replication::{
    ACKS_MAX, Acks, DECISIONS_FIXED_BYTES, Decision, Decisions, PrepareAck, Progress, WATERMARK_BYTES,
    Watermark,
};
use nicekv_wire::{Entries, NodeId, PartitionId};

/// So many direct datagrams go before decisions and acks.
const LONE_REPLIES_MAX: usize = 2;

/// So many batches of each kind are kept to be filled again.
const SPARE_BATCHES_MAX: usize = 64;

/// So many clients that take bundles are remembered.
const BUNDLE_TO_MAX: usize = 4_096;

/// Decisions under way to one destination.
#[derive(Clone)]
struct DecisionBatch {
    /// In the multicast vring, or one member's.
    destination: SocketAddrV4,
    /// In the first case: partitions with the same members share a datagram.
    members: Vec<NodeId>,
    watermarks: Vec<Watermark>,
    count: usize,
    decisions: Vec<u8>,
}

impl DecisionBatch {
    fn to(destination: SocketAddrV4) -> Self {
        Self { destination, members: Vec::new(), watermarks: Vec::new(), count: 0, decisions: Vec::new() }
    }

    fn is_to(&self, destination: SocketAddrV4, members: impl Iterator<Item = NodeId>) -> bool {
        let is_of_same = self.members.iter().copied().eq(members);
        is_of_same && (!self.members.is_empty() || self.destination == destination)
    }

    fn bytes(&self) -> usize {
        DECISIONS_FIXED_BYTES + self.watermarks.len() * WATERMARK_BYTES + self.decisions.len()
    }

    fn has_room(&self, decision: Option<&Decision<'_>>, watermark: PartitionId) -> bool {
        let watermark_bytes = match self.watermarks.iter().any(|known| known.partition == watermark) {
            true => 0,
            false => WATERMARK_BYTES,
        };
        self.bytes() + decision.map_or(0, Decision::bytes) + watermark_bytes <= DATAGRAM_BYTES_MAX
    }
}

/// Acks under way to one primary.
#[derive(Clone)]
struct AckBatch {
    primary: SocketAddrV4,
    prepares: Vec<PrepareAck>,
    progress: Vec<Progress>,
}

/// See the module.
#[derive(Clone)]
pub struct Outbox {
    node: NodeId,
    bytes: Vec<u8>,
    direct: VecDeque<(SocketAddrV4, Range<usize>)>,
    scratch: Vec<u8>,
    acks: VecDeque<AckBatch>,
    decisions: VecDeque<DecisionBatch>,
    /// Sent, and empty, for their memory.
    spare_acks: Vec<AckBatch>,
    spare_decisions: Vec<DecisionBatch>,
    /// Clients that take bundles, as they have sent such.
    bundle_to: HashSet<SocketAddrV4, FixedState>,
}

impl Outbox {
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
            bytes: Vec::new(),
            direct: VecDeque::new(),
            scratch: Vec::new(),
            acks: VecDeque::new(),
            decisions: VecDeque::new(),
            spare_acks: Vec::new(),
            spare_decisions: Vec::new(),
            bundle_to: HashSet::default(),
        }
    }

    /// From now on replies to this client may be bundled. What is forgotten costs datagrams alone.
    pub(crate) fn bundle_to(&mut self, client: SocketAddrV4) {
        if self.bundle_to.len() >= BUNDLE_TO_MAX {
            self.bundle_to.clear();
        }
        self.bundle_to.insert(client);
    }

    /// Queues the datagram that `encode` writes.
    pub fn send(&mut self, to: SocketAddrV4, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.direct.is_empty() {
            self.bytes.clear();
        }
        encode(&mut self.scratch);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&self.scratch);
        self.direct.push_back((to, start..self.bytes.len()));
    }

    /// Queues the acknowledgement of a prepare.
    pub fn ack_prepare(&mut self, primary: SocketAddrV4, ack: PrepareAck) {
        self.ack_batch(primary).prepares.push(ack);
    }

    /// Queues news of progress; a later one of the same partition replaces it.
    pub fn ack_progress(&mut self, primary: SocketAddrV4, progress: Progress) {
        let queued = self.acks.iter_mut().filter(|batch| batch.primary == primary).find_map(|batch| {
            batch.progress.iter_mut().find(|queued| queued.partition == progress.partition)
        });
        match queued {
            Some(queued) => *queued = Progress { gap: queued.gap || progress.gap, ..progress },
            None => self.ack_batch(primary).progress.push(progress),
        }
    }

    fn ack_batch(&mut self, primary: SocketAddrV4) -> &mut AckBatch {
        let with_room = |batch: &AckBatch| {
            batch.primary == primary && batch.prepares.len() + batch.progress.len() < ACKS_MAX
        };
        let index = self.acks.iter().position(with_room).unwrap_or_else(|| {
            let (prepares, progress) = (Vec::new(), Vec::new());
            let spare = self.spare_acks.pop().unwrap_or(AckBatch { primary, prepares, progress });
            self.acks.push_back(AckBatch { primary, ..spare });
            self.acks.len() - 1
        });
        &mut self.acks[index]
    }

    /// Queues a decision, or a watermark alone, for all members of a partition.
    pub fn multicast_decision(
        &mut self,
        vnode: SocketAddrV4,
        members: impl Iterator<Item = NodeId> + Clone,
        decision: Option<&Decision<'_>>,
        watermark: Watermark,
    ) {
        self.queue_decision(vnode, members, decision, watermark);
    }

    /// Queues a decision, or a watermark alone, for one member.
    pub fn unicast_decision(
        &mut self,
        member: SocketAddrV4,
        decision: Option<&Decision<'_>>,
        watermark: Watermark,
    ) {
        self.queue_decision(member, core::iter::empty(), decision, watermark);
    }

    fn queue_decision(
        &mut self,
        destination: SocketAddrV4,
        members: impl Iterator<Item = NodeId> + Clone,
        decision: Option<&Decision<'_>>,
        watermark: Watermark,
    ) {
        // Only the last batch to these receivers: an earlier one with room would let a decision overtake its predecessor.
        let last = self.decisions.iter().rposition(|batch| batch.is_to(destination, members.clone()));
        let index = last
            .filter(|index| self.decisions[*index].has_room(decision, watermark.partition))
            .unwrap_or_else(|| {
                let mut batch = self.spare_decisions.pop().unwrap_or_else(|| DecisionBatch::to(destination));
                batch.destination = destination;
                batch.members.extend(members);
                self.decisions.push_back(batch);
                self.decisions.len() - 1
            });
        let batch = &mut self.decisions[index];
        match batch.watermarks.iter_mut().find(|known| known.partition == watermark.partition) {
            Some(known) => *known = watermark,
            None => batch.watermarks.push(watermark),
        }
        if let Some(decision) = decision {
            decision.append(&mut batch.decisions);
            batch.count += 1;
        }
    }

    /// Writes the next datagram to `out`; returns where it goes.
    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        // A lone client is answered before the members are told, since it waits and they do not. Of many, the members come first: they
        // are one datagram, and whoever they hold up is one of the many.
        let direct_first = self.direct.len() <= LONE_REPLIES_MAX && !self.direct.is_empty();
        if !direct_first {
            if let Some(batch) = self.decisions.pop_front() {
                return Some(self.write_decisions(batch, out));
            }
            if let Some(batch) = self.acks.pop_front() {
                return Some(self.write_acks(batch, out));
            }
        }
        let (to, range) = self.direct.pop_front()?;
        if self.bundle_to.contains(&to) && self.poll_bundle(to, range.clone(), out) {
            return Some(to);
        }
        out.clear();
        out.extend_from_slice(&self.bytes[range]);
        Some(to)
    }

    fn write_decisions(&mut self, mut batch: DecisionBatch, out: &mut Vec<u8>) -> SocketAddrV4 {
        let watermarks = Entries::Values(&batch.watermarks);
        let decisions = Entries::Encoded { count: batch.count, bytes: &batch.decisions };
        Decisions { sender: self.node, watermarks, decisions }.encode(out);
        let destination = batch.destination;
        if self.spare_decisions.len() < SPARE_BATCHES_MAX {
            batch.members.clear();
            batch.watermarks.clear();
            batch.decisions.clear();
            batch.count = 0;
            self.spare_decisions.push(batch);
        }
        destination
    }

    fn write_acks(&mut self, mut batch: AckBatch, out: &mut Vec<u8>) -> SocketAddrV4 {
        let (prepares, progress) = (Entries::Values(&batch.prepares), Entries::Values(&batch.progress));
        Acks { sender: self.node, prepares, progress }.encode(out);
        let primary = batch.primary;
        if self.spare_acks.len() < SPARE_BATCHES_MAX {
            batch.prepares.clear();
            batch.progress.clear();
            self.spare_acks.push(batch);
        }
        primary
    }

    /// Writes a bundle of the direct datagram in `first` and those that follow it to the same client, if there are such.
    fn poll_bundle(&mut self, to: SocketAddrV4, first: Range<usize>, out: &mut Vec<u8>) -> bool {
        let first = &self.bytes[first];
        let Some(common) = Common::of(first) else { return false };
        let mut bytes = bundled_bytes(first);
        let fits = |(next, range): &&(SocketAddrV4, Range<usize>)| {
            let datagram = &self.bytes[range.clone()];
            bytes += bundled_bytes(datagram);
            *next == to && bytes <= BUNDLED_BYTES_MAX && Common::of(datagram) == Some(common)
        };
        let more = self.direct.iter().take_while(fits).count();
        if more == 0 {
            return false;
        }
        Bundle::encode_with(first, out, |out| {
            append_bundled(first, out);
            for (_, range) in self.direct.drain(..more) {
                append_bundled(&self.bytes[range], out);
            }
        });
        true
    }
}
