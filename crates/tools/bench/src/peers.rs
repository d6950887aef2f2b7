//! `nicekv bench peers`: NICEKV beside a bare UDP echo (the physical limit), Redis 7 and etcd.
//!
//! ```text
//!                       the lab's switch
//!   client-0 ═══ load ════════╬══════ node-0   replica   redis, or its primary   etcd   UDP echo
//!                             ╠══════ node-1   replica   redis replica           etcd
//!                             ╚══════ node-2   replica   redis replica           etcd
//! ```
//!
//! One such lab for each network that is asked for, with a switch at XDP, at tc, or edges around a plain network: all of them are up at once,
//! and each target is measured in all of them, round by round ([`pair`]), so that networks can be compared, too. A peer runs while its target
//! is measured, and goes through the same network as ours (but for P11b, whose peer has a bridge). An idle lab of three nodes takes 1.5 % of the time of two processors, and both sides'
//! figures have it.

mod echo;
mod etcd;
mod large;
mod ours;
mod pair;
mod redis;
mod target;

use crate::arguments::{FileArguments, LengthArguments};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, LabPlan, Network, Size};
use crate::load::Limits;
use crate::load::native::Callers;
use crate::report::{self, Comparison};
use crate::statistics::ROUNDS_MIN;
use crate::{etcd_server, redis_server};
use nicekv_lab::topology::Host;
use nicekv_lab::{Fabric, Hook};
use nicekv_runtime::Stop;
use pair::{Pair, Peer};
use serde_json::{Map, Value};
use std::time::Duration;
use target::{Experiment, Place, TARGETS, Target};
use tempfile::TempDir;

/// Nodes of the lab, and R.
const NODES: u8 = 3;
/// A keyspace whose hot keys the switch keeps, and nobody else.
const KEPT: &str = "kept=id=1,partitions=4,balancing=hot";
const KEPT_PARTITIONS: u32 = 4;
const FURTHER: [&str; 6] = ["--keyspace", KEPT, "--hot-holders", "0", "--hot-values", "64"];
/// Where the load comes from.
const CLIENT: Host = Host::Client(0);
/// Where peers listen.
const PEER_PORT: u16 = 6390;
/// Average number of runnable threads at the start above which a warning is due.
const BUSY_LOAD: f64 = 0.5;
const WARM_UP: Duration = Duration::from_millis(300);
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(30);
const PRELOADERS: Callers = Callers { count: 64, at_once: 1 };

/// Arguments of `nicekv bench peers`.
#[derive(Clone, Debug, clap::Args)]
pub struct PeersArguments {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    files: FileArguments,
    /// Rounds of each comparison
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..))]
    rounds: u32,
    /// Only these targets, such as P2 or P4a; P4 stands for P4a and P4b
    #[arg(long, value_name = "TARGETS", value_delimiter = ',', value_parser = target::parse)]
    only: Vec<String>,
    /// Where the lab's switch works on frames, for both sides: xdp, tc, both in turn, or auto, which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value = "both", value_parser = parse_switches)]
    switch: Switches,
    /// What is in the middle of the lab: the switch, or a plain network, on which our requests pass their host's edge, and peers nothing
    #[arg(long, value_enum, env = "NICEKV_LAB_FABRIC", default_value_t)]
    fabric: Fabric,
}

/// Where the switch works, in turn.
#[derive(Clone, Copy, Debug)]
struct Switches(&'static [Hook]);

fn parse_switches(name: &str) -> std::result::Result<Switches, String> {
    match name {
        "both" => Ok(Switches(&[Hook::Xdp, Hook::Tc])),
        _ => match name.parse::<Hook>()?.on_veth() {
            Hook::Xdp => Ok(Switches(&[Hook::Xdp])),
            _ => Ok(Switches(&[Hook::Tc])),
        },
    }
}

impl PeersArguments {
    fn networks(&self) -> Vec<Network> {
        match self.fabric {
            Fabric::Switch => self.switch.0.iter().map(|hook| Network::Switch(*hook)).collect(),
            Fabric::Plain => vec![Network::Plain],
        }
    }
}

/// One run of the bench.
struct Bench<'a> {
    arguments: &'a PeersArguments,
    redis_version: String,
    /// Without etcd, nothing is compared with it.
    etcd_version: Option<String>,
    /// Everything that is on a disk.
    directory: TempDir,
    stop: Stop,
}

pub(crate) fn run(arguments: &PeersArguments) -> Result<()> {
    let (redis_version, etcd_version) =
        (redis_server::installed_version()?, etcd_server::installed_version());
    let directory = arguments.files.directory()?;
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let bench = Bench { arguments, redis_version, etcd_version, directory, stop };
    warn_if_busy();
    let (chosen, left_out) = bench.targets();
    let mut comparisons = Vec::new();
    for engine in [Engine::Memory, Engine::Durable] {
        let mut targets = chosen.iter().filter(|target| target.engine == engine).peekable();
        if targets.peek().is_none() {
            continue;
        }
        let labs = bench.labs(engine)?;
        for target in targets {
            comparisons.extend(bench.compare(target, &labs)?);
        }
    }
    print!("{}", report::table(&comparisons));
    print!("{}", report::across_networks(&comparisons));
    for target in left_out {
        println!("{}  did not run: {}", target.id, etcd_server::MISSING);
    }
    let (lines, panels) = (report::json(&comparisons), report::panels(&comparisons));
    arguments.files.write("peers", &lines, &panels)
}

/// Other work on the machine reaches both sides of a round, but not evenly.
fn warn_if_busy() {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let Some(load) = averages.split(' ').next().and_then(|load| load.parse::<f64>().ok()) else { return };
    if load > BUSY_LOAD {
        eprintln!("the machine is busy (load average {load}): expect a wide spread");
    }
}

impl Bench<'_> {
    /// The targets that are wanted: those that can be measured, and those that cannot.
    fn targets(&self) -> (Vec<&'static Target>, Vec<&'static Target>) {
        let only = &self.arguments.only;
        let is_chosen = |target: &&Target| only.is_empty() || only.iter().any(|name| target.is_named(name));
        let can_run = |target: &&Target| target.experiment != Experiment::Etcd || self.etcd_version.is_some();
        TARGETS.iter().filter(is_chosen).partition(can_run)
    }

    /// One for each network.
    fn labs(&self, engine: Engine) -> Result<Vec<(Network, Lab)>> {
        let lab = |network: Network| {
            eprintln!("starting a lab of {NODES} nodes, {} engine, {}", engine.name(), network.name());
            let size = Size { nodes: NODES, replicas: NODES };
            let alone = LabPlan::new(size, engine, network, self.directory.path());
            let lab = Lab::up(&LabPlan { apart: Some(network.name()), further: &FURTHER, ..alone });
            if self.stop.is_stopped() { Err(BenchError::Interrupted) } else { Ok((network, lab?)) }
        };
        self.arguments.networks().into_iter().map(lab).collect()
    }

    /// A target in all labs.
    fn compare(&self, target: &'static Target, labs: &[(Network, Lab)]) -> Result<Vec<Comparison>> {
        let pairs = labs.iter().map(|(network, lab)| Pair::start(self, target, *network, lab));
        pair::alternate(self, pairs.collect::<Result<_>>()?)
    }

    /// What is to be compared with.
    fn start_peer<'a>(
        &self,
        target: &Target,
        lab: &'a Lab,
        parameters: &mut Map<String, Value>,
    ) -> Result<Box<dyn Peer + 'a>> {
        Ok(match target.experiment {
            Experiment::Echo if target.callers > 1 => self.start_echoes(lab, target.callers)?,
            Experiment::Echo => self.start_echo(lab)?,
            Experiment::Get => self.start_redis_for_gets(target, lab, parameters)?,
            Experiment::Put => self.start_redis_for_puts(target, lab, parameters)?,
            Experiment::Etcd => self.start_etcd(target, lab, parameters)?,
            Experiment::LargeGet => self.start_large_redis(target, lab, Place::Lab, parameters)?,
            Experiment::LargePut(place) => self.start_large_redis(target, lab, place, parameters)?,
        })
    }

    fn round_time(&self) -> Duration {
        self.arguments.length.round_time()
    }

    fn limits(&self, duration: Duration) -> Limits<'_> {
        Limits { duration, stop: &self.stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_is_tried_with_every_switch_that_is_asked_for() {
        let hooks = |name| parse_switches(name).map(|Switches(hooks)| hooks.to_vec());
        assert_eq!(hooks("both"), Ok(vec![Hook::Xdp, Hook::Tc]));
        assert_eq!((hooks("xdp"), hooks("auto")), (Ok(vec![Hook::Xdp]), Ok(vec![Hook::Tc])));
        assert!(hooks("all").is_err());
    }
}
