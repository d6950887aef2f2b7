//! NICE's multicast two-phase commit (NICE §4.2 to §4.4 with rules R1 to R5, R7, R8, R10, R11, R15 and R17). Read in this order:
//!
//! 1. this module: which event goes where; `partition`: the parts of its state;
//! 2. `locks` (open ops, locked keys), `sequence` (decisions), `contents` (what is in the engine) with `recent`, `lead` (what a primary keeps) with `makings`, `joiner`,
//!    `reporting`, `repairs`, `agenda`, `waits`: the parts, which know nothing of each other's insides; [`crate::modes::ordered::clients`];
//! 3. `prepare`: every replica logs and acknowledges an op;
//! 4. `decide`: the primary orders it, on the fast or the slow path; [`crate::modes::ordered::evaluate`] says what it does;
//!    `made`: values that it makes for that;
//! 5. `settle`: a decision is logged, takes effect, is released; `follow`: the others hear of it;
//! 6. `get` and `scan`: who may answer them, and with what; `expiry`: values whose time has come;
//! 7. `epoch`: recovery when the replica set changes; `history`, `join` and `copy`: what a returning node has missed; `restore`: the log;
//! 8. `reshape`: the end of a partition, and the beginning of what takes its place;
//! 9. `sweep`: what is done about silence; `full` and `repair`: about disks that are full, or return damaged values;
//!    `scrub` and `compare`: about replicas that differ;
//! 10. `chain`: the same sequence, agreed on along a chain.

mod agenda;
mod chain;
mod clients;
mod compare;
mod contents;
mod copy;
mod copy_frames;
mod decide;
mod epoch;
mod evaluate;
mod expiry;
mod follow;
mod full;
mod get;
mod history;
mod join;
mod joiner;
mod lead;
mod locks;
mod made;
mod makings;
mod ordered;
mod partition;
mod pieces;
mod prepare;
mod recent;
mod record;
mod repair;
mod repairs;
mod reporting;
mod reshape;
mod restore;
mod scan;
pub(super) mod script;
mod scrub;
mod sequence;
mod settle;
mod sweep;
mod transaction;
mod transactions;
mod waits;

use crate::modes::entry::decode_entry;
use crate::{
    CopyChunk, CopyRequest, Host, Message, Page, PartitionStatus, Request, Standing, stored_entries,
};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::recovery::{Entry, Wanted};
use nicekv_proto::repair::KeyState;
use nicekv_proto::replication::{PrepareAck, Progress};
use nicekv_proto::{DecodeError, Entries, Epoch, NodeId, Now, PartitionId, Replication};
pub(crate) use partition::OrderedPartition;
use prepare::Source;
use record::Record;
use waits::{PendingRead, UnforcedWhat};

impl OrderedPartition {
    pub(super) fn of_record(partition: PartitionId, record: &[u8], host: &Host) -> Option<Self> {
        Record::decode(record).is_ok().then(|| Self::outside(partition, host))
    }

    pub(super) fn is(&self, replication: Replication) -> bool {
        matches!(replication, Replication::Multicast | Replication::Chain)
    }

    pub(super) fn replication(&self) -> Replication {
        if self.is_chain() { Replication::Chain } else { Replication::Multicast }
    }

    pub(super) fn epoch_min(&self) -> Epoch {
        if self.membership.epoch > Epoch::default() {
            return self.membership.epoch;
        }
        let former = self.former.as_ref().and_then(|former| former.history.newest());
        Epoch(self.sequence.history().newest().max(former).map_or(0, |newest| newest.0 + 1))
    }

    pub(super) fn replay(
        &mut self,
        host: &mut Host,
        now: Now,
        number: u64,
        record: &[u8],
    ) -> Result<(), DecodeError> {
        self.take_record(host, now, number, &Record::decode(record)?)
    }

    pub(super) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        match request {
            Request::Get(get) => self.on_get(host, now, get, from),
            Request::Scan(scan) => self.on_scan(host, now, scan, from),
            Request::Update(update, datagram) => {
                self.on_update(host, now, update, datagram, Source::Client(from));
            }
            Request::Query(query) => host.refuse(query.op, query.reply_to.or(Some(from))),
            Request::Store(store, _) => host.refuse(store.op, store.reply_to.or(Some(from))),
        }
    }

    pub(super) fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        match message {
            Message::Forwarded(decision, op) if self.is_chain() => {
                self.on_forwarded(host, now, sender, decision, op);
            }
            Message::Watermark(watermark) if self.is_chain() => {
                self.on_chain_watermark(host, now, sender, watermark);
            }
            Message::Progress(progress, _) if self.is_chain() => {
                self.on_chain_progress(host, now, sender, progress);
            }
            Message::Resent { update, datagram, .. } if self.is_chain() => {
                self.on_early_op(host, sender, update, datagram);
            }
            Message::Forwarded(..) => host.counters.refused += 1,
            Message::PrepareAck(ack) if self.is_primary() => self.on_prepare_ack(host, now, sender, ack),
            Message::PrepareAck(_) => {}
            Message::Progress(progress, prepares) => {
                self.on_progress(host, now, sender, progress);
                self.release_expired(host, now, progress, prepares);
            }
            Message::Watermark(watermark) => {
                if self.membership.primary == sender {
                    self.on_watermark(host, now, watermark);
                }
            }
            Message::Decision(decision) => {
                if self.is_primary() {
                    self.on_adopted(host, now, sender, decision);
                } else if self.membership.primary == sender {
                    self.on_decision(host, now, decision);
                }
            }
            Message::Resent { logged, update, datagram } => {
                self.on_update(host, now, update, datagram, Source::Member { sender, logged });
            }
            Message::RecoverRequest(request) => self.on_recover_request(host, request),
            Message::RecoverReply(reply) => self.on_recover_reply(host, now, reply),
            Message::Fetch(Wanted::Op(op)) => self.on_fetch_op(host, op, sender),
            Message::Fetch(Wanted::DecisionsAfter(after)) => self.on_fetch_decisions(host, sender, after),
            Message::RepairRequest(request) => self.on_repair_request(host, now, request),
            Message::RepairReply(reply) => self.on_repair_reply(host, now, reply),
            Message::ScrubPage(page) => self.on_scrub_page(host, now, page),
            Message::Tombstones(_)
            | Message::TombstonesAck(_)
            | Message::Entrust(_)
            | Message::Entrusted(_) => host.counters.refused += 1,
        }
    }

    pub(super) fn on_copy_request(&mut self, host: &mut Host, _: Now, request: CopyRequest<'_>) {
        let CopyRequest { peer, joiner, section, since, after } = request;
        self.serve_copy(host, peer, joiner, section, since, after);
    }

    pub(super) fn on_copy_chunk(&mut self, host: &mut Host, now: Now, chunk: CopyChunk<'_>) {
        self.take_copy_chunk(host, now, chunk.epoch, chunk.section, chunk.more, chunk.payload);
    }

    pub(super) fn on_forced(&mut self, host: &mut Host, now: Now, record: u64) {
        match self.waits.finish_force(record) {
            None => {}
            Some(UnforcedWhat::Prepare(op)) => self.on_prepare_forced(host, now, op),
            Some(UnforcedWhat::Decision(index)) => self.on_decision_forced(host, now, index),
            Some(UnforcedWhat::Copy) => self.on_copy_forced(host, now),
        }
    }

    pub(super) fn answers_gets(&self, host: &Host) -> bool {
        match self.is_chain() {
            true => self.is_tail(host) && self.tail_answers_gets(host),
            false => {
                let is_proven = self.is_proven || self.is_recovered_wholly();
                self.membership.standing.serves() && is_proven
            }
        }
    }

    pub(super) fn on_read(&mut self, host: &mut Host, now: Now, token: u64, entry: Option<&[u8]>) {
        match self.waits.finish_read(token) {
            PendingRead::Get { get, key, changes } => {
                self.on_get_read(host, now, get, (&key, changes), entry.map(decode_entry));
            }
            PendingRead::Evaluate { key } => {
                let value = entry
                    .map(decode_entry)
                    .as_ref()
                    .and_then(crate::modes::ordered::evaluate::KeyValue::from_entry);
                self.on_state_read(host, now, token, &key, value);
            }
            PendingRead::Repair { epoch, to, asked, key } => {
                let state = entry.map_or(KeyState::Absent, KeyState::Stored);
                self.on_repair_read(host, now, (epoch, to, asked), &key, state);
            }
        }
    }

    pub(super) fn on_read_corrupt(&mut self, host: &mut Host, now: Now, token: u64) {
        match self.waits.finish_read(token) {
            PendingRead::Get { get, key, .. } => self.on_get_corrupt(host, now, get, &key),
            PendingRead::Evaluate { key } => self.on_state_corrupt(host, now, token, &key),
            PendingRead::Repair { epoch, to, asked, key } => {
                self.on_repair_read(host, now, (epoch, to, asked), &key, KeyState::Corrupt);
            }
        }
    }

    pub(super) fn on_scanned(&mut self, host: &mut Host, now: Now, token: u64, page: Page<'_>) {
        let scan = self.waits.finish_scan(token, self.membership.epoch);
        // A copy must not go without them: the joiner asks again.
        self.begin_repairs(host, now, page.corrupt);
        if let Some(purpose) = scan.filter(|_| page.corrupt.is_empty()) {
            self.take_page(host, now, purpose, &page);
        }
    }

    pub(super) fn wants_scrub(&self, now: Now) -> bool {
        self.is_primary() && self.contents.agenda().needs_pass(now)
    }

    pub(super) fn before_scrub(&mut self, now: Now, is_first: bool) -> bool {
        if self.is_primary() && self.contents.agenda().is_saturated(now) {
            return false;
        }
        if is_first {
            self.contents.agenda_mut().begin_pass();
        }
        true
    }

    pub(super) fn on_scrubbed(&mut self, host: &mut Host, now: Now, after: Option<&[u8]>, page: Page<'_>) {
        self.begin_repairs(host, now, page.corrupt);
        if self.membership.standing == Standing::Consistent {
            self.list(host, after, &page);
        }
        let may_drop = host.disk_space != crate::DiskSpace::Exhausted;
        for (key, entry) in stored_entries(page.entries) {
            let entry: Entry<'_> = decode_entry(entry);
            if !host.storage.is_written_since_scan(key) {
                self.contents.agenda_mut().note_found(key, &entry);
            }
            if may_drop && entry.value.is_none() {
                self.drop_old_tombstone(host, key, entry.index);
            }
        }
    }

    pub(super) fn on_scrub_lost(&mut self) {
        self.contents.agenda_mut().break_pass();
    }

    pub(super) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        let is_work_left = self.look_over(host, now);
        self.sweep_repairs(host, now) || is_work_left
    }

    pub(super) fn checkpoint(&self, host: &mut Host) {
        self.append_open(host);
    }

    /// Along a chain it takes more than one to show something, so that of its keys there are no copies.
    pub(super) fn leads(&self) -> bool {
        let is_whole = self.membership.activated && !self.membership.sealed && !self.is_chain();
        is_whole
            && self.lead.as_ref().is_some_and(|lead| lead.is_ready())
            && self.is_proven
            && self.membership.standing.serves()
    }

    pub(super) fn reconsider(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        if self.is_primary() {
            self.decide_key(host, now, key);
        }
    }

    /// A contended decision takes effect when it is released (R2), so what comes after it may show before.
    pub(super) fn settled(&self) -> Option<u64> {
        if self.is_chain() {
            // What the tail has released is what was said, and nothing else has taken effect here.
            return self.hop.has_spoken().then(|| self.sequence.released());
        }
        let leads = self.lead.as_ref().is_some_and(|lead| lead.is_ready()) && self.membership.activated;
        let leads = leads && self.is_proven;
        let is_held_back = self.sequence.unreleased().any(|decided| decided.contended);
        (leads && !is_held_back).then(|| self.sequence.logged())
    }

    pub(super) fn holds_through(&self, index: u64) -> bool {
        self.former.is_none() && self.sequence.logged() >= index
    }

    pub(super) fn bequeath(&self, host: &mut Host) -> Vec<Vec<u8>> {
        self.log_end(host);
        self.legacy()
    }

    pub(super) fn give_up(&mut self, host: &mut Host) {
        for op in self.give_up_ops(host).into_keys() {
            host.finish_internal(op);
        }
        self.clients.clear();
        self.keep_named(host);
        host.visibility.unknown(self.id());
    }

    pub(super) fn status(&self) -> PartitionStatus {
        PartitionStatus {
            partition: self.id(),
            epoch: self.membership.epoch,
            standing: self.membership.standing,
            primary: self.membership.primary,
            leads: self.lead.as_ref().is_some_and(|lead| lead.is_ready()),
            open_ops: self.locks.count(),
            logged: self.sequence.logged(),
            released: self.sequence.released(),
            proven: self.is_proven,
        }
    }
}

impl OrderedPartition {
    /// A member that holds every decision, and still these ops, holds ops that are past remembering.
    fn release_expired(
        &mut self,
        host: &mut Host,
        now: Now,
        progress: &Progress,
        prepares: Entries<'_, PrepareAck>,
    ) {
        if progress.gap && progress.logged == self.sequence.logged() && self.is_primary() {
            for ack in prepares.iter().filter(|ack| ack.partition == progress.partition) {
                self.decide_expired(host, now, ack.op);
            }
        }
    }

    /// Drops a tombstone that the scrub has found, if every original member holds the deletion.
    fn drop_old_tombstone(&self, host: &mut Host, key: &[u8], index: u64) {
        let is_held = self.membership.is_whole() && index <= self.sequence.released();
        if is_held && !host.storage.is_written_since_scan(key) {
            host.storage.remove(self.id(), key);
        }
    }
}

mod exploration {
    use super::OrderedPartition;
    use crate::Standing;
    use crate::modes::ordered::clients::ExportCursor;
    use core::hash::{Hash, Hasher};

    impl OrderedPartition {
        pub(crate) fn fingerprint_wait(&self, record: u64, state: &mut impl Hasher) {
            self.waits.fingerprint(record, state);
        }

        pub(crate) fn fingerprint(&self, state: &mut impl Hasher) {
            let membership = &self.membership;
            (membership.epoch, membership.activated, membership.primary).hash(state);
            (membership.standing == Standing::Consistent).hash(state);
            membership.members.iter().for_each(|member| member.node.hash(state));
            let recovered_through = self.lead.as_ref().map_or(0, |lead| lead.recovered_through());
            self.locks.fingerprint(recovered_through, state);
            self.sequence.fingerprint(state);
            self.clients.export(ExportCursor::START, usize::MAX).0.hash(state);
            self.contents.fingerprint(state);
            (self.reporting.is_pending(), self.is_proven, self.awaiting_proof.len()).hash(state);
            self.hop.fingerprint(state);
            self.lead.as_ref().inspect(|lead| lead.fingerprint(state));
        }

        pub(crate) fn check_invariants(&self) -> Result<(), &'static str> {
            self.sequence.check_invariants()?;
            self.locks.check_invariants()
        }
    }
}
