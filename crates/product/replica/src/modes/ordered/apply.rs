//! How every member handles a decision: it is logged, takes effect, and is released.
//!
//! An uncontended decision takes effect when it is logged; a contended one when every member has
//! synced it (R2).

use super::contents::{effects, is_large};
use super::partition::{Agreement, OrderedPartition};
use super::record::Record;
use super::sequence::Decided;
use super::waits::AwaitedSync;
use crate::modes::ordered::clients::StoredResult;
use crate::{Host, Step};
use nicekv_proto::replication::Effect;
use nicekv_proto::{Now, OpId, StoredUpdate};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Logs the next decision. An uncontended one takes effect at once, a contended one when it is
    /// released (R2).
    pub(crate) fn log_decision(&mut self, host: &mut Host, now: Now, decided: Decided) {
        self.sequence.log(decided.index, decided.origin);
        let record = host.append_awaited(self.id(), |out| {
            Record::Decision(decided.wire(self.id(), self.membership.epoch)).append(out);
        });
        self.waits.sync(record, AwaitedSync::Decision(decided.index));
        if decided.contended {
            host.storage.want_sync();
        }
        self.settle(host, now, decided);
    }

    /// The part of [`Self::log_decision`] that also runs when the log is replayed.
    pub(crate) fn settle(&mut self, host: &mut Host, now: Now, decided: Decided) {
        // `None`: the op is not open. It was decided before, and once more for a member that seemed
        // to wait for it; the first decision counts.
        let unreleased = self.locks.decide(decided.op);
        if unreleased.is_none() {
            // The op was refused and never prepared here, or its effect is already in the engine.
            // Remember its result so that it is not accepted again.
            let result = StoredResult::of(&decided.wire(self.id(), self.membership.epoch));
            self.clients.remember(decided.op, decided.index, result);
            self.keep_named(host);
        }
        if !decided.contended {
            if unreleased.is_some_and(|unreleased| unreleased > 1) {
                self.release_predecessors(host, now, decided.op);
            }
            self.take_effect(host, now, &decided);
        }
        self.sequence.keep(decided);
    }

    /// Releases the earlier decisions of an op's keys that have an effect: an uncontended decision
    /// implies that they are released (R2). Messages usually say so, too, but they are not in the
    /// log: without this, a restarted replica that replays its log would apply the older decisions
    /// after the newer one.
    ///
    /// It implies nothing about decisions without an effect, because the primary may refuse an op
    /// that it does not hold, and such an op does not make later ops of its key contended.
    fn release_predecessors(&mut self, host: &mut Host, now: Now, op: OpId) {
        let Some(op) = self.locks.op(op) else { return };
        let keys = op.stored.stored_keys();
        let shares_key = |decided: &&Decided| {
            let earlier = self.locks.op(decided.op).filter(|_| decided.effect != Effect::None);
            earlier.is_some_and(|earlier| keys.iter().any(|key| earlier.stored.has_key(key)))
        };
        let newest = self.sequence.unreleased().rev().find(shares_key);
        if let Some(through) = newest.map(|decided| decided.index) {
            self.release(host, now, through);
        }
    }

    /// Applies a decision to the engine, remembers its result, answers its client if this member
    /// answers clients, and unlocks its keys.
    fn take_effect(&mut self, host: &mut Host, now: Now, decided: &Decided) {
        let result = StoredResult::of(&decided.wire(self.id(), self.membership.epoch));
        match self.locks.remove(decided.op) {
            Some(op) => {
                self.show(host, now, decided, &op.stored, result);
                if is_large(&op.stored) {
                    host.storage.let_go_value(decided.op, self.id());
                }
                self.locks.let_go(op);
            }
            None => {
                // The log is being replayed, and the op's prepare was trimmed from it: so its
                // effect is in the engine already.
                if decided.effect != Effect::None {
                    self.contents.recent_mut().forget_through(decided.index);
                }
                self.answer_refused(host, decided, &result);
            }
        }
    }

    /// The part of [`Self::take_effect`] for an op that is open here.
    fn show(
        &mut self,
        host: &mut Host,
        now: Now,
        decided: &Decided,
        stored: &StoredUpdate,
        result: StoredResult,
    ) {
        let head = stored.head();
        for (key, entry) in effects(decided, stored) {
            if self.join.as_mut().is_none_or(|join| !join.keeps_back(key, &entry)) {
                self.contents.store(host, key, &entry);
            }
        }
        host.trace.note(now, decided.op, Step::Shown);
        if self.answers_clients(host) {
            host.trace.note(now, decided.op, Step::Answered(result.status));
            host.reply(head.reply_to, &result.reply(decided.op));
        }
        host.finish_internal(decided.op);
        self.clients.remember(decided.op, decided.index, result);
        self.advance_client(decided.op.client, head.watermark);
        self.keep_named(host);
        if !stored.is_transaction() {
            return self.unlock(host, now, stored.key(), decided.effect);
        }
        for key in stored.stored_keys() {
            self.unlock(host, now, &key, decided.effect);
        }
    }

    /// An op of this key has taken effect: the key's repair ends if its entry was written, and
    /// waiting ops and gets continue.
    fn unlock(&mut self, host: &mut Host, now: Now, key: &[u8], effect: Effect) {
        if effect != Effect::None {
            self.finish_repair(host, now, key);
        }
        let waiting = match self.locks.unlock(&mut host.visibility, key) {
            Some(waiting) => waiting,
            None if self.is_recovering(key) => return,
            None => self.locks.take_waiting(key),
        };
        self.serve_gets(host, now, waiting, key);
    }

    /// Releases the decisions up to `through`, which every member has synced, and shows the
    /// contended ones.
    pub(crate) fn release(&mut self, host: &mut Host, now: Now, through: u64) {
        while let Some(decided) = self.sequence.release_next(through) {
            if decided.contended {
                self.take_effect(host, now, &decided);
            }
        }
        self.contents.drop_tombstones(host, &self.membership, self.sequence.released());
    }
}
