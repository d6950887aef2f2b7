//! What commands have cost: how often each was called, how long that took, how often it failed.
//!
//! The clock is read once a turn, so a command that asks nothing of the store takes no time here.

use nicekv_proto::Duration;
use nicekv_proto::durations::{SharedDurations, bound_ns};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A command that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// Its number in the table.
    pub(crate) called: usize,
    pub(crate) since_ns: u64,
    /// Errors that its thread had counted by then.
    pub(crate) errors: u64,
    /// Where its words are, for the slow log.
    pub(crate) said: Option<u64>,
}

/// A command that has its reply.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) begun: Begun,
    pub(crate) has_failed: bool,
}

/// Of one thread, which writes it; all may read.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By their numbers in the table.
    commands: Box<[Counted]>,
    errors: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Counted {
    took: SharedDurations,
    failed: AtomicU64,
    rejected: AtomicU64,
}

/// What was counted of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    /// By buckets of durations.
    by_bucket: Vec<u64>,
    sum_ns: u64,
    /// Called, and answered by an error.
    pub(crate) failed: u64,
    /// Not called: it had too few arguments, or was not allowed.
    pub(crate) rejected: u64,
}

impl Ledger {
    /// Of so many commands.
    pub(crate) fn new(commands: usize) -> Self {
        Self { commands: (0..commands).map(|_| Counted::default()).collect(), ..Self::default() }
    }

    pub(crate) fn done(&self, command: usize, took: Duration, has_failed: bool) {
        if let Some(counted) = self.commands.get(command) {
            counted.took.count(took);
            counted.failed.fetch_add(has_failed.into(), Ordering::Relaxed);
        }
    }

    pub(crate) fn rejected(&self, command: usize) {
        if let Some(counted) = self.commands.get(command) {
            counted.rejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_errors(&self, more: BTreeMap<String, u64>) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        more.into_iter().for_each(|(word, count)| *errors.entry(word).or_default() += count);
    }

    /// Adds what was counted of each command, and of errors.
    pub(crate) fn read(&self, totals: &mut Totals) {
        totals.commands.resize(self.commands.len().max(totals.commands.len()), Count::default());
        for (total, counted) in totals.commands.iter_mut().zip(&self.commands) {
            let took = counted.took.read();
            total.by_bucket.resize(took.counts().len(), 0);
            total.by_bucket.iter_mut().zip(took.counts()).for_each(|(count, more)| *count += more);
            total.sum_ns += took.sum_ns();
            total.failed += counted.failed.load(Ordering::Relaxed);
            total.rejected += counted.rejected.load(Ordering::Relaxed);
        }
        for (word, count) in &*self.errors.lock().unwrap_or_else(PoisonError::into_inner) {
            *totals.errors.entry(word.clone()).or_default() += count;
        }
    }
}

impl Count {
    pub(crate) fn calls(&self) -> u64 {
        self.by_bucket.iter().sum()
    }

    /// All calls together.
    pub(crate) fn took_us(&self) -> u64 {
        self.sum_ns / 1_000
    }

    /// Of a thousand calls, so many took no longer, by the bound of a bucket.
    pub(crate) fn quantile_us(&self, of_thousand: u64) -> f64 {
        let rank = (self.calls() * of_thousand).div_ceil(1_000);
        let mut sum = 0;
        let is_reached = |count: &u64| {
            sum += count;
            sum >= rank
        };
        let bucket = self.by_bucket.iter().position(is_reached).unwrap_or_default();
        bound_ns(bucket) as f64 / 1_000.0
    }
}

/// What all threads have counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// By their numbers in the table.
    pub(crate) commands: Vec<Count>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// By the names that INFO has for them.
    pub(crate) numbers: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// Less what there was at an earlier time.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for (count, before) in self.commands.iter_mut().zip(&earlier.commands) {
            let buckets = count.by_bucket.iter_mut().zip(&before.by_bucket);
            buckets.for_each(|(count, before)| *count = count.saturating_sub(*before));
            count.sum_ns = count.sum_ns.saturating_sub(before.sum_ns);
            count.failed = count.failed.saturating_sub(before.failed);
            count.rejected = count.rejected.saturating_sub(before.rejected);
        }
        let before = |word: &str| earlier.errors.get(word).copied().unwrap_or_default();
        self.errors.iter_mut().for_each(|(word, count)| *count = count.saturating_sub(before(word)));
        self.errors.retain(|_, count| *count > 0);
        let before = |name: &str| earlier.numbers.get(name).copied().unwrap_or_default();
        self.numbers.iter_mut().for_each(|(name, count)| *count = count.saturating_sub(before(name)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_does_not_count() {
        let ledger = Ledger::new(2);
        let read = || {
            let mut totals = Totals::default();
            ledger.read(&mut totals);
            totals
        };
        ledger.done(0, Duration::from_millis(4), true);
        ledger.add_errors(BTreeMap::from([("ERR".into(), 2), ("WRONGTYPE".into(), 1)]));
        let before = read();
        ledger.done(0, Duration::from_micros(100), false);
        ledger.rejected(1);
        ledger.add_errors(BTreeMap::from([("ERR".into(), 1)]));
        let since = read().since(&before);
        let first = &since.commands[0];
        assert_eq!((first.calls(), first.took_us(), first.failed), (1, 100, 0));
        assert!((100.0..200.0).contains(&first.quantile_us(500)));
        assert_eq!((since.commands[1].calls(), since.commands[1].rejected), (0, 1));
        assert_eq!(since.errors, BTreeMap::from([("ERR".into(), 1)]));
        assert_eq!((before.commands[0].calls(), before.commands[0].failed), (1, 1));
    }
}
