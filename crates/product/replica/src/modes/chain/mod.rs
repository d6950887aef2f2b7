//! Chain replication (TurboKV §4.1.2 with rules C1 to C10): like `two_phase`, a way to agree on one
//! sequence of decisions.
//!
//! ```text
//!  client        head              middle            tail
//!    │──Update───▶│ decide, log      │                 │
//!    │            │──Forwards───────▶│ log             │
//!    │            │                  │──Forwards──────▶│ log
//!    │            │ sync             │ sync            │ sync
//!    │            │──watermark──────▶│                 │
//!    │            │                  │──watermark─────▶│ show
//!    │◀──Reply─────────────────────────────────────────│
//!    │            │                  │◀────Acks────────│
//!    │            │◀────Acks─────────│ show            │
//!    │            │ show             │                 │
//!    │──Get────────────────────────────────────────────▶│
//!    │◀──Reply─────────────────────────────────────────│
//! ```
//!
//! Sequence, locks, joining, repair and expiry are shared with two-phase commit (`ordered`). What
//! differs is how members agree on an entry, and which member answers. The primary is the **head**.
//! It decides an op as soon as it receives it (C1, C4). Every decision is contended: a member shows
//! it when it is *released*, that is, synced by all members.
//!
//! * A node forwards the entries that it has logged, in order, to the successor in *its own* epoch
//!   (C5), and syncs them meanwhile. It also reports down the chain the last entry that it and all
//!   nodes before it have synced (C2).
//! * It keeps an entry until all members have synced it, and resends it by timer (C6).
//!   Acknowledgements travel up the chain as one number, the last entry acknowledged.
//! * The **tail** is the last member that holds everything. Only the tail answers (C3): puts when
//!   it releases them, and gets from released entries.
//! * A joiner stands behind the tail (C8). It syncs and acknowledges like the others, and the tail
//!   releases no entry that the joiner has not synced. So all members of an epoch hold whatever the
//!   tail has shown, and a joiner lacks nothing once it has copied the entries from before its
//!   epoch. A joiner releases an entry only when the nodes before it, too, have reported that they
//!   have synced it: the tail does not report that to nodes behind it, and a head that lost an
//!   entry must be able to fetch it from the others.
//! * Logs are prefixes of each other. A node that lost entries before syncing them may have fewer
//!   than its successor. So a head starts its epoch like the primary of two-phase commit: it asks
//!   all members, and adopts the longest log (`ordered::epoch`). Logs stay prefixes when any node
//!   is removed (C9). An epoch begins where its head's log ended, at its *base*; the first datagram
//!   of the epoch carries the base down the chain. A node that was not the tail in the previous
//!   epoch answers only when the epoch is activated and everything up to the base is released (C7).
//!   Nothing beyond the base was shown in an earlier epoch, because whatever was shown had been
//!   synced by all.
//!
//! Invariants: `released <= held from here on <= synced <= logged`; an entry that has taken effect
//! anywhere is synced everywhere.

mod get;
mod head;
mod neighbours;

use crate::modes::bounds::{CATCH_UP_DATAGRAMS_MAX, CHAIN_ENTRIES_IN_FLIGHT_MAX};
use crate::modes::messages::{Message, Request};
use crate::modes::ordered::evaluate::{Verdict, evaluate};
use crate::modes::ordered::lead::Lead;
use crate::modes::ordered::locks::{Latest, WaitingGet};
use crate::modes::ordered::record::Record;
use crate::modes::ordered::sequence::Decided;
use crate::modes::ordered::waits::AwaitedSync;
use crate::modes::ordered::{Agreement, OrderedPartition};
use crate::{Changes, Host, Membership, Standing, Step, ValueEnd};
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::SocketAddrV4;
use neighbours::Neighbours;
use nicekv_proto::chain::{CHAIN_ENTRY_BYTES_MAX, ChainEntry};
use nicekv_proto::control::{DiskSpace, ReportKind};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{Entry, Wanted};
use nicekv_proto::replication::{Decision, Progress, Watermark};
use nicekv_proto::{Datagram, NodeId, Now, OpId, StoredKey, StoredUpdate, Update};

#[derive(Clone, Default)]
pub(crate) struct Chain {
    /// Predecessor and successor.
    neighbours: Neighbours,
}

impl Agreement for OrderedPartition<Chain> {
    const DECIDES_AT_ONCE: bool = true;
    const PASSES_GETS_TO_PRIMARY: bool = false;

    fn begin_epoch(&mut self, host: &mut Host, now: Now, next: &Membership) {
        // Drop ops that the head has not decided: no client was answered, and no other node has
        // them. After a power failure the log may contain such an op without its decision.
        for op in self.locks.drop_undecided(&mut host.visibility) {
            host.finish_internal(op);
        }
        let me = Some(host.config.node);
        let follows = next.epoch.0 == self.membership.epoch.0 + 1;
        let is_entitled =
            self.mode.neighbours.is_entitled && follows && self.membership.tail() == me && next.tail() == me;
        self.mode.neighbours = Neighbours::new(now, is_entitled);
    }

    fn on_recovered(&mut self, host: &mut Host, _: Now) {
        self.tell_successor(host);
    }

    fn resume(&mut self, host: &mut Host, now: Now) {
        self.advance(host, now);
        self.decide_all(host, now);
        self.look_for_proof();
        host.arm_sweep(now);
    }

    fn judge_known(&mut self, _: &mut Host, _: Now, key: &[u8], op: OpId) -> Option<Verdict> {
        let Latest::Known(value) = self.locks.key(key)?.latest() else { return None };
        Some(evaluate(&self.locks.op(op)?.stored.update(), value.as_ref()))
    }

    fn commit(&mut self, host: &mut Host, now: Now, decided: Decided) {
        host.trace.note(now, decided.op, Step::Decided { contended: false });
        self.log_decision(host, now, decided);
        self.forward(host, now);
    }

    fn propose(&mut self, host: &mut Host, now: Now, update: &Update<'_>, datagram: &[u8]) {
        self.on_update(host, now, update, datagram, None);
    }

    fn answers_clients(&self, host: &Host) -> bool {
        self.speaks(host)
    }

    fn answer_get_from(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: (&[u8], Changes),
        entry: Option<Entry<'_>>,
    ) {
        match self.is_tail(host) {
            true => self.answer_get(host, now, get, key, entry),
            false => self.judge_expiry(host, now, get, key.0, entry),
        }
    }

    /// Sends a progress report to the predecessor.
    fn tell_progress(&mut self, host: &mut Host, gap: bool) {
        self.reporting.tell();
        let (synced, space) = (self.released_from_here(host), self.space_from_here(host));
        (self.mode.neighbours.told, self.mode.neighbours.told_space) =
            (self.mode.neighbours.told.max(synced), space);
        let Some(before) = self.membership.predecessor(host.config.node) else { return };
        let (partition, epoch, logged) = (self.id(), self.membership.epoch, self.sequence.logged());
        let progress = Progress { partition, epoch, logged, synced, gap, space };
        host.outbox.ack_progress(before.address, progress);
    }

    fn fingerprint_mode(&self, state: &mut impl Hasher) {
        self.mode.neighbours.fingerprint(state);
    }
}

impl OrderedPartition<Chain> {
    pub(crate) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
        match request {
            Request::Get(get) => self.on_get(host, now, get, from),
            Request::Scan(scan) => self.on_scan(host, now, scan, from),
            Request::Update(update, datagram) => self.on_update(host, now, update, datagram, Some(from)),
            Request::Query(query) => host.refuse(query.op, query.reply_to.or(Some(from))),
            Request::Store(store, _) => host.refuse(store.op, store.reply_to.or(Some(from))),
        }
    }

    pub(crate) fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        match message {
            Message::Forwarded(decision, op) => self.on_forwarded(host, now, sender, decision, op),
            Message::Watermark(watermark) => self.on_watermark(host, now, sender, watermark),
            Message::Progress(progress, _) => self.on_progress(host, now, sender, progress),
            Message::Resent { update, datagram, .. } => self.on_early_op(host, sender, update, datagram),
            Message::RecoverRequest(request) => self.on_recover_request(host, request),
            Message::RecoverReply(reply) => self.on_recover_reply(host, now, reply),
            Message::Fetch(Wanted::DecisionsAfter(after)) => {
                if let Some(address) = self.membership.address(sender) {
                    self.send_entries_after(host, address, after);
                }
            }
            Message::RepairRequest(request) => self.on_repair_request(host, request),
            Message::RepairReply(reply) => self.on_repair_reply(host, now, reply),
            Message::ScrubPage(page) => self.on_scrub_page(host, page),
            Message::PrepareAck(_)
            | Message::Decision(_)
            | Message::Fetch(Wanted::Op(_))
            | Message::Tombstones(_)
            | Message::TombstonesAck(_)
            | Message::Entrust(_)
            | Message::Entrusted(_) => host.counters.refused += 1,
        }
    }

    pub(crate) fn on_synced(&mut self, host: &mut Host, now: Now, record: u64) {
        match self.waits.finish_sync(record) {
            None => {}
            // A chain waits for no prepares; this one was logged in an epoch of multicast mode.
            Some(AwaitedSync::Prepare(_)) => {}
            Some(AwaitedSync::Decision(index)) => {
                self.sequence.sync(index);
                self.on_entry_synced(host, now);
            }
            Some(AwaitedSync::Copy) => self.on_copy_synced(host, now),
        }
    }

    /// Chains have no large values, so none is ever built.
    pub(crate) fn on_value_made(
        &mut self,
        host: &mut Host,
        _: Now,
        _: &[u8],
        name: OpId,
        _: Result<Reference, ValueEnd>,
    ) {
        host.finish_internal(name);
    }

    /// Whether this node, while its lease runs, would answer a get of any key that no op locks.
    pub(crate) fn answers_gets(&self, host: &Host) -> bool {
        self.is_tail(host) && self.tail_answers_gets(host)
    }

    /// The nodes of a chain show a decision one after the other, so its keys have no copies at
    /// other nodes.
    pub(crate) fn leads(&self) -> bool {
        false
    }

    /// See [`Partition::settled`](crate::modes::Partition::settled): what the tail has released was
    /// shown to clients, and nothing else has taken effect here.
    pub(crate) fn settled(&self) -> Option<u64> {
        self.mode.neighbours.has_spoken().then(|| self.sequence.released())
    }

    /// The last entry that every node up to this one has synced, as sent with entries.
    fn watermark(&self) -> Watermark {
        Watermark {
            partition: self.id(),
            epoch: self.membership.epoch,
            base: self.sequence.base().unwrap_or(0),
            synced: self.held_up_to_here(),
            recovered: false,
            working: false,
        }
    }

    /// Marks this process as proven once recovery is complete: then it holds everything that was
    /// confirmed before it started (R18).
    fn look_for_proof(&mut self) {
        if self.is_recovered_wholly() {
            self.is_proven = true;
            self.lead.as_mut().map(Lead::complete);
        }
    }

    /// Whether this node is the tail (C3).
    pub(crate) fn is_tail(&self, host: &Host) -> bool {
        self.membership.tail() == Some(host.config.node)
    }

    /// Whether this node is the tail, and may answer (C7).
    pub(crate) fn speaks(&self, host: &Host) -> bool {
        let is_reached = |base| self.held_from_here(host) >= base;
        let may = self.mode.neighbours.is_entitled
            || (self.membership.activated && self.sequence.base().is_some_and(is_reached));
        may && self.is_tail(host)
    }

    /// The last entry that this node and every node before it have synced (C2).
    pub(crate) fn held_up_to_here(&self) -> u64 {
        let synced = self.sequence.synced();
        if self.is_primary() { synced } else { synced.min(self.mode.neighbours.before()) }
    }

    /// The last entry that this node and every node behind it have synced. At the tail, which gets
    /// reports from both sides: that every node has synced.
    fn held_from_here(&self, host: &Host) -> u64 {
        let synced = match self.is_tail(host) {
            true => self.held_up_to_here(),
            false => self.sequence.synced(),
        };
        match self.membership.successor(host.config.node) {
            None => synced,
            Some(_) => synced.min(self.mode.neighbours.held()),
        }
    }

    /// The number that this node reports up the chain: every node from here on has synced this
    /// entry. If the tail is here or behind, the tail has also shown it.
    fn released_from_here(&self, host: &Host) -> u64 {
        let held = self.held_from_here(host);
        match self.is_tail(host) && !self.speaks(host) {
            true => held.min(self.sequence.released()),
            false => held,
        }
    }

    /// The last entry that this node knows to be synced by all. For a node before the tail, a
    /// report from behind is enough: it has passed the tail, which gets reports from both sides. A
    /// joiner, which is behind the tail, also needs the reports of the nodes before it.
    fn held_by_all(&self, host: &Host) -> u64 {
        let held = self.released_from_here(host);
        match self.membership.standing == Standing::Joining {
            true => held.min(self.held_up_to_here()),
            false => held,
        }
    }

    /// Whether this joiner, behind the tail, still needs a report that the nodes before it have
    /// synced what it and the nodes behind it hold. It has to ask: those nodes do not resend the
    /// report by themselves, because this node has acknowledged their entries.
    fn awaits_those_before(&self, host: &Host) -> bool {
        self.membership.standing == Standing::Joining && self.sequence.released() < self.held_from_here(host)
    }

    /// An entry was synced here, or reported as synced by the nodes before this one.
    pub(crate) fn on_entry_synced(&mut self, host: &mut Host, now: Now) {
        self.tell_news(host);
        self.advance(host, now);
    }

    /// Reports to the successor the last entry that every node up to this one has synced, if that
    /// is news.
    fn tell_news(&mut self, host: &mut Host) {
        if self.sequence.base().is_some() && self.mode.neighbours.take_news(self.held_up_to_here()) {
            self.tell_successor(host);
        }
    }

    /// Sends the successor the entries that were not sent to it yet (C6).
    pub(crate) fn forward(&mut self, host: &mut Host, now: Now) {
        let Some(next) = self.membership.successor(host.config.node) else { return };
        if !self.mode.neighbours.is_heard() || self.sequence.base().is_none() {
            return;
        }
        let watermark = self.watermark();
        let mut sent = self.mode.neighbours.sent();
        for decided in self.sequence.after(sent) {
            let has_room =
                self.mode.neighbours.in_flight() + (decided.index - sent) <= CHAIN_ENTRIES_IN_FLIGHT_MAX;
            if !has_room {
                break;
            }
            if !self.send_entry(host, next.address, decided, watermark) {
                break;
            }
            self.mode.neighbours.note_sent(now, decided.index);
            self.mode.neighbours.take_news(watermark.synced);
            sent = decided.index;
        }
        host.arm_sweep(now);
    }

    /// Sends an entry if its op is still open, as it is until it is released. Returns whether it
    /// was.
    fn send_entry(&self, host: &mut Host, to: SocketAddrV4, decided: &Decided, watermark: Watermark) -> bool {
        let Some(op) = self.locks.op(decided.op) else { return false };
        let decision = decided.wire(self.id(), self.membership.epoch);
        let mut entry = ChainEntry { decision, prepare: op.stored.datagram() };
        if entry.bytes() > CHAIN_ENTRY_BYTES_MAX {
            self.resend(host, entry.prepare, to);
            entry.prepare = &[];
        }
        host.outbox.forward(to, Some(&entry), watermark);
        true
    }

    /// Sends the head of a new epoch the entries after `after`, which it lacks.
    pub(crate) fn send_entries_after(&self, host: &mut Host, to: SocketAddrV4, after: u64) {
        let watermark = self.watermark();
        for decided in self.sequence.after(after).take(CATCH_UP_DATAGRAMS_MAX) {
            if !self.send_entry(host, to, decided, watermark) {
                break;
            }
        }
    }

    /// Releases the entries that all members have synced, and reports up the chain what is held
    /// from here on.
    pub(crate) fn advance(&mut self, host: &mut Host, now: Now) {
        if self.membership.standing == Standing::Outside {
            return;
        }
        let through = self.held_by_all(host).min(self.sequence.logged());
        let newly = through.saturating_sub(self.sequence.released()) as usize;
        if newly > 0 {
            let keys = self.keys_to_decide(newly);
            self.release(host, now, through);
            for key in keys {
                self.decide_key(host, now, &key);
            }
        }
        let has_base = self.sequence.base().is_some_and(|base| self.sequence.released() >= base);
        self.mode.neighbours.is_entitled |= has_base && self.membership.activated && self.is_tail(host);
        let untold = self.released_from_here(host).saturating_sub(self.mode.neighbours.told);
        if self.mode.neighbours.told_space != self.space_from_here(host)
            || (untold > 0 && self.is_waited_for(untold))
        {
            self.tell_progress(host, false);
        } else if untold > 0 {
            self.answer_soon(host, now);
        }
    }

    /// Whether another node waits for this node's report of `untold` more entries: the tail waits
    /// for a joiner's report before it answers; the head waits before it ends a sealed epoch (R17),
    /// or sends more entries (C6). Otherwise the report only lets the predecessor forget entries,
    /// so one report can cover several syncs.
    fn is_waited_for(&self, untold: u64) -> bool {
        let joins = self.membership.standing == Standing::Joining;
        joins || self.membership.sealed || untold >= CHAIN_ENTRIES_IN_FLIGHT_MAX / 4
    }

    /// Head: of the keys of the next `decisions` unreleased decisions, those with undecided ops.
    fn keys_to_decide(&self, decisions: usize) -> Vec<StoredKey> {
        if !self.is_primary() {
            return Vec::new();
        }
        let ops = self.sequence.unreleased().take(decisions).filter_map(|decided| self.locks.op(decided.op));
        let has_undecided =
            |key: &StoredKey| self.locks.key(key).is_some_and(|key| key.undecided().next().is_some());
        ops.flat_map(|op| op.stored.stored_keys()).filter(has_undecided).collect()
    }

    /// The least disk space of this node and those behind it (docs/FAULTS.md row 9). Every node has
    /// to log every entry, so the head refuses ops before any of them is full.
    pub(crate) fn space_from_here(&self, host: &Host) -> DiskSpace {
        host.disk_space.max(self.mode.neighbours.space())
    }

    fn is_predecessor(&self, host: &Host, sender: NodeId) -> bool {
        self.membership.predecessor(host.config.node).is_some_and(|before| before.node == sender)
    }

    /// A member reports its progress; only a report of the successor counts (C5).
    pub(crate) fn on_progress(&mut self, host: &mut Host, now: Now, sender: NodeId, progress: &Progress) {
        let next = self.membership.successor(host.config.node);
        let Some(next) = next.filter(|next| next.node == sender) else { return };
        self.mode.neighbours.take_progress(now, progress);
        if progress.gap && self.sequence.base().is_some() {
            host.outbox.forward(next.address, None, self.watermark());
        }
        self.forward(host, now);
        self.tell_news(host);
        self.advance(host, now);
    }

    /// The predecessor reports where the epoch begins and what is synced, and expects a progress
    /// report in answer.
    pub(crate) fn on_watermark(&mut self, host: &mut Host, now: Now, sender: NodeId, watermark: &Watermark) {
        if !self.is_predecessor(host, sender) {
            return;
        }
        self.mode.neighbours.take_before(watermark.synced);
        if self.sequence.base().is_some() {
            self.on_entry_synced(host, now);
            return self.answer_soon(host, now);
        }
        self.sequence.begin_at(watermark.base);
        if self.membership.standing == Standing::Joining {
            self.start_after(host, now, watermark.base);
        }
        self.tell_successor(host);
        self.tell_progress(host, false);
        self.advance(host, now);
        host.arm_sweep(now);
    }

    /// Sends the successor the base of the epoch, and the last entry that every node up to this one
    /// has synced.
    pub(crate) fn tell_successor(&self, host: &mut Host) {
        if let Some(next) = self.membership.successor(host.config.node) {
            host.outbox.forward(next.address, None, self.watermark());
        }
    }

    /// Makes a progress report to the predecessor due soon, even if nothing changes.
    fn answer_soon(&mut self, host: &mut Host, now: Now) {
        let delay_ns = host.config.timing.resend.as_nanos() as u64 / 4;
        self.reporting.be_due(now.boot_ns + delay_ns);
        host.arm_sweep_at(now.boot_ns + delay_ns);
    }

    /// The predecessor sends an op ahead of its entry.
    pub(crate) fn on_early_op(&mut self, host: &Host, sender: NodeId, update: &Update<'_>, datagram: &[u8]) {
        if self.is_predecessor(host, sender) || self.adopts_from(sender) {
            self.mode.neighbours.keep_early(update.op, datagram);
        }
    }

    /// An entry arrives from the predecessor; it is logged if it is the next one (C1).
    pub(crate) fn on_forwarded(
        &mut self,
        host: &mut Host,
        now: Now,
        sender: NodeId,
        decision: &Decision<'_>,
        op: Option<(&Update<'_>, &[u8])>,
    ) {
        if self.is_primary() {
            return self.adopt_entry(host, now, sender, decision, op);
        }
        if !self.is_predecessor(host, sender) || self.sequence.base().is_none() {
            return;
        }
        let next = self.sequence.logged() + 1;
        if decision.index < next {
            return self.answer_soon(host, now);
        }
        let is_taken =
            decision.index == next && !self.keeps_too_much() && self.take_op(host, now, decision, op);
        if !is_taken {
            return self.report_gap(host, now);
        }
        host.trace.note(now, decision.op, Step::Learned { contended: false });
        self.log_decision(host, now, Decided { contended: true, ..Decided::from_wire(decision) });
        self.forward(host, now);
        self.answer_soon(host, now);
    }

    /// Logs the op of an entry unless it was logged before. Returns whether the op is in the log
    /// now.
    fn take_op(
        &mut self,
        host: &mut Host,
        now: Now,
        decision: &Decision<'_>,
        op: Option<(&Update<'_>, &[u8])>,
    ) -> bool {
        if self.locks.holds(decision.op) {
            return true;
        }
        let spare = self.locks.take_spare();
        let stored = match op {
            Some((update, datagram)) => StoredUpdate::new(update, datagram, None, spare),
            None => {
                let Some(datagram) = self.mode.neighbours.take_early(decision.op) else { return false };
                let Ok((_, Datagram::Update(update))) = Datagram::decode(&datagram) else { return false };
                StoredUpdate::new(&update, &datagram, None, spare)
            }
        };
        if stored.head().op != decision.op {
            host.counters.malformed += 1;
            return false;
        }
        self.log_op(host, now, stored);
        true
    }

    /// Logs an op. Its decision is the next record, and the same sync covers both.
    pub(crate) fn log_op(&mut self, host: &mut Host, now: Now, stored: StoredUpdate) {
        let record = Record::Prepare { contended: true, datagram: stored.datagram() };
        let order = host.append(self.id(), |out| record.append(out));
        self.insert_op(host, now, order, true, stored);
    }

    /// Retries what is overdue. Returns whether another sweep is needed later.
    pub(crate) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        let is_work_left = self.look_over(host, now);
        self.sweep_repairs(host, now) || is_work_left
    }

    fn look_over(&mut self, host: &mut Host, now: Now) -> bool {
        if self.membership.standing == Standing::Outside {
            return false;
        }
        if self.sequence.synced() < self.sequence.logged() {
            host.storage.want_sync();
        }
        let resend_ns = host.config.timing.resend.as_nanos() as u64;
        if self.lead.as_ref().is_some_and(|lead| !lead.is_ready()) {
            self.ask(host);
            self.finish_collecting(host, now);
        } else if self.sequence.base().is_none() {
            self.report_gap(host, now);
        } else if self.awaits_those_before(host) && self.reporting.take_gap(now, resend_ns) {
            self.tell_progress(host, true);
        } else if self.reporting.is_due(now) {
            self.tell_progress(host, false);
        }
        if self.membership.standing == Standing::Joining {
            self.sweep_join(host, now);
        }
        self.advance(host, now);
        self.serve_successor(host, now, resend_ns);
        self.locks.count() > 0
            || self.sequence.unreleased().len() > 0
            || self.sequence.base().is_none()
            || self.sequence.synced() < self.sequence.logged()
            || self.reporting.is_pending()
            || self.lacks_successor(host)
            || self.mode.neighbours.told_space != DiskSpace::Enough
            || self.membership.standing == Standing::Joining
    }

    /// Whether there is a successor that has not acknowledged everything, for itself and the nodes
    /// behind it.
    fn lacks_successor(&self, host: &Host) -> bool {
        let has_successor = self.membership.successor(host.config.node).is_some();
        has_successor
            && (!self.mode.neighbours.is_heard() || self.mode.neighbours.held() < self.sequence.logged())
    }

    /// Resends to the successor what it has not acknowledged, and accuses it after too many tries
    /// (R15).
    fn serve_successor(&mut self, host: &mut Host, now: Now, resend_ns: u64) {
        let Some(next) = self.membership.successor(host.config.node) else { return };
        if self.sequence.base().is_none() || !self.lacks_successor(host) {
            return;
        }
        let Some(tries) = self.mode.neighbours.take_silent(now, resend_ns) else { return };
        host.counters.resent += 1;
        host.outbox.forward(next.address, None, self.watermark());
        self.forward(host, now);
        if tries >= host.config.timing.accuse_after_resends {
            host.report(self.id(), self.membership.epoch, ReportKind::Accuse(next.node));
        }
    }
}
