//! Runs of setups with several seeds, on all processors.

use super::metrics::Outcome;
use super::setup::{Protocol, Setup};
use super::{negotiated, unicast};
use crate::parallel;
use crate::statistics::mean;
use rustix::time::{ClockId, clock_gettime};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A setup, and its outcome with each seed.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) setup: Setup,
    pub(crate) outcomes: Vec<Outcome>,
}

/// The outcomes of all setups.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    pub(crate) all: Vec<Measured>,
    pub(crate) events: u64,
    /// Processor time of all simulations together.
    pub(crate) busy: Duration,
}

impl Measured {
    pub(crate) fn each(&self, take: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes.iter().map(take).collect()
    }

    pub(crate) fn throughput(&self) -> f64 {
        mean(&self.each(|outcome| outcome.chunks_per_second))
    }
}

impl Runs {
    pub(crate) fn find(&self, is: impl Fn(&Setup) -> bool) -> Option<&Measured> {
        self.all.iter().find(|measured| is(&measured.setup))
    }

    pub(crate) fn note(&self) -> String {
        let seconds = self.busy.as_secs_f64();
        let rate = self.events as f64 / seconds.max(1e-9) / 1e6;
        format!("{} events in {seconds:.1} s of one core, {rate:.1} million a second", self.events)
    }
}

pub(crate) fn run(setup: &Setup, seed: u64) -> Outcome {
    match setup.protocol {
        Protocol::UchCcp => unicast::run(setup, seed),
        Protocol::M | Protocol::H => negotiated::run(setup, seed),
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Runs each setup with each seed.
pub(crate) fn measure(setups: &[Setup], seeds: &RangeInclusive<u64>) -> Runs {
    let jobs: Vec<(usize, u64)> =
        (0..setups.len()).flat_map(|setup| seeds.clone().map(move |seed| (setup, seed))).collect();
    let results = parallel::map(&jobs, |(setup, seed)| {
        let began = thread_time();
        (run(&setups[*setup], *seed), thread_time().saturating_sub(began))
    });
    let mut runs = Runs { all: Vec::new(), events: 0, busy: Duration::ZERO };
    runs.all.extend(setups.iter().map(|setup| Measured { setup: *setup, outcomes: Vec::new() }));
    for ((setup, _), (outcome, busy)) in jobs.iter().zip(results) {
        runs.events += outcome.events;
        runs.busy += busy;
        runs.all[*setup].outcomes.push(outcome);
    }
    runs
}
