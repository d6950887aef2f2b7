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
//! Read `partition` (query and store), then `merge` (a node whose storage is new), `repair` (a key that cannot be read), then this
//! module's dispatch.
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
//! 4. the old process of a storage that was replaced answers no more queries: lease (R12), for the end of which merging waits (`activated`);
//! 5. a key that cannot be read is new storage for that key alone, and 2. and 3. hold for it likewise (`repair`). The epoch that they need
//!    is made by a *fence*: the metadata service begins the next epoch, of the same members, for a member that asks.
//!
//! R and k are fixed: a removed member is silent, not gone, so a node is never replaced by another one, and fewer than R − k + 1
//! counted members answer nothing rather than something stale. Deletions are versions; they are kept for ever.

mod merge;
mod partition;
mod repair;

use crate::entry::decode_entry;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_node::{
    CopyChunk, CopyRequest, Host, Membership, Message, Page, PartitionStatus, Protocol, Request,
};
use nicekv_wire::bytes::Reader;
use nicekv_wire::control::Assign;
use nicekv_wire::quorum::Timestamp;
use nicekv_wire::recovery::{CopySection, Entry, put_keyed_entry, read_keyed_entry};
use nicekv_wire::{DecodeError, Epoch, NodeId, Now, OpId, PartitionId, Replication};
pub use partition::QuorumPartition;

/// A version of a key, on its way to the log.
#[derive(Clone)]
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
#[derive(Clone)]
enum Waiter {
    Client {
        op: OpId,
        reply_to: SocketAddrV4,
    },
    /// The partition's merge, in this round of it.
    Merge {
        round: u64,
    },
    /// It takes the place of what is damaged.
    Nobody,
}

/// A read of the engine, and what it is for.
#[derive(Clone)]
struct PendingRead {
    key: Box<[u8]>,
    what: ReadFor,
}

#[derive(Clone)]
enum ReadFor {
    Query {
        op: OpId,
        reply_to: SocketAddrV4,
        wants_value: bool,
    },
    /// Those who wait for it, see `partition::Key`.
    Newest,
    /// A member that cannot read the key itself.
    Repair {
        epoch: Epoch,
        to: NodeId,
    },
}

#[derive(Clone)]
struct Unforced {
    record: u64,
    what: UnforcedWhat,
}

#[derive(Clone)]
enum UnforcedWhat {
    Counted,
    Version { key: Box<[u8]>, version: Version, waiters: Vec<Waiter> },
    Forgotten { key: Box<[u8]> },
}

impl Protocol for QuorumPartition {
    fn new(partition: PartitionId, replication: Replication, host: &Host) -> Self {
        let mut new = Self::outside(partition, host);
        new.learn(replication);
        new
    }

    fn of_record(partition: PartitionId, record: &[u8], host: &Host) -> Option<Self> {
        Record::decode(record).is_ok().then(|| Self::outside(partition, host))
    }

    fn is(&self, replication: Replication) -> bool {
        match (replication, self.quorum) {
            (Replication::Quorum(quorum), Some(known)) => quorum == known,
            (Replication::Quorum(_), None) => true,
            (Replication::Multicast, _) => false,
        }
    }

    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn on_assign(&mut self, host: &mut Host, now: Now, assign: &Assign) -> bool {
        self.take_assign(host, now, assign)
    }

    fn replay(&mut self, host: &mut Host, _: Now, _: u64, record: &[u8]) -> Result<(), DecodeError> {
        match Record::decode(record)? {
            Record::Counted => self.counted = true,
            // A key's records stand in the order in which they were written, and the engine has none that is not in the log or before it.
            Record::Version { key, entry } => {
                host.storage.write(self.id(), key, |out| out.extend_from_slice(entry));
            }
            Record::Forgotten { key } => host.storage.remove(self.id(), key),
        }
        Ok(())
    }

    fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        match request {
            Request::Query(query) if self.quorum == Some(query.quorum) => {
                self.on_query(host, now, query, query.reply_to.unwrap_or(from));
            }
            Request::Store(store) if self.quorum == Some(store.quorum) => {
                self.on_store(host, now, store, store.reply_to.unwrap_or(from));
            }
            // With another R or k, or for a primary, which there is none.
            Request::Query(query) => host.refuse(query.op, query.reply_to.or(Some(from))),
            Request::Store(store) => host.refuse(store.op, store.reply_to.or(Some(from))),
            Request::Get(get) => host.refuse(get.op, get.reply_to.or(Some(from))),
            Request::Update(update, _) => host.refuse(update.op, update.reply_to.or(Some(from))),
        }
    }

    fn on_message(&mut self, host: &mut Host, now: Now, _: NodeId, message: Message<'_>) {
        match message {
            Message::RepairRequest(request) => self.on_repair_request(host, request),
            Message::RepairReply(reply) => self.on_repair_reply(host, now, reply),
            _ => host.counters.refused += 1,
        }
    }

    fn on_copy_request(&mut self, host: &mut Host, _: Now, request: CopyRequest<'_>) {
        match request.section {
            CopySection::Entries => self.serve_merge(host, request.peer, request.after),
            CopySection::Begin | CopySection::Clients => host.counters.refused += 1,
        }
    }

    fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        match chunk.section {
            CopySection::Entries => self.on_merge_chunk(host, now, chunk),
            CopySection::Begin | CopySection::Clients => host.counters.refused += 1,
        }
    }

    fn on_forced(&mut self, host: &mut Host, now: Now, record: u64) {
        self.finish_force(host, now, record);
    }

    fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        let PendingRead { key, what } = self.finish_read(token);
        if !self.is_believed(&key) {
            return self.on_unreadable(host, now, &key, &what);
        }
        match what {
            ReadFor::Query { op, reply_to, wants_value } => {
                self.on_query_read(host, now, op, reply_to, wants_value, entry.map(decode_entry));
            }
            ReadFor::Newest => self.on_newest_read(host, now, &key, entry.map(decode_entry)),
            ReadFor::Repair { epoch, to } => self.on_repair_read(host, (epoch, to), &key, entry),
        }
    }

    fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        let PendingRead { key, what } = self.finish_read(token);
        self.on_unreadable(host, now, &key, &what);
        self.begin_repair(host, now, &key);
    }

    fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        let scan = self.finish_scan(token);
        // A newcomer must not go without what is damaged here: it asks again, or another member.
        if page.corrupt.is_empty() {
            return self.send_page(host, &scan, page);
        }
        self.begin_repairs(host, now, page.corrupt);
    }

    fn on_scrubbed(&mut self, host: &mut Host, now: Now, _: &[u8], page: Page<'_>) {
        self.begin_repairs(host, now, page.corrupt);
    }

    fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        self.look_over(host, now);
        self.sweep_repairs(host, now)
    }

    /// Versions need no second record: when the records from here on are durable, all before are, and in the engine.
    fn checkpoint(&self, host: &mut Host) {
        if self.counted {
            host.append(self.id(), |out| Record::Counted.append(out));
        }
    }

    fn status(&self) -> PartitionStatus {
        self.tell_status()
    }
}

/// A record of the log. Kinds differ from the primary's, so that neither protocol takes up the other's log.
enum Record<'a> {
    /// What this storage says it holds counts from here on.
    Counted,
    /// A version of a key, newer than those in earlier records, or in the place of one that was damaged.
    Version { key: &'a [u8], entry: &'a [u8] },
    /// Of this key there is nothing to hold.
    Forgotten { key: &'a [u8] },
}

const KIND_COUNTED: u8 = 64;
const KIND_VERSION: u8 = 65;
const KIND_FORGOTTEN: u8 = 66;

impl<'a> Record<'a> {
    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Counted => out.extend_from_slice(&[KIND_COUNTED, 0]),
            Self::Version { key, entry } => {
                out.extend_from_slice(&[KIND_VERSION, 0]);
                put_keyed_entry(out, key, entry);
            }
            Self::Forgotten { key } => {
                out.extend_from_slice(&[KIND_FORGOTTEN, 0]);
                out.extend_from_slice(key);
            }
        }
    }

    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let [kind, _]: [u8; 2] = reader.layout("record")?;
        let record = match kind {
            KIND_COUNTED => Self::Counted,
            KIND_VERSION => {
                let (key, entry) = read_keyed_entry(&mut reader)?;
                Entry::decode(entry)?;
                Self::Version { key, entry }
            }
            KIND_FORGOTTEN => Self::Forgotten { key: reader.rest() },
            other => return Err(DecodeError::UnknownValue { field: "record kind", value: other.into() }),
        };
        reader.finish("record")?;
        Ok(record)
    }
}
