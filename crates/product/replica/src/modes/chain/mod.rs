//! The members of a partition as a chain (TurboKV §4.1.2 with rules C1 to C10): another way to agree on the same sequence.
//!
//! ```text
//!  client        head              middle            tail
//!    │──Update───▶│ decide, log      │                 │
//!    │            │──Forwards───────▶│ log             │
//!    │            │                  │──Forwards──────▶│ log
//!    │            │ force            │ force           │ force
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
//! The parts are those of the multicast: `sequence`, `locks`, `contents`, joining, repair, expiry. What differs is how an op becomes one that all hold, and
//! who says so. The primary is the **head**. It decides an op as soon as it has it (C1, C4): every decision is a contended one, which takes effect at
//! a member when it is *released*, that is forced by all.
//!
//! * A node forwards what it has logged, in order, to the next one of *its own* epoch (C5), and forces it meanwhile. How far it and all before it have forced is one number,
//!   which travels down the chain (C2).
//! * It keeps an entry until all have forced it, and sends it again by timer (C6). What is acknowledged is one number, which travels up the chain.
//! * The **tail** is the last one that holds everything. It alone answers (C3): puts when it releases them, gets from what it has released.
//! * Who joins stands behind the tail (C8). It forces and acknowledges like all others, and the tail releases nothing before. So what the tail has said is held by all
//!   members of its epoch, and a joiner that has copied what was before its epoch lacks nothing. It releases an entry when it has heard from before it, too, that all have forced it: the tail does
//!   not say so to those behind it, and a head that lost an entry must find it with the others.
//! * Logs are prefixes of each other. A node that has lost what it had not forced may have less than its successor; so a head begins its epoch as the primary of a multicast
//!   does: it hears all members, and adopts the longest log (`epoch`). Removing any node leaves that so (C9). An epoch begins where its head's log ended then, at its *base*,
//!   which travels down the chain with its first datagram. A tail that was none in the epoch before says nothing until the epoch is
//!   activated and everything up to the base is released (C7): nothing beyond the base was shown in any epoch before, since what was shown all had forced.
//!
//! Invariants: `released <= held from here on <= forced <= logged`; what has taken effect anywhere is forced everywhere.

mod get;
mod head;
mod hop;

use crate::modes::bounds::{CATCH_UP_DATAGRAMS_MAX, CHAIN_ENTRIES_IN_FLIGHT_MAX};
use crate::modes::messages::{Message, Request};
use crate::modes::ordered::evaluate::{Verdict, evaluate};
use crate::modes::ordered::lead::Lead;
use crate::modes::ordered::locks::{Latest, WaitingGet};
use crate::modes::ordered::record::Record;
use crate::modes::ordered::sequence::Decided;
use crate::modes::ordered::waits::UnforcedWhat;
use crate::modes::ordered::{Agreement, OrderedPartition};
use crate::{Changes, Host, Membership, Standing, Step, ValueEnd};
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::SocketAddrV4;
use hop::Hop;
use nicekv_proto::chain::{CHAIN_ENTRY_BYTES_MAX, ChainEntry};
use nicekv_proto::control::{DiskSpace, ReportKind};
use nicekv_proto::large::Reference;
use nicekv_proto::recovery::{Entry, Wanted};
use nicekv_proto::replication::{Decision, Progress, Watermark};
use nicekv_proto::{Datagram, NodeId, Now, OpId, StoredKey, StoredUpdate, Update};

/// State of a partition that only this mode has.
#[derive(Clone, Default)]
pub(crate) struct Chain {
    /// The neighbours in this epoch.
    hop: Hop,
}

impl Agreement for OrderedPartition<Chain> {
    const DECIDES_AT_ONCE: bool = true;
    const PASSES_GETS_TO_PRIMARY: bool = false;

    fn begin_epoch(&mut self, host: &mut Host, now: Now, next: &Membership) {
        // Nobody was told of what the head has not decided, and no other node has it. The log may have it without its decision, which a
        // power failure took.
        for op in self.locks.drop_undecided(&mut host.visibility) {
            host.finish_internal(op);
        }
        let me = Some(host.config.node);
        let follows = next.epoch.0 == self.membership.epoch.0 + 1;
        let is_entitled =
            self.mode.hop.is_entitled && follows && self.membership.tail() == me && next.tail() == me;
        self.mode.hop = Hop::new(now, is_entitled);
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

    /// To the predecessor.
    fn tell_progress(&mut self, host: &mut Host, gap: bool) {
        self.reporting.tell();
        let (forced, space) = (self.released_from_here(host), self.space_from_here(host));
        (self.mode.hop.told, self.mode.hop.told_space) = (self.mode.hop.told.max(forced), space);
        let Some(before) = self.membership.predecessor(host.config.node) else { return };
        let (partition, epoch, logged) = (self.id(), self.membership.epoch, self.sequence.logged());
        let progress = Progress { partition, epoch, logged, forced, gap, space };
        host.outbox.ack_progress(before.address, progress);
    }

    fn fingerprint_mode(&self, state: &mut impl Hasher) {
        self.mode.hop.fingerprint(state);
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

    pub(crate) fn on_forced(&mut self, host: &mut Host, now: Now, record: u64) {
        match self.waits.finish_force(record) {
            None => {}
            // No prepare of a chain is awaited, but of the epoch before this one the keyspace may have been in the other mode.
            Some(UnforcedWhat::Prepare(_)) => {}
            Some(UnforcedWhat::Decision(index)) => {
                self.sequence.force(index);
                self.on_entry_forced(host, now);
            }
            Some(UnforcedWhat::Copy) => self.on_copy_forced(host, now),
        }
    }

    /// Chains make no values.
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

    /// Whether a get of any key that is not locked would be answered here, within the lease.
    pub(crate) fn answers_gets(&self, host: &Host) -> bool {
        self.is_tail(host) && self.tail_answers_gets(host)
    }

    /// A chain shows a decision at one node after the other, so other nodes hold no copies of its keys.
    pub(crate) fn leads(&self) -> bool {
        false
    }

    /// See [`Partition::settled`](crate::modes::Partition::settled): what the tail has released was told to clients, and nothing else has
    /// taken effect here.
    pub(crate) fn settled(&self) -> Option<u64> {
        self.mode.hop.has_spoken().then(|| self.sequence.released())
    }

    /// What all up to here have synced, told with entries.
    fn watermark(&self) -> Watermark {
        Watermark {
            partition: self.id(),
            epoch: self.membership.epoch,
            base: self.sequence.base().unwrap_or(0),
            forced: self.held_up_to_here(),
            recovered: false,
        }
    }

    /// Once recovery is complete, this process holds everything that was confirmed before it started (R18).
    fn look_for_proof(&mut self) {
        if self.is_recovered_wholly() {
            self.is_proven = true;
            self.lead.as_mut().map(Lead::complete);
        }
    }

    /// Whether this node is the one that answers (C3).
    pub(crate) fn is_tail(&self, host: &Host) -> bool {
        self.membership.tail() == Some(host.config.node)
    }

    /// Whether this node is the tail, and may answer (C7).
    pub(crate) fn speaks(&self, host: &Host) -> bool {
        let is_reached = |base| self.held_from_here(host) >= base;
        let may = self.mode.hop.is_entitled
            || (self.membership.activated && self.sequence.base().is_some_and(is_reached));
        may && self.is_tail(host)
    }

    /// The last entry that this node and all before it have forced (C2).
    pub(crate) fn held_up_to_here(&self) -> u64 {
        let forced = self.sequence.forced();
        if self.is_primary() { forced } else { forced.min(self.mode.hop.before()) }
    }

    /// The last entry that this node and all behind it have forced; at the tail, which all others hear, also all before it.
    fn held_from_here(&self, host: &Host) -> u64 {
        let forced = match self.is_tail(host) {
            true => self.held_up_to_here(),
            false => self.sequence.forced(),
        };
        match self.membership.successor(host.config.node) {
            None => forced,
            Some(_) => forced.min(self.mode.hop.held()),
        }
    }

    /// What is told up the chain: everything up to there is held from here on; by all, if the tail is here or behind, and was said by it.
    fn released_from_here(&self, host: &Host) -> u64 {
        let held = self.held_from_here(host);
        match self.is_tail(host) && !self.speaks(host) {
            true => held.min(self.sequence.released()),
            false => held,
        }
    }

    /// The last entry that all have forced, as far as it is known here. What comes up the chain has passed the tail, which hears both sides; who joins, behind it, hears the others from before.
    fn held_by_all(&self, host: &Host) -> u64 {
        let held = self.released_from_here(host);
        match self.membership.standing == Standing::Joining {
            true => held.min(self.held_up_to_here()),
            false => held,
        }
    }

    /// Whether this node, behind the tail, waits to hear that those before it have forced what is held from here on. They do not send it again by themselves: they were told that it is held.
    fn awaits_those_before(&self, host: &Host) -> bool {
        self.membership.standing == Standing::Joining && self.sequence.released() < self.held_from_here(host)
    }

    /// More is durable here, or before.
    pub(crate) fn on_entry_forced(&mut self, host: &mut Host, now: Now) {
        self.tell_news(host);
        self.advance(host, now);
    }

    /// Tells the successor how far all up to here have forced, unless it knows.
    fn tell_news(&mut self, host: &mut Host) {
        if self.sequence.base().is_some() && self.mode.hop.take_news(self.held_up_to_here()) {
            self.tell_successor(host);
        }
    }

    /// Sends the successor what is logged here and was not sent (C6).
    pub(crate) fn forward(&mut self, host: &mut Host, now: Now) {
        let Some(next) = self.membership.successor(host.config.node) else { return };
        if !self.mode.hop.is_heard() || self.sequence.base().is_none() {
            return;
        }
        let watermark = self.watermark();
        let mut sent = self.mode.hop.sent();
        for decided in self.sequence.after(sent) {
            let has_room = self.mode.hop.in_flight() + (decided.index - sent) <= CHAIN_ENTRIES_IN_FLIGHT_MAX;
            if !has_room {
                break;
            }
            if !self.send_entry(host, next.address, decided, watermark) {
                break;
            }
            self.mode.hop.note_sent(now, decided.index);
            self.mode.hop.take_news(watermark.forced);
            sent = decided.index;
        }
        host.arm_sweep(now);
    }

    /// Sends an entry, if its op is here, which is so as long as it is not released.
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

    /// Sends the head of an epoch that begins the entries that it lacks.
    pub(crate) fn send_entries_after(&self, host: &mut Host, to: SocketAddrV4, after: u64) {
        let watermark = self.watermark();
        for decided in self.sequence.after(after).take(CATCH_UP_DATAGRAMS_MAX) {
            if !self.send_entry(host, to, decided, watermark) {
                break;
            }
        }
    }

    /// Releases what all hold, and says up the chain what is held from here on.
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
        self.mode.hop.is_entitled |= has_base && self.membership.activated && self.is_tail(host);
        let untold = self.released_from_here(host).saturating_sub(self.mode.hop.told);
        if self.mode.hop.told_space != self.space_from_here(host)
            || (untold > 0 && self.is_waited_for(untold))
        {
            self.tell_progress(host, false);
        } else if untold > 0 {
            self.answer_soon(host, now);
        }
    }

    /// Whether somebody waits to hear that so many more entries are held from here on: the tail to speak, if this node is behind it; the head to end (R17), or to send more (C6).
    /// Else the predecessor merely forgets them, and hears of several forces at once.
    fn is_waited_for(&self, untold: u64) -> bool {
        let joins = self.membership.standing == Standing::Joining;
        joins || self.membership.sealed || untold >= CHAIN_ENTRIES_IN_FLIGHT_MAX / 4
    }

    /// Head: the keys of the next so many decisions, of which ops may wait for these.
    fn keys_to_decide(&self, decisions: usize) -> Vec<StoredKey> {
        if !self.is_primary() {
            return Vec::new();
        }
        let ops = self.sequence.unreleased().take(decisions).filter_map(|decided| self.locks.op(decided.op));
        let has_undecided =
            |key: &StoredKey| self.locks.key(key).is_some_and(|key| key.undecided().next().is_some());
        ops.flat_map(|op| op.stored.stored_keys()).filter(has_undecided).collect()
    }

    /// What this node, and all behind it, have room for (docs/FAULTS.md row 9). An entry is in its place, and is logged by all; so the head is told, and has no more of them.
    pub(crate) fn space_from_here(&self, host: &Host) -> DiskSpace {
        host.disk_space.max(self.mode.hop.space())
    }

    fn is_predecessor(&self, host: &Host, sender: NodeId) -> bool {
        self.membership.predecessor(host.config.node).is_some_and(|before| before.node == sender)
    }

    /// Another member says how far it is; the successor alone counts (C5).
    pub(crate) fn on_progress(&mut self, host: &mut Host, now: Now, sender: NodeId, progress: &Progress) {
        let next = self.membership.successor(host.config.node);
        let Some(next) = next.filter(|next| next.node == sender) else { return };
        self.mode.hop.take_progress(now, progress);
        if progress.gap && self.sequence.base().is_some() {
            host.outbox.forward(next.address, None, self.watermark());
        }
        self.forward(host, now);
        self.tell_news(host);
        self.advance(host, now);
    }

    /// The predecessor says where the epoch begins. It wants to hear how far this node is.
    pub(crate) fn on_watermark(&mut self, host: &mut Host, now: Now, sender: NodeId, watermark: &Watermark) {
        if !self.is_predecessor(host, sender) {
            return;
        }
        self.mode.hop.take_before(watermark.forced);
        if self.sequence.base().is_some() {
            self.on_entry_forced(host, now);
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

    /// Tells the successor where the epoch begins, and how far all up to here have forced.
    pub(crate) fn tell_successor(&self, host: &mut Host) {
        if let Some(next) = self.membership.successor(host.config.node) {
            host.outbox.forward(next.address, None, self.watermark());
        }
    }

    /// The predecessor is to hear how far this node is, though nothing changes.
    fn answer_soon(&mut self, host: &mut Host, now: Now) {
        let delay_ns = host.config.timing.resend.as_nanos() as u64 / 4;
        self.reporting.be_due(now.boot_ns + delay_ns);
        host.arm_sweep_at(now.boot_ns + delay_ns);
    }

    /// An op whose entry follows.
    pub(crate) fn on_early_op(&mut self, host: &Host, sender: NodeId, update: &Update<'_>, datagram: &[u8]) {
        if self.is_predecessor(host, sender) || self.adopts_from(sender) {
            self.mode.hop.keep_early(update.op, datagram);
        }
    }

    /// An entry: it is logged in its turn (C1).
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

    /// Logs the op of an entry, unless that was done. Whether it is here.
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
                let Some(datagram) = self.mode.hop.take_early(decision.op) else { return false };
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

    /// Logs an op whose decision is logged next, and forced with it.
    pub(crate) fn log_op(&mut self, host: &mut Host, now: Now, stored: StoredUpdate) {
        let record = Record::Prepare { contended: true, datagram: stored.datagram() };
        let order = host.append(self.id(), |out| record.append(out));
        self.insert_op(host, now, order, true, stored);
    }

    /// Retries what is overdue. Whether there is anything to look at again later.
    pub(crate) fn sweep(&mut self, host: &mut Host, now: Now) -> bool {
        let is_work_left = self.look_over(host, now);
        self.sweep_repairs(host, now) || is_work_left
    }

    fn look_over(&mut self, host: &mut Host, now: Now) -> bool {
        if self.membership.standing == Standing::Outside {
            return false;
        }
        if self.sequence.forced() < self.sequence.logged() {
            host.storage.want_force();
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
            || self.sequence.forced() < self.sequence.logged()
            || self.reporting.is_pending()
            || self.lacks_successor(host)
            || self.mode.hop.told_space != DiskSpace::Enough
            || self.membership.standing == Standing::Joining
    }

    /// Whether there is a successor that has not said that it, and all behind it, hold everything.
    fn lacks_successor(&self, host: &Host) -> bool {
        let has_successor = self.membership.successor(host.config.node).is_some();
        has_successor && (!self.mode.hop.is_heard() || self.mode.hop.held() < self.sequence.logged())
    }

    /// Sends the successor again what it has not acknowledged, and accuses it if it says nothing at all.
    fn serve_successor(&mut self, host: &mut Host, now: Now, resend_ns: u64) {
        let Some(next) = self.membership.successor(host.config.node) else { return };
        if self.sequence.base().is_none() || !self.lacks_successor(host) {
            return;
        }
        let Some(tries) = self.mode.hop.take_silent(now, resend_ns) else { return };
        host.counters.resent += 1;
        host.outbox.forward(next.address, None, self.watermark());
        self.forward(host, now);
        if tries >= host.config.timing.accuse_after_resends {
            host.report(self.id(), self.membership.epoch, ReportKind::Accuse(next.node));
        }
    }
}
