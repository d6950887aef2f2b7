//! Datagrams for the driver to send. The acks of one batch of input are merged per destination, and
//! so are its decisions; datagrams that are too long are sent in fragments.

use crate::node::membership::Membership;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use core::ops::Range;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicekv_proto::bundle::{BUNDLED_BYTES_MAX, Bundle, Common, append_bundled, bundled_bytes};
use nicekv_proto::chain::{ChainEntry, FORWARDS_FIXED_BYTES, Forwards};
use nicekv_proto::fragment::Fragments;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::replication::{
    ACKS_MAX, Acks, DECISIONS_FIXED_BYTES, Decision, Decisions, PrepareAck, Progress, WATERMARK_BYTES,
    Watermark,
};
use nicekv_proto::{Entries, HeaderLayout, KeyDigest, KeyspaceId, NodeId, Opcode, PartitionId};
use nicekv_transport::name_of;

/// If at most this many direct datagrams are queued, they are sent before decisions and acks.
const LONE_REPLIES_MAX: usize = 2;

/// How many empty batches of each kind are kept for reuse.
const SPARE_BATCHES_MAX: usize = 64;

/// How many clients are remembered as accepting bundles.
const BUNDLE_TO_MAX: usize = 4_096;

/// Keyspace and digest of datagrams to a single member, which switches need not match.
const NOBODY: (KeyspaceId, KeyDigest) = (KeyspaceId::DEFAULT, KeyDigest([0; 16]));

/// A batch of decisions for one destination.
#[derive(Clone)]
struct DecisionBatch {
    /// An address in the multicast vring, or a member's address.
    destination: SocketAddrV4,
    /// For multicast: the receivers. Partitions with the same members share a datagram.
    members: Vec<NodeId>,
    /// For multicast: keyspace and digest of one of these partitions, by which switches match the
    /// datagram.
    matched: (KeyspaceId, KeyDigest),
    watermarks: Vec<Watermark>,
    count: usize,
    /// The encoded decisions; for a chain together with their ops.
    decisions: Vec<u8>,
    is_chain: bool,
}

impl DecisionBatch {
    fn to(destination: SocketAddrV4) -> Self {
        let matched = NOBODY;
        let (members, watermarks, decisions) = Default::default();
        Self { destination, members, matched, watermarks, count: 0, decisions, is_chain: false }
    }

    fn is_to(
        &self,
        destination: SocketAddrV4,
        members: impl Iterator<Item = NodeId>,
        is_chain: bool,
    ) -> bool {
        let is_of_same = self.members.iter().copied().eq(members) && self.is_chain == is_chain;
        is_of_same && (!self.members.is_empty() || self.destination == destination)
    }

    fn bytes(&self) -> usize {
        const _: () = assert!(DECISIONS_FIXED_BYTES == FORWARDS_FIXED_BYTES);
        DECISIONS_FIXED_BYTES + self.watermarks.len() * WATERMARK_BYTES + self.decisions.len()
    }

    fn has_room(&self, entry_bytes: usize, watermark: PartitionId) -> bool {
        let watermark_bytes = match self.watermarks.iter().any(|known| known.partition == watermark) {
            true => 0,
            false => WATERMARK_BYTES,
        };
        self.bytes() + entry_bytes + watermark_bytes <= DATAGRAM_BYTES_MAX
    }
}

/// An item for a batch of decisions.
#[derive(Clone, Copy)]
enum Queued<'a> {
    Decision(&'a Decision<'a>),
    Entry(&'a ChainEntry<'a>),
}

impl Queued<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Decision(decision) => decision.bytes(),
            Self::Entry(entry) => entry.bytes(),
        }
    }

    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Decision(decision) => decision.append(out),
            Self::Entry(entry) => entry.append(out),
        }
    }
}

/// A batch of acks for one primary.
#[derive(Clone)]
struct AckBatch {
    primary: SocketAddrV4,
    prepares: Vec<PrepareAck>,
    progress: Vec<Progress>,
}

#[derive(Clone)]
pub(crate) struct Outbox {
    node: NodeId,
    bytes: Vec<u8>,
    direct: VecDeque<(SocketAddrV4, Range<usize>)>,
    scratch: Vec<u8>,
    acks: VecDeque<AckBatch>,
    decisions: VecDeque<DecisionBatch>,
    /// Empty batches, kept for reuse.
    spare_acks: Vec<AckBatch>,
    spare_decisions: Vec<DecisionBatch>,
    /// Clients that accept bundles, because they have sent bundles themselves.
    bundle_to: HashSet<SocketAddrV4, FixedState>,
    /// The message that is being sent in fragments, and its destination.
    fragments: Option<(SocketAddrV4, Fragments)>,
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
            fragments: None,
        }
    }

    /// From now on replies to this client may be bundled. If a client is forgotten, its replies
    /// only take more datagrams.
    pub(crate) fn bundle_to(&mut self, client: SocketAddrV4) {
        if self.bundle_to.len() >= BUNDLE_TO_MAX {
            self.bundle_to.clear();
        }
        self.bundle_to.insert(client);
    }

    /// Queues the datagram that `encode` writes.
    pub(crate) fn send(&mut self, to: SocketAddrV4, encode: impl FnOnce(&mut Vec<u8>)) {
        self.send_to_all(&[to], encode);
    }

    /// Queues one datagram for several destinations.
    pub(crate) fn send_to_all(&mut self, to: &[SocketAddrV4], encode: impl FnOnce(&mut Vec<u8>)) {
        if self.direct.is_empty() {
            self.bytes.clear();
        }
        encode(&mut self.scratch);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&self.scratch);
        self.direct.extend(to.iter().map(|to| (*to, start..self.bytes.len())));
    }

    /// Queues the acknowledgement of a prepare.
    pub(crate) fn ack_prepare(&mut self, primary: SocketAddrV4, ack: PrepareAck) {
        self.ack_batch(primary).prepares.push(ack);
    }

    /// Queues a progress report. It replaces an earlier one of the same partition.
    pub(crate) fn ack_progress(&mut self, primary: SocketAddrV4, progress: Progress) {
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

    /// Queues a decision, or just a watermark, for all members of a partition.
    pub(crate) fn multicast_decision(
        &mut self,
        membership: &Membership,
        decision: Option<&Decision<'_>>,
        watermark: Watermark,
    ) {
        let members = membership.members.iter().map(|member| member.node);
        let matched = (membership.keyspace, KeyDigest::of_match_value(membership.range.first()));
        let queued = decision.map(Queued::Decision);
        self.queue_decision((membership.multicast, matched), members, queued, watermark, false);
    }

    /// Queues a decision, or just a watermark, for one member.
    pub(crate) fn unicast_decision(
        &mut self,
        member: SocketAddrV4,
        decision: Option<&Decision<'_>>,
        watermark: Watermark,
    ) {
        let queued = decision.map(Queued::Decision);
        self.queue_decision((member, NOBODY), core::iter::empty(), queued, watermark, false);
    }

    /// Queues an entry of a chain, or just a watermark, for the successor.
    pub(crate) fn forward(
        &mut self,
        successor: SocketAddrV4,
        entry: Option<&ChainEntry<'_>>,
        watermark: Watermark,
    ) {
        let queued = entry.map(Queued::Entry);
        self.queue_decision((successor, NOBODY), core::iter::empty(), queued, watermark, true);
    }

    fn queue_decision(
        &mut self,
        (destination, matched): (SocketAddrV4, (KeyspaceId, KeyDigest)),
        members: impl Iterator<Item = NodeId> + Clone,
        queued: Option<Queued<'_>>,
        watermark: Watermark,
        is_chain: bool,
    ) {
        let bytes = queued.map_or(0, |queued| queued.bytes());
        // Add only to the last batch for these receivers; in an earlier one the decision would
        // overtake earlier decisions.
        let last =
            self.decisions.iter().rposition(|batch| batch.is_to(destination, members.clone(), is_chain));
        let index = last
            .filter(|index| self.decisions[*index].has_room(bytes, watermark.partition))
            .unwrap_or_else(|| {
                let mut batch = self.spare_decisions.pop().unwrap_or_else(|| DecisionBatch::to(destination));
                (batch.destination, batch.is_chain) = (destination, is_chain);
                batch.matched = matched;
                batch.members.extend(members);
                self.decisions.push_back(batch);
                self.decisions.len() - 1
            });
        let batch = &mut self.decisions[index];
        match batch.watermarks.iter_mut().find(|known| known.partition == watermark.partition) {
            Some(known) => *known = watermark,
            None => batch.watermarks.push(watermark),
        }
        if let Some(queued) = queued {
            queued.append(&mut batch.decisions);
            batch.count += 1;
        }
    }

    /// Writes the next datagram to `out`; returns where it goes.
    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        if let Some(to) = self.poll_fragment(out) {
            return Some(to);
        }
        let to = self.poll_message(out)?;
        if out.len() <= DATAGRAM_BYTES_MAX {
            return Some(to);
        }
        // Only these messages go to clients. All others go to nodes, and their fragments name this
        // node as the sender.
        let opcode = HeaderLayout::peek(out).and_then(HeaderLayout::opcode);
        let is_for_client = matches!(opcode, Some(Opcode::Reply | Opcode::Published));
        let sender = (!is_for_client).then_some(self.node);
        let message = core::mem::take(out);
        let name = name_of(&message);
        self.fragments = Some((to, Fragments::new(message, name, sender)));
        self.poll_fragment(out)
    }

    fn poll_fragment(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        let (to, fragments) = self.fragments.as_mut()?;
        if fragments.poll(out) {
            return Some(*to);
        }
        self.fragments = None;
        None
    }

    fn poll_message(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        // A lone client is answered before messages go to the members, because the client waits and
        // the members do not. With many clients the members come first: their messages are one
        // datagram, which delays a client no more than the reply to another client would.
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
        let (sender, count, bytes) = (self.node, batch.count, &*batch.decisions);
        match batch.is_chain {
            true => {
                Forwards { sender, watermarks, entries: Entries::Encoded { count, bytes } }.encode(out);
            }
            false => {
                let ((keyspace, digest), decisions) = (batch.matched, Entries::Encoded { count, bytes });
                Decisions { keyspace, digest, sender, watermarks, decisions }.encode(out);
            }
        }
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

    /// Writes a bundle of the direct datagram in `first` and the datagrams to the same client that
    /// follow it. Returns false if none follows.
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
