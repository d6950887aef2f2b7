//! Experiments: a system under a workload, and its measured periods.

use super::accuracy::{Accuracies, Accuracy};
use super::kernel::KernelRack;
use super::popularity::{KEYS, Popularity};
use super::rack::{Balancer, Period, Rack, Setup, System};
use super::trace::{Mix, RackTrace, Racks, SERVER_REQUESTS, SERVERS};
use crate::error::Result;
use crate::netns::apart;
use crate::parallel;
use crate::statistics::ROUNDS_MIN;
use nicekv_hotkeys::{Config, imbalance};
use nicekv_switch_xdp::Hook;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Capacity of a rack of the paper's servers, in millions of requests per second …
const RACK_MQPS: f64 = 15.4;
/// … and what its client sends.
const CLIENT_MQPS: f64 = 30.0;
/// Requests from a write's arrival at the switch until all copies have confirmed it: 100 us at 15.4
/// million requests per second.
const CONFIRM_REQUESTS: u64 = 1_540;
/// Seed of the HashPipe's hash functions.
const SEED: u64 = 1;
/// Periods in which T falls from T₀, which are not measured.
pub(crate) const SETTLING: usize = 12;

/// A system under a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment {
    pub(crate) system: System,
    pub(crate) skew: f64,
    pub(crate) mix: Mix,
    pub(crate) config: Config,
    pub(crate) racks: u16,
    pub(crate) settling: usize,
    pub(crate) periods: usize,
    /// Whether the prediction of each period is compared with its requests.
    pub(crate) is_judged: bool,
    /// The hook of the kernel programs under test; `None`: the model.
    pub(crate) hook: Option<Hook>,
}

/// The results of an experiment, period by period.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) experiment: Experiment,
    pub(crate) lambdas: Vec<f64>,
    /// Empty with several racks.
    pub(crate) periods: Vec<Period>,
    pub(crate) accuracies: Vec<Accuracy>,
    /// T ÷ mean load of a server, of every period from the first one on.
    pub(crate) thresholds: Vec<f64>,
    /// Frames per second through the kernel programs.
    pub(crate) rate: Option<f64>,
}

impl Experiment {
    pub(crate) fn new(system: System, skew: f64) -> Self {
        let settling = match system {
            System::Original => 0,
            System::NetCache => 8,
            System::KvSwitch | System::Everywhere => SETTLING,
        };
        let (mix, config, periods) = (Mix::GETS, Config::default(), ROUNDS_MIN as usize);
        Self { system, skew, mix, config, racks: 1, settling, periods, is_judged: false, hook: None }
    }

    /// The same with kernel programs, where possible: there is a single switch, and it has room for
    /// fewer values than NetCache.
    pub(crate) fn at(self, hook: Option<Hook>) -> Self {
        let can = self.racks == 1 && self.system != System::NetCache;
        Self { hook: hook.filter(|_| can), ..self }
    }

    pub(crate) fn workload(&self) -> String {
        let Mix { writes, big } = self.mix;
        let mut text = if self.skew == 0.0 { "uniform".into() } else { format!("zipf {}", self.skew) };
        let mut note = |is: bool, part: String| {
            if is {
                text = format!("{text}, {part}");
            }
        };
        note(writes > 0.0, format!("{:.0} % writes", 100.0 * writes));
        note(big > 0.0, format!("{:.0} % big", 100.0 * big));
        note(self.config.keys_max != Config::default().keys_max, format!("K = {}", self.config.keys_max));
        note(self.racks > 1, format!("{} servers", self.racks * SERVERS));
        note(self.hook.is_some(), self.hook.map_or_else(String::new, |hook| format!("programs at {hook}")));
        text
    }

    pub(crate) fn parameters(&self) -> Value {
        let Config { keys_max, stages, history_ppm, threshold_factor_ppm, imbalance_max_ppm, .. } =
            self.config;
        let part = |ppm: u32| f64::from(ppm) / f64::from(nicekv_hotkeys::MILLION);
        json!({
            "simulated": self.hook.is_none(),
            "hook": self.hook.map(Hook::name),
            "skew": self.skew,
            "writes": self.mix.writes,
            "big": self.mix.big,
            "keys": KEYS,
            "racks": self.racks,
            "servers": self.racks * SERVERS,
            "requests_per_server": SERVER_REQUESTS,
            "k": keys_max,
            "stages": stages,
            "alpha": part(history_ppm),
            "gamma": part(threshold_factor_ppm),
            "bound": part(imbalance_max_ppm),
        })
    }

    fn simulate(&self) -> Measured {
        let popularity = Popularity::new(self.skew);
        let setup = self.setup();
        let mut measured = Measured::empty(*self);
        if self.racks > 1 {
            let mut racks = Racks::new(&popularity, setup, self.racks);
            measured.lambdas =
                (0..self.settling + self.periods).map(|_| racks.period()).skip(self.settling).collect();
            return measured;
        }
        let mut trace = RackTrace::new(&popularity, self.mix, Rack::new(setup, SEED));
        let Ok(()) = measured.run(&mut trace);
        measured
    }

    /// Measures the kernel programs. Moves the calling thread to another network namespace.
    fn run_in_kernel(&self, hook: Hook) -> Result<Measured> {
        let popularity = Popularity::new(self.skew);
        let setup = self.setup();
        let rack = KernelRack::new(setup, hook, SEED)?;
        let mut trace = RackTrace::new(&popularity, self.mix, rack);
        let mut measured = Measured::empty(*self);
        measured.run(&mut trace)?;
        Ok(Measured { rate: Some(trace.rack.rate()), ..measured })
    }

    fn setup(&self) -> Setup {
        let (system, config) = (self.system, self.config);
        Setup { system, config, servers: SERVERS, confirm_requests: CONFIRM_REQUESTS }
    }
}

impl Measured {
    fn empty(experiment: Experiment) -> Self {
        let (lambdas, periods, accuracies, thresholds) = Default::default();
        Self { experiment, lambdas, periods, accuracies, thresholds, rate: None }
    }

    /// Runs the trace, period by period.
    fn run<R: Balancer>(&mut self, trace: &mut RackTrace<'_, R>) -> std::result::Result<(), R::Error> {
        let experiment = self.experiment;
        let mut accuracies = experiment.is_judged.then(|| Accuracies::new(&experiment.config));
        for number in 0..experiment.settling + experiment.periods {
            accuracies.iter_mut().for_each(|accuracies| accuracies.expect(&trace.rack));
            let period =
                trace.period(|rank| accuracies.iter_mut().for_each(|accuracies| accuracies.count(rank)))?;
            let accuracy = accuracies.as_mut().map(|accuracies| accuracies.judge(period.requests));
            self.thresholds.push(f64::from(period.threshold_ppm) / f64::from(nicekv_hotkeys::MILLION));
            if number >= experiment.settling {
                self.lambdas.push(imbalance(&period.loads));
                self.accuracies.extend(accuracy);
                self.periods.push(period);
            }
        }
        Ok(())
    }

    fn of_each_period(&self, take: impl Fn(&Period) -> f64) -> Vec<f64> {
        self.periods.iter().map(take).collect()
    }

    /// Millions of requests per second at which the most loaded server reaches its capacity.
    pub(crate) fn throughputs(&self) -> Vec<f64> {
        let server = RACK_MQPS / f64::from(SERVERS);
        self.of_each_period(|period| period.requests as f64 / most(period) * server)
    }

    /// The same when the client sends as much as it can, and servers drop what exceeds their
    /// capacity.
    pub(crate) fn throughputs_with_drops(&self) -> Vec<f64> {
        let server = RACK_MQPS / f64::from(SERVERS);
        self.of_each_period(|period| {
            let sent = |requests: u64| requests as f64 / period.requests as f64 * CLIENT_MQPS;
            sent(period.absorbed) + period.loads.iter().map(|load| sent(*load).min(server)).sum::<f64>()
        })
    }

    /// Server ops per request that the switch does not answer: more than one if copies are written.
    pub(crate) fn ops_per_request(&self) -> Vec<f64> {
        self.of_each_period(|period| {
            period.loads.iter().sum::<u64>() as f64 / (period.requests - period.absorbed) as f64
        })
    }

    /// Keys with copies ÷ K.
    pub(crate) fn copied(&self) -> Vec<f64> {
        self.of_each_period(|period| period.copied_keys as f64 / f64::from(self.experiment.config.keys_max))
    }

    /// Copies at a server, besides the keys that it owns.
    pub(crate) fn copies_per_server(&self) -> Vec<f64> {
        self.of_each_period(|period| period.copies as f64 / f64::from(SERVERS))
    }

    /// Entries whose holders change at the end of a period.
    pub(crate) fn reinstalled(&self) -> Vec<f64> {
        self.of_each_period(|period| period.reinstalled as f64)
    }
}

fn most(period: &Period) -> f64 {
    period.loads.iter().copied().max().unwrap_or(0).max(1) as f64
}

/// Runs all experiments: simulations on all processors, so that the slowest should be first, then
/// those in the kernel one after the other.
pub(crate) fn run_all(experiments: &[Experiment]) -> Result<Vec<Measured>> {
    let done = AtomicUsize::new(0);
    let log = |measured: &Measured| {
        let (number, experiment) = (done.fetch_add(1, Ordering::Relaxed) + 1, &measured.experiment);
        let rate = measured.rate.map_or_else(String::new, |rate| format!(", {rate:.0} frames/s"));
        let (count, workload, system) = (experiments.len(), experiment.workload(), experiment.system.name());
        eprintln!("{number} of {count}: {workload}, {system}{rate}");
    };
    let simulated = parallel::map(experiments, |experiment| {
        let measured = experiment.hook.is_none().then(|| experiment.simulate());
        measured.iter().for_each(log);
        measured
    });
    apart(|| {
        let run =
            |(experiment, simulated): (&Experiment, Option<Measured>)| match (simulated, experiment.hook) {
                (None, Some(hook)) => experiment.run_in_kernel(hook).inspect(log),
                (simulated, _) => Ok(simulated.expect("simulated without a hook")),
            };
        experiments.iter().zip(simulated).map(run).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(loads: &[u64], absorbed: u64) -> Measured {
        let period = Period {
            loads: loads.to_vec(),
            requests: loads.iter().sum::<u64>() + absorbed,
            absorbed,
            copied_keys: 0,
            copies: 0,
            threshold_ppm: 1,
            reinstalled: 0,
            rewatched: 0,
        };
        Measured { periods: vec![period], ..Measured::empty(Experiment::new(System::NetCache, 0.99)) }
    }

    #[test]
    fn throughput_ends_where_the_first_server_is_full() {
        assert!((measured(&[10; 32], 0).throughputs()[0] - RACK_MQPS).abs() < 1e-9);
        assert!((measured(&[10; 32], 320).throughputs()[0] - 2.0 * RACK_MQPS).abs() < 1e-9);
        let mut uneven = [10; 32];
        uneven[0] = 20;
        let uneven = measured(&uneven, 0);
        assert!((uneven.throughputs()[0] - RACK_MQPS * 33.0 / 64.0).abs() < 1e-9);
        // 30 million are almost twice the capacity: even the 31 others are full.
        assert!((uneven.throughputs_with_drops()[0] - RACK_MQPS).abs() < 1e-9);
        assert!((measured(&[0; 32], 7).throughputs_with_drops()[0] - CLIENT_MQPS).abs() < 1e-9);
    }
}
