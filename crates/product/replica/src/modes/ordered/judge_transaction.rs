//! Transactions at the primary (T1 to T4): ops that lock several keys, and are decided when they
//! are the next op of each of these keys (T2).
//!
//! Transactions cannot deadlock. Members may log prepares in different orders, but each member logs
//! one op after the other; so of two transactions that share keys, one comes first at all the
//! shared keys of a member. Apart from that, transactions are like ops of one key: one prepare, and
//! one decision that carries all effects (T1).

use super::locks::Latest;
use super::partition::{Agreement, OrderedPartition};
use crate::Host;
use crate::modes::ordered::evaluate::{KeyValue, Verdict};
use crate::modes::ordered::script::Runner;
use crate::modes::ordered::transaction::{entries, take_steps};
use nicekv_proto::transaction::Step;
use nicekv_proto::{Now, OpId, Operation, Update};

impl<A> OrderedPartition<A>
where
    Self: Agreement,
{
    /// Whether a transaction has a key that belongs to another partition.
    pub(crate) fn is_beyond_reach(&self, update: &Update<'_>) -> bool {
        let Operation::Transaction(steps) = update.operation else { return false };
        let is_of_others =
            |step: Step<'_>| !self.membership.range.contains(self.membership.digest(step.key).match_value());
        Step::each(steps).any(is_of_others)
    }

    /// Determines the effects of a transaction. `None`: something else has to happen first, or its
    /// keys are being read (all at the same time).
    pub(crate) fn judge_transaction(&mut self, host: &mut Host, now: Now, op: OpId) -> Option<Verdict> {
        let keys = self.locks.op(op)?.stored.stored_keys();
        let unknown = keys.iter().filter(|key| !self.knows(host, now, key, op)).count();
        if unknown > 0 {
            return None;
        }
        let known = |key: &[u8]| match self.locks.key(key)?.latest() {
            Latest::Known(value) => value.clone(),
            _ => None,
        };
        let runner = Runner { scripts: &host.scripts, is_recovered: self.is_recovered(op) };
        let stored = &self.locks.op(op)?.stored;
        let verdict = take_steps(&stored.update(), known, &runner);
        if verdict.is_none() {
            host.scripts.wait(now, self.id(), stored.stored_key(), op);
        }
        verdict
    }

    /// When a transaction is decided, keeps the new states of its keys for their next ops.
    pub(crate) fn keep_latest_of_transaction(&mut self, op: OpId, verdict: &Verdict) {
        let Some(stored) = self.locks.op(op).map(|state| state.stored.clone()) else { return };
        for (key, entry) in entries(stored.value(), &verdict.value, (0, verdict.version)) {
            self.locks.set_latest(key, Latest::Known(KeyValue::from_entry(&entry)));
        }
    }
}
