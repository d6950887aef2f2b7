//! Cells: what is simulated, and what is taken from it.

use super::accuracy::{Accuracies, Accuracy};
use super::kernel::KernelRack;
use super::popularity::{KEYS, Popularity};
use super::rack::{Balancer, Period, Rack, Setup, System};
use super::trace::{Mix, RackTrace, Racks, SERVER_REQUESTS, SERVERS};
use crate::error::Result;
use crate::statistics::ROUNDS_MIN;
use nicekv_hotkeys::{Config, imbalance};
use nicekv_switch_xdp::Hook;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What a rack of the paper's servers can do, millions of requests a second …
const RACK_MQPS: f64 = 15.4;
/// … and its client sends.
const CLIENT_MQPS: f64 = 30.0;
/// From a write's arrival at the switch until all copies have confirmed it: 100 us at 15.4 million requests a second.
const CONFIRM_REQUESTS: u64 = 1_540;
/// Of the HashPipe's hash functions.
const SEED: u64 = 1;
/// Periods in which T comes down from T₀, which are not measured.
pub(crate) const SETTLING: usize = 12;

/// A system under a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) system: System,
    pub(crate) skew: f64,
    pub(crate) mix: Mix,
    pub(crate) config: Config,
    pub(crate) racks: u16,
    pub(crate) settling: usize,
    pub(crate) periods: usize,
    /// Whether what is expected of a period is compared with what comes.
    pub(crate) is_judged: bool,
    /// Whose programs in the kernel are asked; none: the model.
    pub(crate) hook: Option<Hook>,
}

/// Of each measured period.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) lambdas: Vec<f64>,
    /// Of one rack.
    pub(crate) periods: Vec<Period>,
    pub(crate) accuracies: Vec<Accuracy>,
    /// T of every period from the first one, in parts of the mean load of a server.
    pub(crate) thresholds: Vec<f64>,
    /// Frames a second that were put through programs in the kernel.
    pub(crate) rate: Option<f64>,
}

impl Cell {
    pub(crate) fn new(system: System, skew: f64) -> Self {
        let settling = match system {
            System::Original => 0,
            System::NetCache => 8,
            System::KvSwitch | System::Everywhere => SETTLING,
        };
        let (mix, config, periods) = (Mix::GETS, Config::default(), ROUNDS_MIN as usize);
        Self { system, skew, mix, config, racks: 1, settling, periods, is_judged: false, hook: None }
    }

    /// The same by programs in the kernel, as far as these can: values in a switch are fewer than NetCache has, and there is one switch.
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

    fn measure(&self) -> Measured {
        let popularity = Popularity::new(self.skew);
        let setup = self.setup();
        let mut measured = Measured::nothing(*self);
        if self.racks > 1 {
            let mut racks = Racks::new(&popularity, setup, self.racks);
            measured.lambdas =
                (0..self.settling + self.periods).map(|_| racks.period()).skip(self.settling).collect();
            return measured;
        }
        let mut trace = RackTrace::new(&popularity, self.mix, Rack::new(setup, SEED));
        let Ok(()) = measured.take(&mut trace);
        measured
    }

    /// The same, with the programs of a switch in the kernel. Moves the calling thread to another network namespace.
    fn measure_at(&self, hook: Hook) -> Result<Measured> {
        let popularity = Popularity::new(self.skew);
        let setup = self.setup();
        let rack = KernelRack::new(setup, hook, SEED)?;
        let mut trace = RackTrace::new(&popularity, self.mix, rack);
        let mut measured = Measured::nothing(*self);
        measured.take(&mut trace)?;
        Ok(Measured { rate: Some(trace.rack.rate()), ..measured })
    }

    fn setup(&self) -> Setup {
        let (system, config) = (self.system, self.config);
        Setup { system, config, servers: SERVERS, confirm_requests: CONFIRM_REQUESTS }
    }
}

impl Measured {
    fn nothing(cell: Cell) -> Self {
        let (lambdas, periods, accuracies, thresholds) = Default::default();
        Self { cell, lambdas, periods, accuracies, thresholds, rate: None }
    }

    /// What a trace is like, period by period.
    fn take<R: Balancer>(&mut self, trace: &mut RackTrace<'_, R>) -> std::result::Result<(), R::Error> {
        let cell = self.cell;
        let mut accuracies = cell.is_judged.then(|| Accuracies::new(&cell.config));
        for number in 0..cell.settling + cell.periods {
            accuracies.iter_mut().for_each(|accuracies| accuracies.expect(&trace.rack));
            let period =
                trace.period(|rank| accuracies.iter_mut().for_each(|accuracies| accuracies.count(rank)))?;
            let accuracy = accuracies.as_mut().map(|accuracies| accuracies.judge(period.requests));
            self.thresholds.push(f64::from(period.threshold_ppm) / f64::from(nicekv_hotkeys::MILLION));
            if number >= cell.settling {
                self.lambdas.push(imbalance(&period.loads));
                self.accuracies.extend(accuracy);
                self.periods.push(period);
            }
        }
        Ok(())
    }

    fn each(&self, take: impl Fn(&Period) -> f64) -> Vec<f64> {
        self.periods.iter().map(take).collect()
    }

    /// Millions of requests a second when the most loaded server does what it can, and nobody is sent more.
    pub(crate) fn throughputs(&self) -> Vec<f64> {
        let server = RACK_MQPS / f64::from(SERVERS);
        self.each(|period| period.requests as f64 / most(period) * server)
    }

    /// The same when the client sends all that it can, and servers drop what is too much for them.
    pub(crate) fn throughputs_with_drops(&self) -> Vec<f64> {
        let server = RACK_MQPS / f64::from(SERVERS);
        self.each(|period| {
            let sent = |requests: u64| requests as f64 / period.requests as f64 * CLIENT_MQPS;
            sent(period.absorbed) + period.loads.iter().map(|load| sent(*load).min(server)).sum::<f64>()
        })
    }

    /// Ops of servers for each request that the switch does not answer: more than one if copies are written.
    pub(crate) fn ops_per_request(&self) -> Vec<f64> {
        self.each(|period| {
            period.loads.iter().sum::<u64>() as f64 / (period.requests - period.absorbed) as f64
        })
    }

    /// Part of K that has copies.
    pub(crate) fn copied(&self) -> Vec<f64> {
        self.each(|period| period.copied_keys as f64 / f64::from(self.cell.config.keys_max))
    }

    /// Copies at a server beside what it owns.
    pub(crate) fn copies_per_server(&self) -> Vec<f64> {
        self.each(|period| period.copies as f64 / f64::from(SERVERS))
    }

    /// Entries whose holders a period's end changes.
    pub(crate) fn reinstalled(&self) -> Vec<f64> {
        self.each(|period| period.reinstalled as f64)
    }
}

fn most(period: &Period) -> f64 {
    period.loads.iter().copied().max().unwrap_or(0).max(1) as f64
}

/// Measures all cells: those of the model on all processors, so that those that take longest should be first, then those of programs in the kernel one after the other.
pub(crate) fn measure(cells: &[Cell]) -> Result<Vec<Measured>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(vec![None; cells.len()]);
    let note = |place: usize, measured: Measured| {
        let (number, count, cell) = (done.fetch_add(1, Ordering::Relaxed) + 1, cells.len(), &measured.cell);
        let rate = measured.rate.map_or_else(String::new, |rate| format!(", {rate:.0} frames/s"));
        eprintln!("{number} of {count}: {}, {}{rate}", cell.workload(), cell.system.name());
        results.lock().expect("nobody panics with it")[place] = Some(measured);
    };
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(place) else { return };
            if cell.hook.is_none() {
                note(place, cell.measure());
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(cells.len());
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let in_kernel = || {
        let mut hooked = cells.iter().enumerate().filter_map(|(place, cell)| Some((place, cell, cell.hook?)));
        let measure = |(place, cell, hook): (usize, &Cell, Hook)| {
            cell.measure_at(hook).map(|measured| note(place, measured))
        };
        hooked.try_for_each(measure)
    };
    // The thread changes its namespace, and is not to keep it.
    let ran: Result<()> = thread::scope(|scope| {
        scope.spawn(in_kernel).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    ran?;
    let results = results.into_inner().expect("nobody panics with it");
    Ok(results.into_iter().map(|measured| measured.expect("every cell was taken")).collect())
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
        let cell = Cell::new(System::NetCache, 0.99);
        Measured { periods: vec![period], ..Measured::nothing(cell) }
    }

    #[test]
    fn throughput_ends_where_the_first_server_is_full() {
        assert!((measured(&[10; 32], 0).throughputs()[0] - RACK_MQPS).abs() < 1e-9);
        assert!((measured(&[10; 32], 320).throughputs()[0] - 2.0 * RACK_MQPS).abs() < 1e-9);
        let mut uneven = [10; 32];
        uneven[0] = 20;
        let uneven = measured(&uneven, 0);
        assert!((uneven.throughputs()[0] - RACK_MQPS * 33.0 / 64.0).abs() < 1e-9);
        // 30 million are almost twice what all can do: even the 31 are full.
        assert!((uneven.throughputs_with_drops()[0] - RACK_MQPS).abs() < 1e-9);
        assert!((measured(&[0; 32], 7).throughputs_with_drops()[0] - CLIENT_MQPS).abs() < 1e-9);
    }
}
