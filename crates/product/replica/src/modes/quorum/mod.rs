//! Quorum keyspaces (rule R14): a replica of registers that have no primary.
//!
//! ```text
//!   put   client ─Query─▶ all    R−k+1 answers: the newest timestamp        (one epoch)
//!         client ─Store─▶ all    k answers: held durably                    (the same epoch, or again from the start)
//!   get   client ─Query─▶ all    R−k+1 answers: the newest version          (one epoch)
//!         client ─Store─▶ all    only if fewer than k hold it: write-back
//! ```
//!
//! This is the multi-writer register of Attiya, Bar-Noy and Dolev with a write set of k and a read
//! set of R − k + 1 replicas, which always share a replica. Replicas decide nothing: each keeps the
//! newest version of a key, by timestamp, and reports what it durably holds. Read `partition`
//! (query and store), then `epoch` and `merge` (a node with new storage), `succession` (a place
//! that goes to another node), `repair` (a key that cannot be read), `forget` (deletions), then
//! this module's dispatch.
//!
//! What must hold: *if k replicas answered a store in one epoch before a query began, the R − k + 1
//! replicas that answer the query in one epoch include one that holds that version or a newer one.*
//! It holds because:
//! 1. A replica holds what it has acknowledged for the life of its storage: versions are synced
//!    before they are acknowledged, and only newer ones replace them. That alone suffices while no
//!    storage is lost.
//! 2. New storage (after a lost disk) is *counted*, and logs that it is, only when it has merged
//!    what R − k + 1 other counted members hold, all read in its first epoch or later. Take a write
//!    set of an earlier epoch. Of its k members at most the lost storage is gone. So at least k − 1
//!    of them are among the R − 1 other replicas, and the R − k + 1 merged ones include one of
//!    these.
//! 3. A write set of that or a later epoch does not contain the old storage: clients count answers
//!    of one epoch only, and an answer names the epoch in which it is sent, after the version was
//!    synced.
//! 4. The old process of replaced storage answers no more queries, because its lease ends (R12);
//!    merging waits for that (`activated`).
//! 5. A key that cannot be read is like new storage for that key alone, and 2. and 3. apply to it
//!    (`repair`). The new epoch that they need is made by a *fence*: at a member's request the
//!    metadata service begins the next epoch, with the same members.
//! 6. A member's place goes from C to D by a *succession*. D is silent while C counts, and when D
//!    counts and C no longer does, D's storage has everything that C's had acknowledged
//!    (`succession`). So in 1. to 5. the two act as one storage: a write set with C and a read set
//!    with D share a member as if D were C, and the same holds for the members from which new
//!    storage or a repair has read. Once C has left, it is in none of these sets; otherwise both
//!    would be counted for one place. C does not hold what D acknowledges, but by then C answers no
//!    query: D is silent until the epoch is activated (4.). An aborted succession has no effect,
//!    because D was silent all the time.
//! 7. While there is a fourth member, no round of forgetting can finish: all members that will
//!    count, D included, must hold a deletion when a round ends. Deletions that all members held
//!    before are on C's pages, either themselves or as part of C's floor.
//! 8. A node that takes the place of a lost owner is new storage (2. to 4.); that needs k > 1. With
//!    k = 1 no other node holds what the owner had acknowledged.
//!
//! R and k are fixed: a silent member stays a member, and if fewer than R − k + 1 counted members
//! answer, there is no result rather than a stale one. Deletions are versions until every member
//! holds them and they are forgotten; what remains of them is one number, the *floor*, and `forget`
//! explains why that is enough. Stores name the epoch in which their query was answered and are
//! accepted in no other, so no store that is older than a deletion arrives after the deletion is
//! forgotten.

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
        // Before the first epoch the quorum is unknown, and any one may be named.
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
            // Replaying in log order is enough: a key's records are in the order in which they were
            // written, and the engine has no version that is not in the log. A version whose large
            // value is missing is skipped. Either it was acknowledged to nobody, because a value is
            // synced before its record; or the value was removed later, and a newer record of the
            // key follows.
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
            // Requests with another R or k, or requests that need a primary, which does not exist
            // here.
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
            // The disk has damaged the large value, which is being fetched. Possibly no member has
            // it.
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
            ReadFor::Void => unreachable!("void reads have returned above"),
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
        // A newcomer must not miss damaged entries, so it gets no page, and asks again or asks
        // another member.
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

    /// Versions need not be logged again: when the records from here on are synced, all earlier
    /// ones are synced, too, and their versions are in the engine. The exception are versions that
    /// a successor must hold first.
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
