//! `nicekv bench peers`: NICEKV beside a bare UDP echo (the physical limit), Redis 7 and etcd.
//!
//! ```text
//!                       the lab's switch
//!   client-0 ═══ load ════════╬══════ node-0   replica   redis, or its primary   etcd   UDP echo
//!                             ╠══════ node-1   replica   redis replica           etcd
//!                             ╚══════ node-2   replica   redis replica           etcd
//! ```
//!
//! Each network that is asked for has such a lab: a switch at XDP, a switch at tc, or edges around
//! a plain network. All labs are up at once, and each target is measured in all of them, round by
//! round ([`pair`]), so that networks can be compared, too. A peer runs while its target is
//! measured, and uses the same network as NICEKV (only the peer of P11b has a bridge). An idle lab
//! of three nodes takes 1.5 % of the time of two processors, which is part of both sides' figures.

mod echo;
mod etcd;
mod large;
mod nicekv;
mod pair;
mod redis;
mod target;

use crate::error::Result;
use crate::lab::{Engine, Lab, LabPlan, Network, Size};
use crate::report::{Comparison, Report};
use crate::session::{FileArguments, Session};
use crate::statistics::ROUNDS_MIN;
use crate::{etcd_server, redis_server};
use nicekv_lab::{Fabric, Hook};
use pair::{Pair, Peer};
use serde_json::{Map, Value};
use target::{Experiment, Place, TARGETS, Target};

/// Number of nodes of the lab, and of replicas (R).
const NODES: u8 = 3;
/// A keyspace whose hot values are in the switch, without copies on other nodes.
const SWITCH_KEYSPACE: &str = "kept=id=1,partitions=4,balancing=hot";
const SWITCH_KEYSPACE_PARTITIONS: u32 = 4;
const OPTIONS: [&str; 6] = ["--keyspace", SWITCH_KEYSPACE, "--hot-holders", "0", "--hot-values", "64"];
/// Where peers listen.
const PEER_PORT: u16 = 6390;
/// Load average at the start above which a warning is printed.
const BUSY_LOAD: f64 = 0.5;

/// Arguments of `nicekv bench peers`.
#[derive(Clone, Debug, clap::Args)]
pub struct PeersArguments {
    /// Measure for half a second instead of two in each round
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    files: FileArguments,
    /// Rounds of each comparison
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..))]
    rounds: u32,
    /// Only these targets, such as P2 or P4a; P4 stands for P4a and P4b
    #[arg(long, value_name = "TARGETS", value_delimiter = ',', value_parser = target::parse)]
    only: Vec<String>,
    /// Hook at which the lab's switch sees frames, for both sides: xdp, tc, both in turn, or auto,
    /// which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value = "both", value_parser = parse_switches)]
    switch: Switches,
    /// What is in the middle of the lab: the switch, or a plain network, on which NICEKV's requests
    /// pass their host's edge, and those of peers do not
    #[arg(long, value_enum, env = "NICEKV_LAB_FABRIC", default_value_t)]
    fabric: Fabric,
}

/// Hooks of the switch that are measured in turn.
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
    session: Session,
    redis_version: String,
    /// `None` if etcd is not installed.
    etcd_version: Option<String>,
}

pub(crate) fn run(arguments: &PeersArguments) -> Result<()> {
    let (redis_version, etcd_version) =
        (redis_server::installed_version()?, etcd_server::installed_version());
    let session = Session::start(arguments.quick, arguments.networks()[0], &arguments.files)?;
    let bench = Bench { arguments, session, redis_version, etcd_version };
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
    let mut report = Report::new("peers");
    report.comparisons(&comparisons);
    report.across_networks(&comparisons);
    for target in left_out {
        report.note(format_args!("{}  did not run: {}", target.id, etcd_server::MISSING));
    }
    bench.session.finish(report)
}

/// Other work on the machine slows both sides of a round, but not evenly.
fn warn_if_busy() {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let Some(load) = averages.split(' ').next().and_then(|load| load.parse::<f64>().ok()) else { return };
    if load > BUSY_LOAD {
        eprintln!("the machine is busy (load average {load}): expect a wide spread");
    }
}

impl Bench<'_> {
    /// The targets that were asked for: those that can be measured, and those that cannot.
    fn targets(&self) -> (Vec<&'static Target>, Vec<&'static Target>) {
        let only = &self.arguments.only;
        let is_chosen = |target: &&Target| only.is_empty() || only.iter().any(|name| target.is_named(name));
        let can_run = |target: &&Target| target.experiment != Experiment::Etcd || self.etcd_version.is_some();
        TARGETS.iter().filter(is_chosen).partition(can_run)
    }

    /// Starts a lab on each network.
    fn labs(&self, engine: Engine) -> Result<Vec<(Network, Lab)>> {
        let lab = |network: Network| {
            eprintln!("starting a lab of {NODES} nodes, {} engine, {}", engine.name(), network.name());
            let size = Size { nodes: NODES, replicas: NODES };
            let plan = LabPlan::new(size, engine, network, self.session.directory());
            let lab = Lab::up(&LabPlan { suffix: Some(network.name()), options: &OPTIONS, ..plan });
            self.session.check()?;
            Ok((network, lab?))
        };
        self.arguments.networks().into_iter().map(lab).collect()
    }

    /// Measures a target in all labs.
    fn compare(&self, target: &'static Target, labs: &[(Network, Lab)]) -> Result<Vec<Comparison>> {
        let pairs = labs.iter().map(|(network, lab)| Pair::start(self, target, *network, lab));
        pair::alternate(self, pairs.collect::<Result<_>>()?)
    }

    /// Starts the peer of a target.
    fn start_peer<'a>(
        &self,
        target: &Target,
        lab: &'a Lab,
        parameters: &mut Map<String, Value>,
    ) -> Result<Box<dyn Peer + 'a>> {
        Ok(match target.experiment {
            Experiment::Echo => self.start_echo(lab, target.callers)?,
            Experiment::Get => self.start_redis_for_gets(target, lab, parameters)?,
            Experiment::Put => self.start_redis_for_puts(target, lab, parameters)?,
            Experiment::Etcd => self.start_etcd(target, lab, parameters)?,
            Experiment::LargeGet => self.start_large_redis(target, lab, Place::Lab, parameters)?,
            Experiment::LargePut(place) => self.start_large_redis(target, lab, place, parameters)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_parsed() {
        let hooks = |name| parse_switches(name).map(|Switches(hooks)| hooks.to_vec());
        assert_eq!(hooks("both"), Ok(vec![Hook::Xdp, Hook::Tc]));
        assert_eq!((hooks("xdp"), hooks("auto")), (Ok(vec![Hook::Xdp]), Ok(vec![Hook::Tc])));
        assert!(hooks("all").is_err());
    }
}
