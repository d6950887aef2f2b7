//! The second half of a put: the primary decides. It alone orders the ops of a key, in the order of
//! its own log (R1, R2).

use super::locks::Latest;
use super::partition::{Agreement, OrderedPartition};
use super::sequence::Decided;
use super::waits::PendingRead;
use crate::Host;
use crate::modes::bounds::UNRELEASED_MAX;
use crate::modes::entry::is_overdue;
use crate::modes::ordered::evaluate::{KeyValue, Verdict, evaluate, is_hold, needs_state};
use alloc::vec::Vec;
use nicekv_proto::replication::Effect;
use nicekv_proto::{Now, OpId, Status, StoredKey, Update};

/// Whether this status refuses an op that another evaluation, later or at another member, might
/// execute. No client receives such a refusal before all members have synced it.
pub(crate) fn is_refusal(status: Status) -> bool {
    matches!(status, Status::DiskFull | Status::StaleStamp | Status::EndedByStore)
}

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Decides as many ops of a key as possible: the oldest undecided op if all members have
    /// acknowledged it, then the next one, and so on.
    pub(crate) fn decide_key(&mut self, host: &mut Host, now: Now, key: &[u8]) {
        // Other keys of decided transactions: their next op may have become decidable.
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
                // In a chain, a delete by expiry that was put before the op needs no acks, so go on
                // with it.
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

    /// The outcome of [`Self::judge`], or an error if executing the op has ended this node's
    /// process too often (T6).
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

    /// Determines the effect of an op. `None`: something else has to happen first, and the op is
    /// judged again later.
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
        // The op does not depend on the key's state, nor does its outcome on the value that it
        // carries.
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

    /// Whether the state of a key is known for its next op, and the value need not expire first. If
    /// not, starts the read or the delete; the op is judged again afterwards.
    pub(crate) fn knows(&mut self, host: &mut Host, now: Now, key: &[u8], op: OpId) -> bool {
        let Some(locked) = self.locks.key(key) else { return false };
        match locked.latest() {
            Latest::Known(value) => {
                let overdue = value.as_ref().filter(|value| is_overdue(value.expiry_ms, now));
                let version = overdue.map(|value| value.version);
                // An op that was open when the epoch began is decided without such a delete: the
                // last primary may have answered it, based on the unexpired value (R3).
                let version = version.filter(|_| !self.is_recovered(op));
                !version.is_some_and(|version| self.expire_first(host, now, key, version))
            }
            // An unreleased decision is not in the engine yet. When it is released, the op is
            // judged again.
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

    /// The key's oldest undecided op, if it may be decided now.
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
        // A transaction must be the next op of each of its keys (T2); an op of a single key is that
        // already.
        let is_next = !state.stored.is_transaction() || self.locks.is_next(op);
        is_next.then_some(op)
    }

    /// Whether this primary may decide: it has recovered, its epoch is activated and has enough
    /// members (R3, R6), and the partition is not drained (R17).
    pub(crate) fn may_decide(&self) -> bool {
        let decides = self.lead.as_ref().is_some_and(|lead| lead.is_ready() && !lead.is_drained());
        decides && self.membership.activated && self.membership.has_members_enough()
    }

    /// Primary: whether an op was open when the epoch began.
    pub(crate) fn is_recovered(&self, op: OpId) -> bool {
        let order = self.locks.op(op).map_or(u64::MAX, |op| op.order);
        self.lead.as_ref().is_some_and(|lead| lead.recovered_through() >= order)
    }

    /// Whether an update might name chunks that this epoch's round of garbage collection removes,
    /// because its stamp is older than the round (P8). An op that was open when the epoch began is
    /// exempt: it may have been answered, and it is decided before the round lists names.
    pub(crate) fn is_stale(&self, update: &Update<'_>) -> bool {
        let is_good = update.condition.stamp().is_some_and(|stamp| stamp >= self.membership.stamp_min);
        self.membership.has_stamps() && update.operation.makes_value() && !is_good
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
        // A hold has no effect, so its order does not matter.
        let any_contended = state.votes.any_contended && !is_hold(state.stored.head());
        let contended = any_contended || any_unreleased || recovered || is_told_late;
        // A member of a chain shows an entry only when all others have it.
        let contended = contended || Self::DECIDES_AT_ONCE;
        // The new state is only useful if another op waits for this one.
        self.keep_latest(op, &verdict, contended || any_waits);
        self.publish(host, now, op, contended, verdict);
    }

    /// When an op is decided, keeps the new state of its keys for their next ops.
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

    /// Turns a verdict into the next decision.
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

    /// The engine has read the state of a key for its next op.
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
