//! Counts of a run, taken as by the paper's tool.

use super::disk::Disk;
use super::setup::{SECOND_NS, Setup};
use crate::statistics::mean;

/// The paper's tool counts for the last time at 99 % of the run, and divides by the whole run.
const LAST_COUNT_PERCENT: u64 = 99;

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    run_ns: u64,
    /// Chunks completed until the last count.
    done: u64,
    /// Latencies of all chunks, in the order of completion.
    latencies_ns: Vec<u64>,
    disk_percent: Option<f64>,
    /// Chunks whose bids had no window in common.
    pub(crate) without_window: u64,
    /// Requests at targets, and those that arrived while a bid was tentative.
    pub(crate) requests: u64,
    pub(crate) met: u64,
    /// Bids refused because a bound was reached.
    pub(crate) refused: u64,
    /// Copies of datagrams lost, and timeouts of missing answers.
    pub(crate) lost: u64,
    pub(crate) missed: u64,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) chunks_per_second: f64,
    pub(crate) disk_percent: f64,
    pub(crate) latency_us: f64,
    /// Latencies of all chunks, in the order of completion.
    pub(crate) latencies_us: Vec<f64>,
    pub(crate) events: u64,
    pub(crate) metrics: Metrics,
}

impl Metrics {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            run_ns: setup.run_ns(),
            done: 0,
            latencies_ns: Vec::new(),
            disk_percent: None,
            without_window: 0,
            requests: 0,
            met: 0,
            refused: 0,
            lost: 0,
            missed: 0,
        }
    }

    fn last_count_ns(&self) -> u64 {
        self.run_ns * LAST_COUNT_PERCENT / 100
    }

    /// A chunk has all its acknowledgements.
    pub(crate) fn done(&mut self, now_ns: u64, begun_ns: u64) {
        self.done += u64::from(now_ns <= self.last_count_ns());
        self.latencies_ns.push(now_ns - begun_ns);
    }

    /// Counts the disks' time once the time of the last count has come.
    pub(crate) fn sample_disks<'a>(&mut self, now_ns: u64, disks: impl ExactSizeIterator<Item = &'a Disk>) {
        let at_ns = self.last_count_ns();
        if self.disk_percent.is_none() && now_ns >= at_ns {
            let count = disks.len() as f64;
            let sum: u64 = disks.map(|disk| disk.share_percent(at_ns)).sum();
            self.disk_percent = Some(sum as f64 / count);
        }
    }

    pub(crate) fn outcome(self, events: u64) -> Outcome {
        let latencies_us: Vec<f64> = self.latencies_ns.iter().map(|ns| *ns as f64 / 1_000.0).collect();
        Outcome {
            chunks_per_second: self.done as f64 * SECOND_NS as f64 / self.run_ns as f64,
            disk_percent: self.disk_percent.unwrap_or_default(),
            latency_us: mean(&latencies_us),
            latencies_us,
            events,
            metrics: self,
        }
    }
}

impl Outcome {
    /// Requests that meet a tentative bid, in percent of all requests at targets.
    pub(crate) fn met_percent(&self) -> f64 {
        100.0 * self.metrics.met as f64 / self.metrics.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast_sim::setup::Protocol;

    #[test]
    fn chunks_after_the_last_count_have_latencies_but_no_throughput() {
        let setup = Setup::new(Protocol::M, 128, 400);
        let mut metrics = Metrics::new(&setup);
        let (run, mut disk) = (setup.run_ns(), Disk::new(setup.run_ns() / 4));
        disk.queue(0);
        metrics.sample_disks(run / 2, [disk].iter());
        disk.queue(0);
        metrics.done(run * 99 / 100, 0);
        metrics.sample_disks(run * 99 / 100, [disk, Disk::new(1)].iter());
        disk.queue(0);
        metrics.sample_disks(run, [disk].iter());
        metrics.done(run, run - 2_000);
        let outcome = metrics.outcome(7);
        assert_eq!((outcome.chunks_per_second, outcome.disk_percent, outcome.events), (100.0, 25.0, 7));
        assert_eq!(outcome.latencies_us, [9_900.0, 2.0]);
        assert_eq!(outcome.latency_us, 4_951.0);
    }
}
