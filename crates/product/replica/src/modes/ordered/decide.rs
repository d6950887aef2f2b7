//! The second half of a put, at the primary: it alone orders the ops of a key, in its own log order (R1, R2).
//!
//! ```text
//! client   primary   secondary                      client   primary   secondary
//!   │──Update─▶│─────────▶│                           │──Update─▶│─────────▶│
//!   │          │ force    │ force                     │          │ force    │ force
//!   │          │◀──Acks───│                           │◀ ─ ─ ─ ─ │◀──Acks───│ (contended)
//!   │◀──Reply──│─Decisions▶ apply, unlock             │          │─Decisions▶ force, stay locked
//!          uncontended                                │          │◀──Acks───│ (progress)
//!                                                     │◀──Reply──│─Decisions▶ (released) apply, unlock
//!                                                              contended
//! ```

use super::locks::Latest;
use super::partition::{Agreement, OrderedPartition};
use super::sequence::Decided;
use super::waits::PendingRead;
use crate::Host;
use crate::modes::bounds::UNRELEASED_MAX;
use crate::modes::entry::is_overdue;
use crate::modes::ordered::evaluate::{KeyValue, Verdict, evaluate, is_hold, needs_state};
use alloc::vec::Vec;
use nicekv_proto::chunk::Round;
use nicekv_proto::replication::Effect;
use nicekv_proto::{Now, OpId, Status, StoredKey, Update};

/// Whether a decision says that an op was not executed, which its own evaluation later on, or elsewhere, need not: no client is told before all members have forced it.
pub(crate) fn is_refusal(status: Status) -> bool {
    matches!(status, Status::DiskFull | Status::StaleStamp | Status::EndedByStore)
}

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Decides what can be decided of a key: its oldest undecided op, if all have acknowledged it, and then the next.
    pub(crate) fn decide_key(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        // Of transactions, whose decisions may make ops of other keys the next ones.
        let mut others = Vec::new();
        self.decide_of(host, now, key, &mut others);
        while let Some(other) = others.pop() {
            self.decide_of(host, now, &other, &mut others);
        }
    }

    fn decide_of(&mut self, host: &mut Host, now: Now, key: &[u8], others: &mut Vec<StoredKey>) {
        while let Some(op) = self.next_decidable(key) {
            let state = self.locks.op(op).filter(|state| state.stored.is_transaction());
            let keys = state.map(|state| state.stored.stored_keys()).unwrap_or_default();
            let mut may_decide = |key: &[u8]| host.may_decide(now, self.id(), key);
            if !may_decide(key) || !keys.iter().all(|key| may_decide(key)) {
                return;
            }
            let Some(verdict) = self.judge_unless_barred(host, now, key, op) else {
                // Along a chain a delete by expiry that goes before it waits for nobody.
                let is_passed = |key: &[u8]| self.next_decidable(key).is_some_and(|next| next != op);
                if Self::DECIDES_AT_ONCE && is_passed(key) {
                    continue;
                }
                others.extend(keys.into_iter().filter(|key| Self::DECIDES_AT_ONCE && is_passed(key)));
                return;
            };
            self.decide(host, now, op, verdict);
            others.extend(keys.into_iter().filter(|other| **other != *key));
        }
    }

    /// What an op does, as [`Self::judge`] says; an error if that has ended this node twice (T6).
    fn judge_unless_barred(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> Option<Verdict> {
        if host.op_marks.bars(op) {
            host.count_barred(self.id(), self.membership.epoch, op);
            return Some(Verdict::unchanged(Status::EndedByStore, None));
        }
        host.op_marks.begin(op);
        let verdict = self.judge(host, now, key, op);
        host.op_marks.end();
        verdict
    }

    /// What an op does; `None`: something else comes first, and then it is its turn again.
    fn judge(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> Option<Verdict> {
        let state = self.locks.op(op)?;
        if is_hold(state.stored.head()) {
            return Some(Verdict::unchanged(Status::ConditionFailed, None));
        }
        if self.is_stale(state.stored.head()) && !self.is_recovered(op) {
            return Some(Verdict::unchanged(Status::StaleStamp, None));
        }
        if state.votes.any_refused {
            return Some(Verdict::unchanged(Status::DiskFull, None));
        }
        // Then what it carries does not matter either.
        if !needs_state(state.stored.head()) {
            return Some(evaluate(state.stored.head(), None));
        }
        if state.stored.is_transaction() {
            return self.judge_transaction(host, now, op);
        }
        if !self.knows(host, now, key, op) {
            return None;
        }
        self.judge_known(host, now, key, op)
    }

    /// Whether it is known what a key of an op is that is the next of it, and nothing comes first. Else that is seen to, and then it is the op's turn again.
    pub(crate) fn knows(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> bool {
        let Some(locked) = self.locks.key(key) else { return false };
        match locked.latest() {
            Latest::Known(value) => {
                let overdue = value.as_ref().filter(|value| is_overdue(value.expiry_ms, now));
                let version = overdue.map(|value| value.version);
                // Not before an op that the last primary may have answered on the value as it was (R3).
                let version = version.filter(|_| !self.is_recovered(op));
                !version.is_some_and(|version| self.expire_first(host, now, key, version))
            }
            // What is decided but not released is in no engine: its release comes back here.
            Latest::Unknown if locked.unreleased() > 0 => false,
            Latest::Unknown => {
                let token = host.read(self.membership.partition, key);
                self.locks.set_latest(key, Latest::Reading { token });
                self.waits.read(token, PendingRead::Evaluate { key: key.into() });
                false
            }
            Latest::Reading { .. } => false,
        }
    }

    /// The key's oldest undecided op, if every member has acknowledged it and decisions may be made.
    fn next_decidable(&self, key: &[u8]) -> Option<OpId> {
        if !self.may_decide() || self.sequence.unreleased().len() >= UNRELEASED_MAX {
            return None;
        }
        let op = self.locks.key(key)?.undecided().next()?;
        let state = self.locks.op(op)?;
        let all_acks = (1u16 << self.membership.members.len()) - 1;
        if !Self::DECIDES_AT_ONCE && state.votes.acks != all_acks {
            return None;
        }
        // An op of one key is the next one of all that it has.
        let is_next = !state.stored.is_transaction() || self.locks.is_next(op);
        is_next.then_some(op)
    }

    /// Whether this is a primary that has recovered, in an epoch that is in force and has members enough (R3, R6), and may decide on (R17).
    pub(crate) fn may_decide(&self) -> bool {
        let decides = self.lead.as_ref().is_some_and(|lead| lead.is_ready() && !lead.is_drained());
        decides && self.membership.activated && self.membership.has_members_enough()
    }

    /// Primary: whether an op was open when the epoch began.
    pub(crate) fn is_recovered(&self, op: OpId) -> bool {
        let order = self.locks.op(op).map_or(u64::MAX, |op| op.order);
        self.lead.as_ref().is_some_and(|lead| lead.recovered_through() >= order)
    }

    /// Whether an update would give a name chunks that the round which the partition has adopted may collect: then it is refused (P8). Not if it was open when the epoch began, as it
    /// may have been answered; all of that is decided before names are listed.
    pub(crate) fn is_stale(&self, update: &Update<'_>) -> bool {
        let stamp_min = self.membership.stamp_min;
        let is_good = update.condition.stamp().is_some_and(|stamp| stamp >= stamp_min);
        stamp_min != Round::default() && update.operation.makes_value() && !is_good
    }

    fn decide(&mut self, host: &mut Host, now: Now, op: OpId, verdict: Verdict) {
        let recovered = self.is_recovered(op);
        if let Some(lead) = self.lead.as_mut().filter(|_| recovered) {
            lead.extend_recovery(self.sequence.logged() + 1);
        }
        let Some(state) = self.locks.op(op) else { return };
        host.puts.decided.count_ns(now.boot_ns.saturating_sub(state.since_ns));
        let is_told_late = is_refusal(verdict.status) || verdict.may_differ;
        let (mut any_unreleased, mut any_waits) = (false, false);
        state.stored.each_key(|key| {
            let Some(locked) = self.locks.key(key) else { return };
            any_unreleased |= locked.unreleased() > 0;
            any_waits |= locked.undecided().nth(1).is_some();
        });
        // A hold does nothing in any order.
        let any_contended = state.votes.any_contended && !is_hold(state.stored.head());
        let contended = any_contended || any_unreleased || recovered || is_told_late;
        // Along a chain nothing is shown before all behind have it.
        let contended = contended || Self::DECIDES_AT_ONCE;
        // Only worth keeping if somebody is waiting for it.
        self.keep_latest(op, &verdict, contended || any_waits);
        self.publish(host, now, op, contended, verdict);
    }

    /// What an op that is being decided makes of its keys, for those that are decided next.
    fn keep_latest(&mut self, op: OpId, verdict: &Verdict, is_waited_for: bool) {
        let Some(state) = self.locks.op(op) else { return };
        if verdict.effect == Effect::Transaction {
            return self.keep_latest_of_transaction(op, verdict);
        }
        let stored = |value, form| {
            let (version, expiry_ms) = (verdict.version, verdict.expiry_ms);
            Some(KeyValue { version, expiry_ms, value, form })
        };
        let latest = match verdict.effect {
            Effect::Store if is_waited_for => stored(verdict.value.clone(), verdict.form),
            Effect::StorePrepared if is_waited_for => {
                stored(state.stored.value().into(), state.stored.head().operation.form())
            }
            Effect::Remove => None,
            _ => return,
        };
        let key = state.stored.stored_key();
        self.locks.set_latest(&key, Latest::Known(latest));
    }

    /// Makes a verdict the next decision.
    pub(crate) fn publish(&mut self, host: &mut Host, now: Now, op: OpId, contended: bool, verdict: Verdict) {
        let decided = Decided {
            index: self.sequence.logged() + 1,
            origin: self.membership.epoch,
            op,
            contended,
            effect: verdict.effect,
            status: verdict.status,
            version: verdict.version,
            expiry_ms: verdict.expiry_ms,
            integer: verdict.integer,
            value: verdict.value.into(),
            form: verdict.form,
            value_is_result: verdict.value_is_result,
        };
        host.counters.decided += 1;
        self.commit(host, now, decided);
        self.lead.as_mut().expect("a primary").note_decided(now);
        host.arm_sweep(now);
    }

    /// The engine's state of a key has been read for its next op.
    pub(crate) fn on_state_read(
        &mut self,
        host: &mut Host,
        now: Now,
        token: u64,
        key: &[u8],
        value: Option<KeyValue>,
    ) {
        if self.locks.end_reading(key, token, Latest::Known(value)) {
            self.decide_key(host, now, key);
        }
    }
}
