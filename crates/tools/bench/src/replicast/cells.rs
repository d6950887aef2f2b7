//! Runs of cells, on all processors. What they find does not depend on how many there are.

use super::setup::{Protocol, Setup};
use super::tally::{Outcome, mean};
use super::{negotiated, unicast};
use rustix::time::{ClockId, clock_gettime};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A cell, and its runs by their seeds.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) setup: Setup,
    pub(crate) outcomes: Vec<Outcome>,
}

/// All that was simulated.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    pub(crate) all: Vec<Measured>,
    pub(crate) events: u64,
    /// Time of all processors together, whatever else they did meanwhile.
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

/// Runs each of the cells with each of the seeds.
pub(crate) fn measure(setups: &[Setup], seeds: &RangeInclusive<u64>) -> Runs {
    let jobs: Vec<(usize, u64)> =
        (0..setups.len()).flat_map(|cell| seeds.clone().map(move |seed| (cell, seed))).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(vec![None; jobs.len()]);
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((cell, seed)) = jobs.get(place) else { return };
            let began = thread_time();
            let outcome = run(&setups[*cell], *seed);
            results.lock().expect("nobody panics with it")[place] =
                Some((outcome, thread_time().saturating_sub(began)));
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let mut runs = Runs { all: Vec::new(), events: 0, busy: Duration::ZERO };
    runs.all.extend(setups.iter().map(|setup| Measured { setup: *setup, outcomes: Vec::new() }));
    let results = results.into_inner().expect("nobody panics with it");
    for ((cell, _), result) in jobs.iter().zip(results) {
        let (outcome, busy) = result.expect("every job was taken");
        runs.events += outcome.events;
        runs.busy += busy;
        runs.all[*cell].outcomes.push(outcome);
    }
    runs
}
