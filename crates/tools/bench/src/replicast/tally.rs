//! What is counted of a run, as the paper's tool does it.

use super::disk::Disk;
use super::setup::{SECOND_NS, Setup};

/// The tool's last count comes a hundredth before the end, and is divided by the whole run.
const LAST_COUNT_PERCENT: u64 = 99;

/// While it runs.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    run_ns: u64,
    /// Until the last count.
    done: u64,
    /// Of all that were done, in the order in which they were.
    latencies_ns: Vec<u64>,
    disk_percent: Option<f64>,
    /// Chunks whose bids had no window in common.
    pub(crate) without_window: u64,
    /// Requests at targets, and those that came while a bid was tentative.
    pub(crate) requests: u64,
    pub(crate) met: u64,
    /// Bids that were refused, because a bound was reached.
    pub(crate) refused: u64,
    /// Copies of datagrams that were lost, and times that somebody was missed.
    pub(crate) lost: u64,
    pub(crate) missed: u64,
}

/// What is printed of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) chunks_per_second: f64,
    pub(crate) disk_percent: f64,
    pub(crate) latency_us: f64,
    /// Of each chunk, in the order in which they were done.
    pub(crate) latencies_us: Vec<f64>,
    pub(crate) events: u64,
    pub(crate) tally: Tally,
}

impl Tally {
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

    /// A chunk has all its acks.
    pub(crate) fn done(&mut self, now_ns: u64, begun_ns: u64) {
        self.done += u64::from(now_ns <= self.last_count_ns());
        self.latencies_ns.push(now_ns - begun_ns);
    }

    /// Looks at the disks at the time of the last count.
    pub(crate) fn look<'a>(&mut self, now_ns: u64, disks: impl ExactSizeIterator<Item = &'a Disk>) {
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
            tally: self,
        }
    }
}

impl Outcome {
    /// Of all requests at targets, those that meet a tentative bid, in percent.
    pub(crate) fn met_percent(&self) -> f64 {
        100.0 * self.tally.met as f64 / self.tally.requests.max(1) as f64
    }
}

/// 0 of nothing.
pub(crate) fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicast::setup::Protocol;

    #[test]
    fn what_is_done_after_the_last_count_has_a_latency_and_is_no_throughput() {
        let setup = Setup::new(Protocol::M, 128, 400);
        let mut tally = Tally::new(&setup);
        let (run, mut disk) = (setup.run_ns(), Disk::new(setup.run_ns() / 4));
        disk.queue(0);
        tally.look(run / 2, [disk].iter());
        disk.queue(0);
        tally.done(run * 99 / 100, 0);
        tally.look(run * 99 / 100, [disk, Disk::new(1)].iter());
        disk.queue(0);
        tally.look(run, [disk].iter());
        tally.done(run, run - 2_000);
        let outcome = tally.outcome(7);
        assert_eq!((outcome.chunks_per_second, outcome.disk_percent, outcome.events), (100.0, 25.0, 7));
        assert_eq!(outcome.latencies_us, [9_900.0, 2.0]);
        assert_eq!(outcome.latency_us, 4_951.0);
    }
}
