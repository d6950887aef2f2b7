//! `nicekv bench peers`: NICEKV beside a bare UDP echo (the physical limit), Redis 7 and etcd.
//!
//! ```text
//!                       the lab's switch
//!   client-0 ═══ load ════════╬══════ node-0   replica   redis, or its primary   etcd   UDP echo
//!                             ╠══════ node-1   replica   redis replica           etcd
//!                             ╚══════ node-2   replica   redis replica           etcd
//!
//!   round 1: nicekv, peer   round 2: peer, nicekv   round 3: nicekv, peer   …
//! ```
//!
//! Each target is measured for itself, once through a switch at XDP and once through one at tc; its peer runs only meanwhile, and goes
//! through the same switch.

mod etcd;
mod redis;
mod target;

use crate::arguments::{FileArguments, LengthArguments};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, Size, inside};
use crate::load::echo::{self, EchoLoad};
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::report::{self, Comparison};
use crate::statistics::{ROUNDS_MIN, Rounds};
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use crate::{etcd_server, redis_server};
use nicekv_client::Keyspace;
use nicekv_lab::Hook;
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_placement::{Vrings, partitions_for};
use nicekv_runtime::Stop;
use serde_json::{Map, Value, json};
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;
use target::{Experiment, TARGETS, Target};
use tempfile::TempDir;

/// Nodes of the lab, and R.
const NODES: u8 = 3;
/// Where the load comes from.
const CLIENT: Host = Host::Client(0);
/// Where peers listen.
const PEER_PORT: u16 = 6390;
/// Bytes of an echoed datagram: about the mean of a get and its answer.
const ECHO_BYTES: usize = 114;
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
    /// Where the lab's switch works on frames, for both sides: xdp, tc, both one after the other, or auto, which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value = "both", value_parser = parse_switches)]
    switch: Switches,
}

/// Where the switch works, one after the other.
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

/// What is compared, and the processor time of an op.
type Figures = (Rounds, Rounds);

/// A peer under load: runs the ops of a seed within limits.
type Peer<'a> = &'a mut dyn FnMut(u64, Limits<'_>) -> Result<Measured>;

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
        let targets: Vec<&Target> = chosen.iter().copied().filter(|target| target.engine == engine).collect();
        for &switch in arguments.switch.0.iter().filter(|_| !targets.is_empty()) {
            let _lab = bench.lab(engine, switch)?;
            for target in &targets {
                comparisons.push(bench.compare(target, switch)?);
            }
        }
    }
    // Either switch's row of a target beside the other's.
    comparisons.sort_by_key(|comparison| comparison.target);
    print!("{}", report::table(&comparisons));
    for target in left_out {
        println!("{}  did not run: {}", target.id, etcd_server::MISSING);
    }
    arguments.files.write_json(&report::json(&comparisons))
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

    fn lab(&self, engine: Engine, switch: Hook) -> Result<Lab> {
        eprintln!("starting a lab of {NODES} nodes, {} engine, switch at {}", engine.name(), switch.name());
        let size = Size { nodes: NODES, replicas: NODES };
        let lab = Lab::up(size, engine, switch, &self.directory.path().join("lab"));
        if self.stop.is_stopped() { Err(BenchError::Interrupted) } else { lab }
    }

    fn compare(&self, target: &Target, switch: Hook) -> Result<Comparison> {
        let mut parameters = self.parameters(target, switch);
        let mut native = self.client(target)?;
        let rounds = match target.experiment {
            Experiment::Echo => self.beside_echo(target, &mut native),
            Experiment::Get => self.beside_redis_gets(target, &mut native, &mut parameters),
            Experiment::Put => self.beside_redis_puts(target, &mut native, &mut parameters),
            Experiment::Etcd => self.beside_etcd(target, &mut native, &mut parameters),
        }?;
        let (metric, unit) = target.metric();
        let title = format!("{}, {}", target.title, switch.name());
        let Target { id, goal, peer, .. } = *target;
        let (rounds, costs) = rounds;
        let (bench, target, goal) = ("peers", Some(id), Some(goal));
        Ok(Comparison { bench, target, goal, title, metric, unit, peer, parameters, rounds, costs })
    }

    /// Callers with several ops at once may have those of a partition in one datagram.
    fn client(&self, target: &Target) -> Result<NativeLoad> {
        let address = SocketAddrV4::new(CLIENT.address(), 0);
        let partition_bits = (target.at_once > 1).then(|| partitions_for(NODES.into()).ilog2());
        let keyspace = Keyspace { partition_bits, ..Vrings::on_network(WIRE_PORT).into() };
        inside(CLIENT, || NativeLoad::bind(address, keyspace))?
            .map_err(BenchError::system("make a client's socket"))
    }

    fn parameters(&self, target: &Target, switch: Hook) -> Map<String, Value> {
        let parameters = json!({
            "callers": target.callers,
            "at_once": target.at_once,
            "value_bytes": VALUE_BYTES,
            "keys": KEYS,
            "nodes": NODES,
            "replicas": NODES,
            "engine": target.engine.name(),
            "switch": switch.name(),
            "round_seconds": self.round_time().as_secs_f64(),
        });
        let Value::Object(parameters) = parameters else { unreachable!("an object above") };
        parameters
    }

    fn round_time(&self) -> Duration {
        self.arguments.length.round_time()
    }

    fn limits(&self, duration: Duration) -> Limits<'_> {
        Limits { duration, stop: &self.stop }
    }

    fn preload(&self, native: &mut NativeLoad) -> Result<()> {
        let preload = Sequence::new(Work::Preload, 0);
        native.run(preload, PRELOADERS, self.limits(PRELOAD_TIMEOUT)).map(|_| ())
    }

    /// P1. The echo runs on a thread of this process, with its socket on a node's host.
    fn beside_echo(&self, target: &Target, native: &mut NativeLoad) -> Result<Figures> {
        self.preload(native)?;
        let address = SocketAddrV4::new(Host::Node(0).address(), PEER_PORT);
        let socket = || BenchError::system("make an echo's socket");
        let server = inside(Host::Node(0), || UdpSocket::bind(address))?.map_err(socket())?;
        let connect = || EchoLoad::connect(CLIENT.address(), address, ECHO_BYTES);
        let client = inside(CLIENT, connect)?.map_err(socket())?;
        let ended = Stop::new();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| echo::serve(&server, &ended));
            let rounds = self.alternate(target, Work::Get, native, &mut |_, limits| client.run(limits));
            ended.stop();
            let served = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            served.map_err(BenchError::system("serve echos"))?;
            rounds
        })
    }

    /// One side after the other, and in the next round in reverse: neither has the better half of a round.
    fn alternate(
        &self,
        target: &Target,
        work: Work,
        native: &mut NativeLoad,
        peer: Peer<'_>,
    ) -> Result<Figures> {
        let callers = Callers { count: target.callers, at_once: target.at_once };
        let mut ours = |seed, limits: Limits<'_>| native.run(Sequence::new(work, seed), callers, limits);
        ours(0, self.limits(WARM_UP))?;
        peer(0, self.limits(WARM_UP))?;
        let (mut rounds, limits) = (Figures::default(), self.limits(self.round_time()));
        for round in 1..=u64::from(self.arguments.rounds) {
            let (our, theirs) = if round % 2 == 1 {
                let our = ours(round, limits)?;
                (our, peer(round, limits)?)
            } else {
                let theirs = peer(round, limits)?;
                (ours(round, limits)?, theirs)
            };
            let pair = (target.figure(our), target.figure(theirs));
            let (_, unit) = target.metric();
            let (total, retries, ratio) = (self.arguments.rounds, our.retries, pair.0 / pair.1);
            eprintln!(
                "{} {round}/{total}: nicekv {:.1} {unit} ({retries} retries), {} {:.1}, ratio {ratio:.2}",
                target.id, pair.0, target.peer, pair.1
            );
            rounds.0.pairs.push(pair);
            rounds.1.pairs.push((our.cost_us(), theirs.cost_us()));
        }
        Ok(rounds)
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
