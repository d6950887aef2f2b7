//! `nicekv-sim`, which `nicekv sim` runs: the deterministic simulation from the command line.
//!
//! Exit code 1: a checker found a violation, or a core panicked. 2: wrong usage, or an error of the environment.

use clap::Parser;
use nicekv_sim::cluster::Tally;
use nicekv_sim::faults::{Faults, OPTIONS};
use nicekv_sim::judge::{self, Report};
use nicekv_sim::keyspace;
use nicekv_sim::plants::{self, PLANTS};
use nicekv_sim::scenarios;
use std::error::Error;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// A bug was found: exit code 1. Other errors, of usage or environment, have exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Violation(String);

type Outcome = Result<(), Box<dyn Error>>;

/// The command that replays the present run, printed when a core panics.
static REPLAY: Mutex<String> = Mutex::new(String::new());
/// The seeds to run if neither `--seeds` nor `--seed` is given.
const SEEDS_DEFAULT: RangeInclusive<u64> = 1..=50;
/// The seeds of a `--scenario` if neither `--seeds` nor `--seed` is given.
const SCENARIO_SEEDS_DEFAULT: RangeInclusive<u64> = 1..=12;

/// Prints a line. If standard output is closed, the process exits quietly, not with the exit code
/// of a violation.
fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(2);
    }
}

macro_rules! say {
    ($($argument:tt)*) => { $crate::say(&format!($($argument)*)) };
}

mod enumeration;
mod objects;

/// Run with injected faults in a deterministic simulation; check linearizability
#[derive(Parser)]
#[command(
    name = "nicekv-sim",
    version,
    after_help = "`nicekv bench replicast-sim` simulates performance instead."
)]
struct SimArguments {
    /// Run seeds A to B, inclusive [default: 1..50]
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Run one seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Print a line per message; needs --seed or --only
    #[arg(long)]
    trace: bool,
    /// Run a script of faults at chosen points; "list" prints all names
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Inject every fault at every point of short runs, every pair of faults, and triples of
    /// crashes; then visit every state of tiny clusters. Takes half an hour, or a minute with
    /// --quick
    ///
    /// A point is an event at a node or at the metadata service: a datagram other than a heartbeat,
    /// a frame of a copying stream, new tables, a disk completion. Of the triples, only those run
    /// whose third crash happens during the recovery from the second.
    #[arg(long, conflicts_with_all = ["scenario", "plant", "fault", "seeds", "seed"])]
    enumerate: bool,
    /// With --enumerate: all single faults, and a sample of the pairs, the triples and the tiny clusters
    #[arg(long, requires = "enumerate")]
    quick: bool,
    /// With --enumerate: one script, or one run of it
    #[arg(long, requires = "enumerate", value_name = "SCRIPT[:EVENT.FAULT+…]")]
    only: Option<String>,
    /// Hunt the planted bug of this name, in a build that contains it (`.ci/plants`). Exit code 1:
    /// the bug was found. "list" prints all names
    #[arg(long, value_name = "NAME", conflicts_with_all = ["scenario", "fault"])]
    plant: Option<String>,
    /// Set the rate of a fault instead of drawing it from the seed; repeatable; "list" prints all faults
    #[arg(long, value_name = "NAME=VALUE")]
    fault: Vec<String>,
    /// Use chain replication in every keyspace that has a primary; by default a quarter of the seeds do
    #[arg(long, conflicts_with_all = ["scenario", "plant", "enumerate"])]
    chains: bool,
    /// Simulate object storage instead: chunks, names and garbage collection
    #[arg(long, conflicts_with_all = ["scenario", "fault", "enumerate", "chains", "trace"])]
    objects: bool,
}

impl SimArguments {
    fn seeds(&self, default: RangeInclusive<u64>) -> RangeInclusive<u64> {
        match self.seed {
            Some(seed) => seed..=seed,
            None => self.seeds.clone().unwrap_or(default),
        }
    }
}

fn remember(replay: &str) {
    replay.clone_into(&mut REPLAY.lock().expect("only a panic poisons it"));
}

fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let bounds =
        text.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match bounds {
        Some((first, last)) if first <= last => Ok(first..=last),
        _ => Err("expected A..B with A not greater than B".into()),
    }
}

fn main() -> ExitCode {
    // Usage errors and --help end the process here, with exit code 2 and 0.
    match run(&SimArguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Libraries may put several lines into a message.
            eprintln!("nicekv-sim: {}", error.to_string().replace('\n', " "));
            ExitCode::from(if error.is::<Violation>() { 1 } else { 2 })
        }
    }
}

fn run(arguments: &SimArguments) -> Outcome {
    if arguments.fault.iter().any(|fault| fault == "list") {
        list_faults();
        return Ok(());
    }
    let mut given = Faults::NONE;
    arguments.fault.iter().try_for_each(|fault| given.set(fault))?;
    exit_on_panic();
    if arguments.trace && arguments.seed.is_none() && arguments.only.is_none() {
        return Err("--trace needs --seed, or a run named by --only".into());
    }
    if arguments.enumerate {
        return enumeration::run(arguments.only.as_deref(), arguments.quick, arguments.trace);
    }
    if arguments.objects {
        return objects::run(arguments.seeds(SEEDS_DEFAULT), arguments.seed, arguments.plant.as_deref());
    }
    match (&arguments.scenario, &arguments.plant) {
        (Some(name), _) => run_scenario(name, arguments),
        (None, Some(name)) => hunt(name, arguments),
        (None, None) => run_seeds(arguments),
    }
}

fn list_faults() {
    for option in OPTIONS {
        say!("{:16} {:12}{}", option.name, format!("{:?}", option.unit).to_lowercase(), option.help);
    }
}

/// Makes a panic of a core exit with the code of a violation.
fn exit_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        let replay = REPLAY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        say!("violation: a core panicked\nreplay: {replay}");
        std::process::exit(1);
    }));
}

/// Totals over several runs.
struct Sum {
    runs: usize,
    calls: usize,
    unknown: usize,
    too_large: usize,
    tally: Tally,
    began: Instant,
}

impl Sum {
    fn new() -> Self {
        Self { runs: 0, calls: 0, unknown: 0, too_large: 0, tally: Tally::default(), began: Instant::now() }
    }

    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.calls += report.calls;
        self.unknown += report.unknown;
        self.too_large += report.too_large;
        self.tally.add(&report.tally);
    }

    fn print(&self) {
        let seconds = self.began.elapsed().as_secs_f64();
        let events = self.tally.events;
        say!("{} runs in {seconds:.1} s", self.runs);
        say!("{events} events, {:.0} events/s on one core", events as f64 / seconds);
        say!("{} calls, {} with unknown outcome", self.calls, self.unknown);
        say!("{} answers to gets checked against what nodes let others answer", self.tally.compared);
        if self.too_large > 0 {
            say!("{} histories had too many concurrent calls to be checked", self.too_large);
        }
        let faults = self.tally.faults.iter().map(|(fault, count)| format!("{count} {fault}"));
        say!("faults: {}", faults.collect::<Vec<_>>().join(", "));
    }
}

fn run_seeds(arguments: &SimArguments) -> Outcome {
    let faults: Vec<String> = arguments.fault.iter().map(|fault| format!(" --fault {fault}")).collect();
    let mut sum = Sum::new();
    for seed in arguments.seeds(SEEDS_DEFAULT) {
        let chains = if arguments.chains { " --chains" } else { "" };
        let replay = format!("nicekv sim --seed {seed}{}{chains}", faults.concat());
        remember(&replay);
        let mut scenario = judge::draw(seed);
        if arguments.chains {
            keyspace::make_chains(&mut scenario.keyspaces, scenario.nodes, seed);
        }
        arguments.fault.iter().try_for_each(|fault| scenario.faults.set(fault))?;
        if arguments.trace {
            say!("faults:{}", scenario.faults);
        }
        let report = judge::run(scenario, seed, arguments.trace.then_some(say));
        sum.add(&report);
        check(&report.violations, &replay)?;
    }
    sum.print();
    Ok(())
}

fn run_scenario(name: &str, arguments: &SimArguments) -> Outcome {
    if name == "list" {
        for script in scenarios::scripts() {
            say!("{:34} row {:2}  {}", script.name, script.row, script.what);
        }
        return Ok(());
    }
    let script = scenarios::find(name)
        .ok_or_else(|| format!("no scenario {name:?}; `--scenario list` prints all names"))?;
    let mut sum = Sum::new();
    for seed in arguments.seeds(SCENARIO_SEEDS_DEFAULT) {
        let replay = format!("nicekv sim --scenario {name} --seed {seed}");
        remember(&replay);
        let (report, is_played) = script.run(seed, arguments.trace.then_some(say));
        sum.add(&report);
        check(&report.violations, &replay)?;
        if !is_played {
            return Err(format!("{name} with seed {seed} never reached the point of its fault").into());
        }
    }
    sum.print();
    Ok(())
}

fn hunt(name: &str, arguments: &SimArguments) -> Outcome {
    if name == "list" {
        PLANTS.iter().for_each(|plant| say(plant.name));
        return Ok(());
    }
    let plant =
        plants::find(name).ok_or_else(|| format!("no plant {name:?}; `--plant list` prints all names"))?;
    remember(&format!("nicekv sim --plant {name}"));
    let hunted = plant.hunt(arguments.seed, arguments.trace.then_some(say), |seed| {
        remember(&format!("nicekv sim --plant {name} --seed {seed}"));
    });
    let Some(found) = hunted.found else {
        say!("not found within {} seeds", hunted.seeds);
        return Ok(());
    };
    say!("violation: {}", found.violation);
    let seed = found.seed.map(|seed| format!(" --seed {seed}")).unwrap_or_default();
    say!("replay: nicekv sim --plant {name}{seed}");
    Err(Violation(format!("{name} was found after {} seeds", hunted.seeds)).into())
}

fn check(violations: &[String], replay: &str) -> Outcome {
    if violations.is_empty() {
        return Ok(());
    }
    for violation in violations {
        say!("violation: {violation}");
    }
    say!("replay: {replay}");
    Err(Violation(format!("{} violations; {replay} --trace shows how", violations.len())).into())
}
