//! Quorum keyspaces (rule R14): the replica of a register that has no primary.
//!
//! ```text
//!   put   client ─Query─▶ all    R−k+1 answers: the newest timestamp        (one epoch)
//!         client ─Store─▶ all    k answers: held durably                    (the same epoch, or again from the start)
//!   get   client ─Query─▶ all    R−k+1 answers: the newest version          (one epoch)
//!         client ─Store─▶ all    only if fewer than k hold it: write-back
//! ```
//!
//! This is the multi-writer register of Attiya, Bar-Noy and Dolev with a write set of k and a read
//! set of R − k + 1, which always share a replica. Replicas decide nothing: each keeps the newest
//! version of a key, by timestamp, and says what it durably holds. Read `partition` (query and
//! store), then `epoch` and `merge` (a node with new storage), `succession` (a place that goes to
//! another node), `repair` (a key that cannot be read), `forget` (deletions), then this module's
//! dispatch.
//!
//! What must hold: *if k replicas answered a store in one epoch before a query began, the R − k + 1
//! replicas that answer the query in one epoch include one that holds that version or a newer one.*
//! It does because:
//! 1. A replica holds what it has acknowledged for the life of its storage: versions are synced
//!    before they are acknowledged, and only newer ones replace them. That alone suffices while no
//!    storage is lost.
//! 2. New storage (after a lost disk) is *counted*, and says so in its log, only when it has merged
//!    what R − k + 1 other counted members hold, all read in its first epoch or later. Of a write
//!    set in an earlier epoch at most itself is new, so k − 1 others are left of it, and R − 1
//!    replicas are too few for those and the merged ones to miss each other.
//! 3. A write set of that or a later epoch does not contain the old storage: clients count the
//!    answers of one epoch only, and an answer names the epoch in which it leaves, after the
//!    version was synced.
//! 4. The old process of replaced storage answers no more queries, because its lease ends (R12);
//!    merging waits for that (`activated`).
//! 5. A key that cannot be read is new storage for that key alone, and 2. and 3. hold for it
//!    likewise (`repair`). The epoch that they need is made by a *fence*: the metadata service
//!    begins the next epoch, with the same members, for a member that asks.
//! 6. A member's place goes from C to D by a *succession*: D is silent while C counts, and when D
//!    counts and C no longer does, D's storage has whatever C's had acknowledged (`succession`). So
//!    for 1. to 5. the two are one storage: a write set with C and a read set with D share a member
//!    as if D were C, and so do the members that new storage or a damaged key has read. Once C has
//!    left it is none of those, or both would be counted for one. C does not hold what D
//!    acknowledges, but by then C answers no query: D is silent until the epoch is activated (4.).
//!    A succession that is broken off leaves no trace, because D was silent all the time.
//! 7. Nothing new is forgotten while there is a fourth member: all members that will count must
//!    have held a deletion when a round ends, D included. What all held before is on C's pages, as
//!    the deletion itself or as C's floor.
//! 8. A node that takes the place of a lost owner is new storage (2. to 4.), with k > 1; with k = 1
//!    no other node holds what the owner had acknowledged.
//!
//! R and k are fixed: a silent member is counted as silent, not gone, and fewer than R − k + 1
//! counted members answer nothing rather than something stale. Deletions are versions until every
//! member holds them and they are forgotten; a number remains of them, the *floor*, and `forget`
//! says why that is enough. Stores name the epoch in which their query was answered and are taken
//! in no other, so none that is older than a deletion arrives after it is forgotten.

mod entrusting;
mod epoch;
mod forget;
mod merge;
mod partition;
mod parts;
mod repair;
mod store;
mod succession;
mod version;

use crate::modes::entry::decode_entry;
use crate::{CopyChunk, CopyRequest, Host, Message, Page, PartitionStatus, Request};
use core::net::SocketAddrV4;
use nicekv_proto::quorum::Quorum;
use nicekv_proto::recovery::{CopySection, Entry};
use nicekv_proto::{DecodeError, NodeId, Now, PartitionId, Replication};
pub(crate) use partition::QuorumPartition;
use version::{PendingRead, ReadFor, Record};

impl QuorumPartition {
    pub(super) fn new(partition: PartitionId, replication: Replication, host: &Host) -> Self {
        let mut new = Self::outside(partition, host);
        new.learn(replication);
        new
    }

    pub(super) fn of_record(partition: PartitionId, record: &[u8], host: &Host) -> Option<Self> {
        Record::decode(record).is_ok().then(|| Self::outside(partition, host))
    }

    pub(super) fn is(&self, replication: Replication) -> bool {
        match (replication, self.quorum) {
            (Replication::Quorum(quorum), Some(known)) => quorum == known,
            (Replication::Quorum(_), None) => true,
            (Replication::Multicast | Replication::Chain, _) => false,
        }
    }

    pub(super) fn replication(&self) -> Replication {
        // Before the first epoch any quorum fits.
        Replication::Quorum(self.quorum.unwrap_or(Quorum::new(1, 1).expect("one of one is a quorum")))
    }

    pub(super) fn replay(
        &mut self,
        host: &mut Host,
        _: Now,
        _: u64,
        record: &[u8],
    ) -> Result<(), DecodeError> {
        match Record::decode(record)? {
            Record::Counted => self.counted = true,
            // A key's records are in the order in which they were written, and the engine has no
            // version that is not in the log. A torn version was acknowledged to nobody, because
            // its value is synced before its record; or its value was removed since, and a newer
            // record follows.
            Record::Version { entry, .. } if is_torn(host, entry) => {}
            Record::Version { key, entry } => {
                host.storage.write(self.id(), key, |out| out.extend_from_slice(entry));
            }
            Record::Forgotten { key, floor } => {
                self.floor = self.floor.max(floor);
                host.storage.remove(self.id(), key);
            }
            Record::Floor { floor } => self.floor = self.floor.max(floor),
            Record::Emptied => self.forget_everything(host),
        }
        Ok(())
    }

    pub(super) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        match request {
            Request::Query(query) if self.quorum == Some(query.quorum) => {
                self.on_query(host, now, *query, from);
            }
            Request::Store(store, datagram) if self.quorum == Some(store.quorum) => {
                self.on_store(host, now, (store, datagram), from);
            }
            // With another R or k, or for a primary, which does not exist here.
            Request::Query(query) => host.refuse(query.op, query.reply_to.or(Some(from))),
            Request::Store(store, _) => host.refuse(store.op, store.reply_to.or(Some(from))),
            Request::Get(get) => host.refuse(get.op, get.reply_to.or(Some(from))),
            Request::Scan(scan) => host.refuse(scan.op, scan.reply_to.or(Some(from))),
            Request::Update(update, _) => host.refuse(update.op, update.reply_to.or(Some(from))),
        }
    }

    pub(super) fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        match message {
            Message::RepairRequest(request) => self.on_repair_request(host, request),
            Message::RepairReply(reply) => self.on_repair_reply(host, reply),
            Message::Tombstones(told) => self.on_tombstones(host, now, told),
            Message::TombstonesAck(round) => self.on_tombstones_ack(host, now, sender, round),
            Message::Entrust(entrust) => self.on_entrust(host, now, entrust),
            Message::Entrusted(serial) => self.on_entrusted(host, now, sender, serial),
            _ => host.counters.refused += 1,
        }
    }

    pub(super) fn on_copy_request(&mut self, host: &mut Host, _: Now, request: CopyRequest<'_>) {
        match request.section {
            CopySection::Entries => self.serve_merge(host, request.peer, request.after),
            CopySection::Begin | CopySection::Clients => host.counters.refused += 1,
        }
    }

    pub(super) fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        match chunk.section {
            CopySection::Entries => self.on_merge_chunk(host, now, chunk),
            CopySection::Begin | CopySection::Clients => host.counters.refused += 1,
        }
    }

    pub(super) fn on_synced(&mut self, host: &mut Host, now: Now, record: u64) {
        self.finish_sync(host, now, record);
    }

    pub(super) fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        let PendingRead { key, what } = self.finish_read(token);
        if matches!(what, ReadFor::Void) {
            return;
        }
        if !self.is_believed(&key) {
            return self.on_unreadable(host, now, &key, &what);
        }
        if entry.is_some_and(|entry| is_torn(host, entry)) {
            // The disk has damaged the value, which is being fetched; possibly no member has it.
            self.on_unreadable(host, now, &key, &what);
            return self.begin_repair(host, now, &key);
        }
        match what {
            ReadFor::Query { op, reply_to, wants_value } => {
                self.on_query_read(host, now, op, reply_to, wants_value, entry.map(decode_entry));
            }
            ReadFor::Newest => self.on_newest_read(host, now, &key, entry.map(decode_entry)),
            ReadFor::Repair { epoch, to } => self.on_repair_read(host, (epoch, to), &key, entry),
            ReadFor::Forgetting { timestamp } => {
                self.on_forgetting_read(host, &key, timestamp, entry.map(decode_entry));
            }
            ReadFor::Void => unreachable!("see above"),
        }
    }

    pub(super) fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        let PendingRead { key, what } = self.finish_read(token);
        if matches!(what, ReadFor::Void) {
            return;
        }
        self.on_unreadable(host, now, &key, &what);
        self.begin_repair(host, now, &key);
    }

    pub(super) fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        let scan = self.finish_scan(token);
        // A newcomer must not miss damaged entries: it asks again, or another member.
        if page.corrupt.is_empty() {
            return self.send_page(host, &scan, page);
        }
        self.begin_repairs(host, now, page.corrupt);
    }

    pub(super) fn before_scrub(&mut self) -> bool {
        !self.has_tombstones_enough()
    }

    pub(super) fn on_scrubbed(&mut self, host: &mut Host, now: Now, _: Option<&[u8]>, page: Page<'_>) {
        self.begin_repairs(host, now, page.corrupt);
        self.note_tombstones(host, now, page);
    }

    pub(super) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        self.look_over(host, now);
        let is_repairing = self.sweep_repairs(host, now);
        let is_entrusting = self.sweep_entrusted(host, now);
        self.sweep_forgetting(host, now) || is_repairing || is_entrusting
    }

    /// Versions need no second record: when the records from here on are synced, all before are,
    /// and in the engine; except those that wait for a successor to hold them.
    pub(super) fn checkpoint(&self, host: &mut Host) {
        self.log_entrusted_again(host);
        if self.floor > 0 {
            host.append(self.id(), |out| Record::Floor { floor: self.floor }.append(out));
        }
        if self.counted {
            host.append(self.id(), |out| Record::Counted.append(out));
        }
    }

    pub(super) fn status(&self) -> PartitionStatus {
        self.tell_status()
    }
}

/// Whether an entry names a large value that is not on disk.
fn is_torn(host: &Host, entry: &[u8]) -> bool {
    Entry::reference_of(entry).is_some_and(|reference| !host.storage.holds_value(reference.name))
}
