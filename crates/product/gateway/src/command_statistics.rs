//! Statistics of commands: number of calls, durations, failures.
//!
//! The clock is read once a turn of the event loop, so a command that sends no request to the store
//! takes 0 µs.

use nicekv_proto::Duration;
use nicekv_proto::durations::{SharedDurations, bound_ns};
use nicekv_redis::resp::ErrorCounts;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Statistics of one thread. Only that thread writes them; all threads read them.
#[derive(Debug, Default)]
pub(crate) struct CommandStatistics {
    /// Indexed by the number of the command in the command table.
    commands: Box<[Counted]>,
    errors: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Counted {
    took: SharedDurations,
    failed: AtomicU64,
    rejected: AtomicU64,
}

/// The counts of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    /// Number of calls in each bucket of durations.
    by_bucket: Vec<u64>,
    sum_ns: u64,
    /// Calls that were executed and answered with an error.
    pub(crate) failed: u64,
    /// Calls that were refused before execution: too few arguments, or no permission.
    pub(crate) rejected: u64,
}

impl CommandStatistics {
    pub(crate) fn new(commands: usize) -> Self {
        Self { commands: (0..commands).map(|_| Counted::default()).collect(), ..Self::default() }
    }

    pub(crate) fn finished(&self, command: usize, took: Duration, has_failed: bool) {
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

    pub(crate) fn add_errors(&self, more: &ErrorCounts) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        more.by_code().for_each(|(code, count)| *errors.entry(code.to_owned()).or_default() += count);
    }

    /// Adds the counts of this thread to `totals`.
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
        for (code, count) in &*self.errors.lock().unwrap_or_else(PoisonError::into_inner) {
            *totals.errors.entry(code.clone()).or_default() += count;
        }
    }
}

impl Count {
    pub(crate) fn calls(&self) -> u64 {
        self.by_bucket.iter().sum()
    }

    /// Total duration of all calls.
    pub(crate) fn took_us(&self) -> u64 {
        self.sum_ns / 1_000
    }

    /// The upper bound, in microseconds, of the bucket that contains this quantile (in
    /// thousandths).
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

/// Sums of the statistics of all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Indexed by the number of the command in the command table.
    pub(crate) commands: Vec<Count>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Other counters, by their field names in INFO.
    pub(crate) numbers: BTreeMap<&'static str, u64>,
}

impl Totals {
    /// The difference between these totals and earlier ones.
    pub(crate) fn since(mut self, earlier: &Self) -> Self {
        for (count, before) in self.commands.iter_mut().zip(&earlier.commands) {
            let buckets = count.by_bucket.iter_mut().zip(&before.by_bucket);
            buckets.for_each(|(count, before)| *count = count.saturating_sub(*before));
            count.sum_ns = count.sum_ns.saturating_sub(before.sum_ns);
            count.failed = count.failed.saturating_sub(before.failed);
            count.rejected = count.rejected.saturating_sub(before.rejected);
        }
        let before = |code: &str| earlier.errors.get(code).copied().unwrap_or_default();
        self.errors.iter_mut().for_each(|(code, count)| *count = count.saturating_sub(before(code)));
        self.errors.retain(|_, count| *count > 0);
        let before = |name: &str| earlier.numbers.get(name).copied().unwrap_or_default();
        self.numbers.iter_mut().for_each(|(name, count)| *count = count.saturating_sub(before(name)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_redis::resp::{Protocol, ReplyBuffer, ReplyWriter};

    fn errors(texts: &[&str]) -> ErrorCounts {
        let mut out = ReplyBuffer::default();
        let mut reply = ReplyWriter { out: &mut out, protocol: Protocol::Resp2 };
        texts.iter().for_each(|text| reply.error(text.as_bytes()));
        *out.take_errors().unwrap()
    }

    #[test]
    fn counts_since_an_earlier_time() {
        let statistics = CommandStatistics::new(2);
        let read = || {
            let mut totals = Totals::default();
            statistics.read(&mut totals);
            totals
        };
        statistics.finished(0, Duration::from_millis(4), true);
        statistics.add_errors(&errors(&["ERR a", "ERR b", "WRONGTYPE c"]));
        let before = read();
        statistics.finished(0, Duration::from_micros(100), false);
        statistics.rejected(1);
        statistics.add_errors(&errors(&["ERR d"]));
        let since = read().since(&before);
        let first = &since.commands[0];
        assert_eq!((first.calls(), first.took_us(), first.failed), (1, 100, 0));
        assert!((100.0..200.0).contains(&first.quantile_us(500)));
        assert_eq!((since.commands[1].calls(), since.commands[1].rejected), (0, 1));
        assert_eq!(since.errors, BTreeMap::from([("ERR".into(), 1)]));
        assert_eq!((before.commands[0].calls(), before.commands[0].failed), (1, 1));
    }
}
