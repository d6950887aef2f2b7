//! Multicast two-phase commit (NICE §4.2 to §4.4 with rules R1 to R5, R7, R8, R10, R11, R15 and
//! R17).
//!
//! ```text
//! client   primary   secondary                      client   primary   secondary
//!   │──Update─▶│─────────▶│                           │──Update─▶│─────────▶│
//!   │          │ fsync    │ fsync                     │          │ fsync    │ fsync
//!   │          │◀──Acks───│                           │◀ ─ ─ ─ ─ │◀──Acks───│ (contended)
//!   │◀──Reply──│─Decisions▶ apply, unlock             │          │─Decisions▶ fsync, stay locked
//!          uncontended                                │          │◀──Acks───│ (progress)
//!                                                     │◀──Reply──│─Decisions▶ (released) apply, unlock
//!                                                              contended
//! ```
//!
//! The switch multicasts a put to all members. Each logs it, syncs the log, and acknowledges it to
//! the primary (`prepare`). The primary decides when every member has acknowledged
//! (`ordered::decide`). An uncontended decision takes effect at once. A contended one takes effect
//! when every member has synced it; the primary announces that by a watermark (`release`, and
//! `follow` at the other members). `resend` handles silence, `refuse` full disks, `make_value`
//! values that the primary builds, `get` reads.

mod follow;
mod get;
mod make_value;
mod makings;
mod prepare;
mod refuse;
mod release;
mod resend;

use crate::modes::messages::{Message, Request};
use crate::modes::ordered::evaluate::Verdict;
use crate::modes::ordered::locks::WaitingGet;
use crate::modes::ordered::sequence::Decided;
use crate::modes::ordered::waits::AwaitedSync;
use crate::modes::ordered::{Agreement, OrderedPartition};
use crate::{Changes, Host, Membership, Step};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use core::net::SocketAddrV4;
use makings::Makings;
use nicekv_proto::recovery::{Entry, Wanted};
use nicekv_proto::replication::Watermark;
use nicekv_proto::{NodeId, Now, OpId, Update};
use prepare::Source;

#[derive(Clone, Default)]
pub(crate) struct TwoPhase {
    /// Primary: gets that wait until this process is known to hold everything that was confirmed
    /// (R18).
    awaiting_proof: Vec<(WaitingGet, Box<[u8]>)>,
    /// Primary: the values that it builds in this epoch.
    makings: Makings,
}

impl Agreement for OrderedPartition<TwoPhase> {
    const DECIDES_AT_ONCE: bool = false;
    const PASSES_GETS_TO_PRIMARY: bool = true;

    fn begin_epoch(&mut self, host: &mut Host, _: Now, _: &Membership) {
        host.counters.dropped += self.mode.awaiting_proof.len() as u64;
        self.mode = TwoPhase::default();
    }

    fn on_recovered(&mut self, host: &mut Host, now: Now) {
        let lead = self.lead.as_ref().expect("a primary");
        let me = lead.me();
        let others = (0..self.membership.members.len()).filter(|position| *position != me);
        let behind: Vec<(usize, u64)> = others.map(|position| (position, lead.logged_by(position))).collect();
        for (position, logged) in behind {
            self.catch_up(host, now, position, logged);
        }
    }

    fn resume(&mut self, host: &mut Host, now: Now) {
        if self.is_primary() {
            self.advance_release(host, now);
            self.decide_all(host, now);
            self.look_for_proof(host, now);
            host.arm_sweep(now);
        }
    }

    fn judge_known(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> Option<Verdict> {
        self.judge_or_make(host, now, key, op)
    }

    fn commit(&mut self, host: &mut Host, now: Now, decided: Decided) {
        let (op, contended) = (decided.op, decided.contended);
        host.trace.note(now, op, Step::Decided { contended });
        host.counters.decided_contended += u64::from(contended);
        self.tell_members(host, Some(&decided.wire(self.id(), self.membership.epoch)));
        self.log_decision(host, now, decided);
        self.end_making(op);
    }

    fn propose(&mut self, host: &mut Host, now: Now, update: &Update<'_>, datagram: &[u8]) {
        host.outbox.send(self.membership.multicast, |out| update.encode(out));
        self.on_update(host, now, update, datagram, Source::Own);
    }

    #[inline]
    fn answers_clients(&self, _: &Host) -> bool {
        self.is_primary()
    }

    #[inline]
    fn answer_get_from(
        &mut self,
        host: &mut Host,
        now: Now,
        get: WaitingGet,
        key: (&[u8], Changes),
        entry: Option<Entry<'_>>,
    ) {
        self.answer_get(host, now, get, key, entry);
    }

    fn tell_progress(&mut self, host: &mut Host, gap: bool) {
        self.tell_primary(host, gap);
    }

    fn fingerprint_mode(&self, state: &mut impl Hasher) {
        self.mode.awaiting_proof.len().hash(state);
    }
}

impl OrderedPartition<TwoPhase> {
    pub(crate) fn on_request(&mut self, host: &mut Host, now: Now, from: SocketAddrV4, request: Request<'_>) {
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

    pub(crate) fn on_message(&mut self, host: &mut Host, now: Now, sender: NodeId, message: Message<'_>) {
        match message {
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
            Message::RepairRequest(request) => {
                self.learn_released(host, now, request.released);
                self.on_repair_request(host, request);
            }
            Message::RepairReply(reply) => self.on_repair_reply(host, now, reply),
            Message::ScrubPage(page) => {
                self.learn_released(host, now, page.released);
                self.on_scrub_page(host, page);
            }
            Message::Forwarded(..)
            | Message::Tombstones(_)
            | Message::TombstonesAck(_)
            | Message::Entrust(_)
            | Message::Entrusted(_) => host.counters.refused += 1,
        }
    }

    pub(crate) fn on_synced(&mut self, host: &mut Host, now: Now, record: u64) {
        match self.waits.finish_sync(record) {
            None => {}
            Some(AwaitedSync::Prepare(op)) => self.on_prepare_synced(host, now, op),
            Some(AwaitedSync::Decision(index)) => self.on_decision_synced(host, now, index),
            Some(AwaitedSync::Copy) => self.on_copy_synced(host, now),
        }
    }

    /// Whether this node, while its lease runs, would answer a get of any key that no op locks.
    pub(crate) fn answers_gets(&self, _: &Host) -> bool {
        self.membership.standing.serves() && (self.is_proven || self.is_recovered_wholly())
    }

    /// Whether this replica decides its keys' ops and shows the decisions at once.
    pub(crate) fn leads(&self) -> bool {
        let is_whole = self.membership.activated && !self.membership.sealed;
        is_whole
            && self.lead.as_ref().is_some_and(|lead| lead.is_ready())
            && self.is_proven
            && self.membership.standing.serves()
    }

    /// See [`Partition::settled`](crate::modes::Partition::settled). A contended decision takes
    /// effect only when it is released (R2), so a later decision may be shown before it.
    pub(crate) fn settled(&self) -> Option<u64> {
        let leads = self.lead.as_ref().is_some_and(|lead| lead.is_ready()) && self.membership.activated;
        let leads = leads && self.is_proven;
        let is_held_back = self.sequence.unreleased().any(|decided| decided.contended);
        (leads && !is_held_back).then(|| self.sequence.logged())
    }

    /// The primary's release watermark, as sent with decisions.
    fn watermark(&self) -> Watermark {
        Watermark {
            partition: self.id(),
            epoch: self.membership.epoch,
            base: self.sequence.base().unwrap_or(0),
            synced: self.sequence.released(),
            recovered: self.is_recovered_wholly(),
            working: false,
        }
    }
}
