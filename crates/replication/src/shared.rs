//! What the partitions of a node share: the disk, the network, the lease, and the node's own client.

use crate::config::ReplicaConfig;
use crate::copy::PendingScan;
use crate::full::DiskSpace;
use crate::join::StreamPeer;
use crate::outbox::Outbox;
use crate::plant::Plant;
use crate::storage::StorageQueue;
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use foldhash::fast::FixedState;
use nicekv_wire::control::{Assign, Heartbeat, HeartbeatReply, Probe, ProbeReply, Report};
use nicekv_wire::{Epoch, NodeId, Now, OpId, PartitionId, Reply, Term};

/// A hash table whose order depends on the configured seed only.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;

/// What a read of the engine was for.
#[derive(Clone)]
pub(crate) enum PendingRead {
    /// To answer a get.
    Get { partition: PartitionId, op: OpId, reply_to: SocketAddrV4, key: Box<[u8]> },
    /// To evaluate the next op of a key.
    Evaluate { partition: PartitionId, key: Box<[u8]> },
    /// For a member that cannot read the key; `asked` is its request's `logged` and `released`.
    Repair { partition: PartitionId, epoch: Epoch, to: NodeId, asked: (u64, u64), key: Box<[u8]> },
}

/// A log record whose force somebody waits for.
#[derive(Clone)]
pub(crate) struct Unforced {
    pub(crate) record: u64,
    pub(crate) partition: PartitionId,
    /// The partition's resets so far: what was appended before a reset is void.
    pub(crate) resets: u64,
    pub(crate) what: UnforcedWhat,
}

#[derive(Clone)]
pub(crate) enum UnforcedWhat {
    Prepare(OpId),
    Decision(u64),
    /// All that a joiner copies.
    Copy,
}

/// Numbers for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gets answered here.
    pub gets: u64,
    /// Gets passed to the primary.
    pub gets_forwarded: u64,
    /// Ops decided here as primary.
    pub decided: u64,
    /// Of these, on the slow path of R2.
    pub decided_contended: u64,
    /// Datagrams that were no message of ours.
    pub malformed: u64,
    /// Messages of another epoch or term, or from no member.
    pub refused: u64,
    /// Requests dropped because this node may not serve them now, or a bound was reached.
    pub dropped: u64,
    /// Prepares sent again to a member that had not acknowledged them.
    pub resent: u64,
    /// Prepares refused here because the disk is full.
    pub refused_for_space: u64,
    /// Values found damaged here.
    pub corrupt: u64,
    /// Of these, got back from another member or written anew.
    pub repaired: u64,
    /// Entries verified by the scrub.
    pub scrubbed: u64,
    /// Its finished passes.
    pub scrubs: u64,
}

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) config: ReplicaConfig,
    pub(crate) storage: StorageQueue,
    pub(crate) outbox: Outbox,
    pub(crate) reads: VecDeque<(u64, PendingRead)>,
    pub(crate) scans: VecDeque<PendingScan>,
    pub(crate) streams: VecDeque<(StreamPeer, Vec<u8>)>,
    pub(crate) unforced: VecDeque<Unforced>,
    pub(crate) term: Term,
    /// Gets may be answered until then (R12).
    pub(crate) lease_until_ns: u64,
    /// Sent since the metadata service answered one.
    pub(crate) heartbeats_unanswered: u16,
    /// When partitions are to be looked over for lost messages.
    pub(crate) sweep_at_ns: Option<u64>,
    pub(crate) counters: Counters,
    pub(crate) disk_space: DiskSpace,
    #[cfg(feature = "exploration")]
    pub(crate) plant: Option<Plant>,
    internal_sequence: u64,
    internal_open: BTreeSet<u64>,
}

impl Shared {
    pub(crate) fn new(config: ReplicaConfig) -> Self {
        Self {
            storage: StorageQueue::default(),
            outbox: Outbox::new(config.node),
            reads: VecDeque::new(),
            scans: VecDeque::new(),
            streams: VecDeque::new(),
            unforced: VecDeque::new(),
            term: Term(0),
            lease_until_ns: 0,
            heartbeats_unanswered: 0,
            sweep_at_ns: None,
            counters: Counters::default(),
            disk_space: DiskSpace::default(),
            #[cfg(feature = "exploration")]
            plant: None,
            internal_sequence: 0,
            internal_open: BTreeSet::new(),
            config,
        }
    }

    /// Whether a test has planted this bug.
    #[cfg(feature = "exploration")]
    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// No.
    #[cfg(not(feature = "exploration"))]
    pub(crate) const fn has(&self, _: Plant) -> bool {
        false
    }

    pub(crate) fn map<K, V>(&self) -> Map<K, V> {
        Map::with_hasher(FixedState::with_seed(self.config.hash_seed))
    }

    /// Makes sure that a sweep comes.
    pub(crate) fn arm_sweep(&mut self, now: Now) {
        self.sweep_at_ns.get_or_insert(now.after(self.config.timing.resend / 2));
    }

    pub(crate) fn has_lease(&self, now: Now) -> bool {
        now.boot_ns < self.lease_until_ns || self.has(Plant::LeaseIgnored)
    }

    pub(crate) fn reply(&mut self, to: Option<SocketAddrV4>, reply: &Reply<'_>) {
        if let Some(to) = to {
            self.outbox.send(to, |out| reply.encode(out));
        }
    }

    pub(crate) fn send_heartbeat(&mut self, now: Now) {
        let config = &self.config;
        let heartbeat = Heartbeat {
            node: config.node,
            incarnation: config.incarnation,
            storage: config.storage,
            sent_ns: now.boot_ns,
            unanswered: self.heartbeats_unanswered,
        };
        let metadata = config.metadata;
        self.heartbeats_unanswered = heartbeat.unanswered.saturating_add(1);
        self.outbox.send(metadata, |out| heartbeat.encode(out));
    }

    pub(crate) fn on_heartbeat_reply(&mut self, reply: &HeartbeatReply) {
        if reply.incarnation != self.config.incarnation || reply.term < self.term {
            self.counters.refused += 1;
            return;
        }
        self.term = reply.term;
        self.heartbeats_unanswered = 0;
        self.lease_until_ns = self.lease_until_ns.max(reply.sent_ns.saturating_add(reply.lease_ns));
    }

    pub(crate) fn on_probe(&mut self, probe: &Probe) {
        if probe.term < self.term {
            self.counters.refused += 1;
            return;
        }
        self.term = probe.term;
        let config = &self.config;
        let reply = ProbeReply { node: config.node, incarnation: config.incarnation, nonce: probe.nonce };
        let metadata = config.metadata;
        self.outbox.send(metadata, |out| reply.encode(out));
    }

    /// Whether an assignment is for this process, of no older term (R13), and sound; the term is remembered.
    pub(crate) fn accepts_assign(&mut self, assign: &Assign) -> bool {
        let lists_primary = assign.members.iter().any(|member| member.node == assign.primary);
        if assign.incarnation != self.config.incarnation || assign.term < self.term || !lists_primary {
            return false;
        }
        self.term = assign.term;
        true
    }

    pub(crate) fn report(&mut self, report: Report) {
        let metadata = self.config.metadata;
        self.outbox.send(metadata, |out| report.encode(out));
    }

    /// A new op id of the node's own client, and its watermark.
    pub(crate) fn internal_op(&mut self) -> (OpId, u64) {
        self.internal_sequence += 1;
        self.internal_open.insert(self.internal_sequence);
        let watermark = *self.internal_open.first().expect("just inserted");
        (OpId { client: self.config.internal_client, sequence: self.internal_sequence }, watermark)
    }

    /// An op is finished; if it was the node's own, its watermark may advance.
    pub(crate) fn finish_internal(&mut self, op: OpId) {
        if op.client == self.config.internal_client {
            self.internal_open.remove(&op.sequence);
        }
    }
}
