//! Quorum keyspaces (rule R14): the replica of a register that has no primary.
//!
//! ```text
//!   put   client ─Query─▶ all    R−k+1 answers: the newest timestamp        (one epoch)
//!         client ─Store─▶ all    k answers: held durably                    (one epoch)
//!   get   client ─Query─▶ all    R−k+1 answers: the newest version          (one epoch)
//!         client ─Store─▶ all    only if fewer than k hold it: write-back
//! ```
//!
//! This is the multi-writer register of Attiya, Bar-Noy and Dolev with a write set of k and a read set of R − k + 1, which always have
//! a replica in common. Replicas decide nothing: each keeps the newest version of a key, by timestamp, and says what it durably holds.
//! Read `partition` (query and store), then `merge` (a node whose storage is new), then this module's dispatch.
//!
//! What must hold: *if a store was answered by k replicas in one epoch before a query began, the R − k + 1 that answer the query in
//! one epoch include one that holds that version or a newer one.* It does because
//! 1. what a replica has said to hold it holds for the life of its storage: versions are forced before they are told, and only newer
//!    ones replace them. That alone suffices while every storage lives;
//! 2. a new storage (a lost disk) is *counted*, and says so in its log, only when it has merged what R − k + 1 other counted members
//!    hold, all of them read in its first epoch or later. Of a write set in an earlier epoch at most itself is new, so k − 1 others
//!    are left of it, and R − 1 replicas are too few for those and the merged ones to miss each other;
//! 3. a write set of that or a later epoch does not contain the old storage: clients count the answers of one epoch only, and an
//!    answer names the epoch in which it leaves, after the version was forced;
//! 4. the old process of a storage that was replaced answers no more queries: lease (R12), for the end of which merging waits (`activated`).
//!
//! R and k are fixed: a removed member is silent, not gone, so a node is never replaced by another one, and fewer than R − k + 1
//! counted members answer nothing rather than something stale. Deletions are versions; they are kept for ever.

mod merge;
mod partition;

use crate::config::{OPEN_OPS_MAX, ReplicaConfig};
use crate::full::DiskSpace;
use crate::join::StreamPeer;
use crate::node_core::NodeCore;
use crate::record::RecordHead;
use crate::replica::ReplicaStatus;
use crate::shared::Shared;
use crate::storage::{StorageCompletion, StorageRequest};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::bytes::{Reader, put};
use nicekv_wire::control::{Assign, AssignAck};
use nicekv_wire::quorum::{Quorum, Timestamp};
use nicekv_wire::recovery::{CopyFrame, CopySection, Entry, put_keyed_entry, read_keyed_entry};
use nicekv_wire::{Datagram, DecodeError, KeyDigest, KeyspaceId, Now, OpId, PartitionId, Reply, Status};
use partition::Partition;

/// Bugs that tests plant, to see that they are found. Outside of tests there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "exploration"), allow(dead_code, unreachable_pub, reason = "only tests plant"))]
pub enum QuorumPlant {
    /// A version is acknowledged before it is forced.
    AckBeforeForce,
    /// A new storage is counted before it has merged anything.
    NewcomerCountsAtOnce,
}

/// A version of a key, on its way to the log.
struct Version {
    timestamp: Timestamp,
    /// `None` is a deletion.
    value: Option<Box<[u8]>>,
}

impl Version {
    fn entry(&self) -> Entry<'_> {
        let Timestamp { counter, op } = self.timestamp;
        Entry { index: counter, version: op, expiry_ms: 0, value: self.value.as_deref() }
    }
}

fn timestamp_of(entry: &Entry<'_>) -> Timestamp {
    Timestamp { counter: entry.index, op: entry.version }
}

/// Who wants to know that a version, or a newer one, is durable.
enum Waiter {
    Client {
        op: OpId,
        reply_to: SocketAddrV4,
    },
    /// The partition's merge, in this round of it.
    Merge {
        round: u64,
    },
}

enum PendingRead {
    Query { partition: PartitionId, op: OpId, reply_to: SocketAddrV4, wants_value: bool },
    Newest { partition: PartitionId, key: Box<[u8]> },
}

struct Unforced {
    record: u64,
    partition: PartitionId,
    what: UnforcedWhat,
}

enum UnforcedWhat {
    Counted,
    Version { key: Box<[u8]>, version: Version, waiters: Vec<Waiter> },
}

/// What the partitions of a node share.
struct Node {
    shared: Shared,
    quorum: Quorum,
    reads: VecDeque<(u64, PendingRead)>,
    scans: VecDeque<merge::PendingScan>,
    /// In the log, ascending.
    unforced: VecDeque<Unforced>,
    #[cfg(feature = "exploration")]
    plant: Option<QuorumPlant>,
}

impl Node {
    #[cfg(feature = "exploration")]
    fn has(&self, plant: QuorumPlant) -> bool {
        self.plant == Some(plant)
    }

    #[cfg(not(feature = "exploration"))]
    const fn has(&self, _: QuorumPlant) -> bool {
        false
    }

    /// Whether a bound is reached: what more arrives is dropped, and clients retry.
    fn is_full(&self) -> bool {
        self.unforced.len() + self.reads.len() >= OPEN_OPS_MAX
    }
}

/// One node of a quorum keyspace. See the module.
pub struct QuorumReplica {
    node: Node,
    partitions: Vec<Partition>,
    heartbeat_at_ns: u64,
    /// Trim the log before `.0` when it is durable through `.1`.
    trim_when_forced: Option<(u64, u64)>,
}

impl QuorumReplica {
    /// A node that has just started: it answers nothing before it is admitted in a new epoch (R9).
    pub fn new(config: ReplicaConfig, quorum: Quorum) -> Self {
        let shared = Shared::new(config);
        let partitions = shared.config.partitioning.all().map(|id| Partition::new(id, &shared)).collect();
        let node = Node {
            shared,
            quorum,
            reads: VecDeque::new(),
            scans: VecDeque::new(),
            unforced: VecDeque::new(),
            #[cfg(feature = "exploration")]
            plant: None,
        };
        Self { node, partitions, heartbeat_at_ns: 0, trim_when_forced: None }
    }

    /// Plants a bug.
    #[cfg(feature = "exploration")]
    pub fn plant(&mut self, plant: Option<QuorumPlant>) {
        self.node.plant = plant;
    }

    /// The partition of a request, if its keyspace and its digest are right (a switch routes by it).
    fn requested(
        &mut self,
        quorum: Quorum,
        op: OpId,
        key: &[u8],
        digest: &KeyDigest,
        to: SocketAddrV4,
    ) -> Option<usize> {
        if quorum != self.node.quorum {
            self.node.shared.reply(Some(to), &Reply::bare(op, Status::NoSuchKeyspace));
            return None;
        }
        if nicekv_placement::key_digest(key) != *digest {
            self.node.shared.counters.malformed += 1;
            return None;
        }
        Some(self.node.shared.config.partitioning.partition(digest).position())
    }

    fn on_assign(&mut self, now: Now, assign: &Assign) {
        let shared = &mut self.node.shared;
        let partition = self.partitions.get_mut(assign.partition.position());
        let (true, Some(partition)) = (shared.accepts_assign(assign), partition) else {
            shared.counters.refused += 1;
            return;
        };
        if partition.on_assign(&mut self.node, now, assign) {
            let ReplicaConfig { node, incarnation, metadata, .. } = self.node.shared.config;
            let (epoch, activated) = (partition.epoch, partition.activated);
            let ack = AssignAck { node, incarnation, partition: partition.id, epoch, activated };
            self.node.shared.outbox.send(metadata, |out| ack.encode(out));
        }
    }

    fn finished_read(&mut self, token: u64) -> PendingRead {
        let (expected, read) = self.node.reads.pop_front().expect("a read is pending");
        assert_eq!(token, expected, "reads complete in order");
        read
    }

    /// What this replica has promised to hold of that key is not known any more: it is silent about it.
    fn on_corrupt(&mut self, token: u64) {
        self.node.shared.counters.dropped += 1;
        if let PendingRead::Newest { partition, key } = self.finished_read(token) {
            self.partitions[partition.position()].forget(&key);
        }
    }

    fn on_read(&mut self, now: Now, token: u64, entry: Option<&[u8]>) {
        let read = self.finished_read(token);
        let entry = entry.map(crate::get::decode_entry);
        match read {
            PendingRead::Query { partition, op, reply_to, wants_value } => {
                let partition = &mut self.partitions[partition.position()];
                partition.on_query_read(&mut self.node, now, op, reply_to, wants_value, entry);
            }
            PendingRead::Newest { partition, key } => {
                let partition = &mut self.partitions[partition.position()];
                partition.on_newest_read(&mut self.node, now, &key, entry);
            }
        }
    }

    fn on_forced(&mut self, now: Now, through: u64) {
        while let Some(unforced) = self.node.unforced.pop_front_if(|unforced| unforced.record <= through) {
            let partition = &mut self.partitions[unforced.partition.position()];
            partition.on_forced(&mut self.node, now, unforced);
        }
        if let Some((before, _)) = self.trim_when_forced.take_if(|(_, needed)| *needed <= through) {
            self.node.shared.storage.trim(before);
        }
    }
}

impl NodeCore for QuorumReplica {
    fn replay(&mut self, _now: Now, payload: &[u8]) -> Result<(), DecodeError> {
        self.node.shared.storage.count_replayed();
        let record = Record::decode(payload)?;
        let id = record.partition();
        let unknown = DecodeError::UnknownValue { field: "partition of record", value: id.0.into() };
        let partition = self.partitions.get_mut(id.position()).ok_or(unknown)?;
        match record {
            Record::Counted { .. } => partition.counted = true,
            // A key's records stand in the order of their timestamps, and the engine has none that is not in the log or before it.
            Record::Version { key, entry, .. } => {
                self.node.shared.storage.write(id, key, |out| out.extend_from_slice(entry));
            }
        }
        Ok(())
    }

    fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        let Ok((header, datagram)) = Datagram::decode(bytes) else {
            self.node.shared.counters.malformed += 1;
            return;
        };
        let to = header.reply_to.unwrap_or(from);
        match datagram {
            Datagram::QuorumQuery(query) if header.keyspace == KeyspaceId::DEFAULT => {
                if let Some(index) = self.requested(query.quorum, query.op, query.key, &query.digest, to) {
                    self.partitions[index].on_query(&mut self.node, now, &query, to);
                }
            }
            Datagram::QuorumStore(store) if header.keyspace == KeyspaceId::DEFAULT => {
                if let Some(index) = self.requested(store.quorum, store.op, store.key, &store.digest, to) {
                    self.partitions[index].on_store(&mut self.node, now, &store, to);
                }
            }
            // Of another keyspace, or for a primary, which there is none.
            Datagram::QuorumQuery(_) | Datagram::QuorumStore(_) | Datagram::Get(_) | Datagram::Update(_) => {
                self.node.shared.reply(Some(to), &Reply::bare(header.op, Status::NoSuchKeyspace));
            }
            Datagram::HeartbeatReply(reply) => self.node.shared.on_heartbeat_reply(&reply),
            Datagram::Assign(assign) => self.on_assign(now, &assign),
            Datagram::Probe(probe) => self.node.shared.on_probe(&probe),
            _ => self.node.shared.counters.refused += 1,
        }
    }

    fn handle_storage(&mut self, now: Now, completion: StorageCompletion<'_>) {
        match completion {
            StorageCompletion::Forced { through } => self.on_forced(now, through),
            StorageCompletion::Read { token, entry } => self.on_read(now, token, entry),
            StorageCompletion::ReadCorrupt { token } => self.on_corrupt(token),
            StorageCompletion::Scan { token, entries, corrupt, more } => {
                let scan = self.node.scans.pop_front().expect("a scan is pending");
                assert_eq!(token, scan.token, "scans complete in order");
                // A newcomer must not go without what is damaged here: it asks another member.
                if corrupt.is_empty() {
                    let partition = &self.partitions[scan.partition.position()];
                    partition.on_scanned(&mut self.node, &scan, entries, more);
                }
            }
        }
        // What the completion led to is a batch of its own.
        self.node.shared.storage.end_batch();
    }

    fn handle_deadline(&mut self, now: Now) {
        if now.boot_ns >= self.heartbeat_at_ns {
            self.heartbeat_at_ns = now.after(self.node.shared.config.timing.heartbeat);
            self.node.shared.send_heartbeat(now);
        }
        if self.node.shared.sweep_at_ns.is_some_and(|at_ns| now.boot_ns >= at_ns) {
            self.node.shared.sweep_at_ns = None;
            for partition in &mut self.partitions {
                partition.sweep(&mut self.node, now);
            }
        }
    }

    fn handle_batch_end(&mut self, _now: Now) {
        self.node.shared.storage.end_batch();
    }

    fn handle_stream(&mut self, now: Now, peer: StreamPeer, frame: &[u8]) {
        let frame = CopyFrame::decode(frame);
        let id = match frame {
            Ok(CopyFrame::Request { partition, .. } | CopyFrame::Chunk { partition, .. }) => partition,
            Err(_) => PartitionId(u32::MAX),
        };
        let Some(partition) = self.partitions.get_mut(id.position()) else {
            self.node.shared.counters.malformed += 1;
            return;
        };
        match frame {
            Ok(CopyFrame::Request { joiner, epoch, section: CopySection::Entries, after, .. }) => {
                partition.on_merge_request(&mut self.node, peer, joiner, epoch, after);
            }
            Ok(CopyFrame::Chunk { epoch, section: CopySection::Entries, more, payload, .. }) => {
                partition.on_merge_chunk(&mut self.node, now, peer, epoch, more, payload);
            }
            _ => self.node.shared.counters.refused += 1,
        }
        self.node.shared.storage.end_batch();
    }

    fn set_disk_space(&mut self, space: DiskSpace) {
        self.node.shared.disk_space = space;
    }

    /// Versions need no second record: when the records from here on are durable, all before are, and in the engine.
    fn checkpoint(&mut self) {
        let storage = &mut self.node.shared.storage;
        let before = storage.appended() + 1;
        for partition in self.partitions.iter().filter(|partition| partition.counted) {
            storage.append(|out| Record::Counted { partition: partition.id }.append(out));
        }
        self.trim_when_forced = Some((before, storage.appended()));
        storage.want_force();
        storage.end_batch();
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        self.node.shared.outbox.poll(out)
    }

    fn poll_storage(&mut self) -> Option<StorageRequest<'_>> {
        self.node.shared.storage.poll()
    }

    fn poll_stream(&mut self) -> Option<(StreamPeer, Vec<u8>)> {
        self.node.shared.streams.pop_front()
    }

    fn next_deadline(&self) -> u64 {
        self.heartbeat_at_ns.min(self.node.shared.sweep_at_ns.unwrap_or(u64::MAX))
    }

    fn status(&self) -> ReplicaStatus {
        ReplicaStatus {
            term: self.node.shared.term,
            counters: self.node.shared.counters,
            partitions: self.partitions.iter().map(Partition::status).collect(),
        }
    }
}

/// A record of the log. Kinds differ from the primary's, so that neither replica takes up the other's log.
enum Record<'a> {
    /// What this storage says it holds counts from here on.
    Counted { partition: PartitionId },
    /// A version of a key, newer than those in earlier records.
    Version { partition: PartitionId, key: &'a [u8], entry: &'a [u8] },
}

const KIND_COUNTED: u8 = 64;
const KIND_VERSION: u8 = 65;

impl<'a> Record<'a> {
    fn partition(&self) -> PartitionId {
        match self {
            Self::Counted { partition } | Self::Version { partition, .. } => *partition,
        }
    }

    fn append(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Counted { .. } => KIND_COUNTED,
            Self::Version { .. } => KIND_VERSION,
        };
        put(out, &RecordHead { kind, flag: 0, partition: self.partition().0.into() });
        if let Self::Version { key, entry, .. } = self {
            put_keyed_entry(out, key, entry);
        }
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let head: RecordHead = reader.layout("record")?;
        let partition = PartitionId(head.partition.get());
        let record = match head.kind {
            KIND_COUNTED => Self::Counted { partition },
            KIND_VERSION => {
                let (key, entry) = read_keyed_entry(&mut reader)?;
                Entry::decode(entry)?;
                Self::Version { partition, key, entry }
            }
            other => return Err(DecodeError::UnknownValue { field: "record kind", value: other.into() }),
        };
        reader.finish("record")?;
        Ok(record)
    }
}
