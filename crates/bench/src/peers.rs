//! `nicekv bench peers`: NICEKV beside a bare UDP echo (the physical limit) and Redis 7.
//!
//! ```text
//!                       the lab's switch
//!   client-0 ═══ load ════════╬══════ node-0   replica   redis, or its primary   UDP echo
//!                             ╠══════ node-1   replica   redis replica
//!                             ╚══════ node-2   replica   redis replica
//!
//!   round 1: nicekv, peer   round 2: peer, nicekv   round 3: nicekv, peer   …
//! ```
//!
//! Each target is measured for itself; its peer runs only meanwhile.

mod target;

use crate::arguments::{FileArguments, LengthArguments};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, Size, inside};
use crate::load::echo::{self, EchoLoad};
use crate::load::native::NativeLoad;
use crate::load::redis::RedisLoad;
use crate::load::{Limits, Measured};
use crate::redis_server::{self, RedisServer, Role};
use crate::report::{self, Comparison};
use crate::statistics::{ROUNDS_MIN, Rounds};
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use nicekv_lab::Hook;
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_placement::Vrings;
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

/// Arguments of `nicekv bench peers`.
#[derive(Clone, Debug, clap::Args)]
pub struct PeersArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// Rounds of each comparison
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..))]
    rounds: u32,
    /// Only these targets, such as P2 or P4a; P4 stands for P4a and P4b
    #[arg(long, value_name = "TARGETS", value_delimiter = ',', value_parser = target::parse)]
    only: Vec<String>,
    #[command(flatten)]
    files: FileArguments,
    /// Where the lab's switch works on frames, for both sides: xdp, tc or auto, which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value_t)]
    switch: Hook,
}

/// One run of the bench.
struct Bench<'a> {
    arguments: &'a PeersArguments,
    redis_version: String,
    /// Everything that is on a disk.
    directory: TempDir,
    stop: Stop,
}

/// What is compared, and the processor time of an op.
type Figures = (Rounds, Rounds);

/// A peer under load: runs the ops of a seed within limits.
type Peer<'a> = &'a mut dyn FnMut(u64, Limits<'_>) -> Result<Measured>;

pub(crate) fn run(arguments: &PeersArguments) -> Result<()> {
    let redis_version = redis_server::installed_version()?;
    let directory = arguments.files.directory()?;
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let bench = Bench { arguments, redis_version, directory, stop };
    warn_if_busy();
    let is_chosen = |target: &&Target| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| target.is_named(name))
    };
    let mut comparisons = Vec::new();
    for engine in [Engine::Memory, Engine::Durable] {
        let targets: Vec<&Target> =
            TARGETS.iter().filter(|target| target.engine == engine).filter(is_chosen).collect();
        if !targets.is_empty() {
            let _lab = bench.lab(engine)?;
            for target in targets {
                comparisons.push(bench.compare(target)?);
            }
        }
    }
    print!("{}", report::table(&comparisons));
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
    fn lab(&self, engine: Engine) -> Result<Lab> {
        eprintln!("starting a lab of {NODES} nodes, {} engine", engine.name());
        let lab = Lab::up(
            Size { nodes: NODES, replicas: NODES },
            engine,
            self.arguments.switch,
            &self.directory.path().join("lab"),
        );
        if self.stop.is_stopped() { Err(BenchError::Interrupted) } else { lab }
    }

    fn compare(&self, target: &Target) -> Result<Comparison> {
        let mut parameters = self.parameters(target);
        let mut native = inside(CLIENT, || {
            let address = SocketAddrV4::new(CLIENT.address(), 0);
            NativeLoad::bind(address, Vrings::on_network(WIRE_PORT))
        })?
        .map_err(BenchError::system("make a client's socket"))?;
        let rounds = match target.experiment {
            Experiment::Echo => self.beside_echo(target, &mut native),
            Experiment::Get => self.beside_redis_gets(target, &mut native, &mut parameters),
            Experiment::Put => self.beside_redis_puts(target, &mut native, &mut parameters),
        }?;
        let (metric, unit) = target.metric();
        let Target { id, goal, title, peer, .. } = *target;
        let (rounds, costs) = rounds;
        let (bench, target, goal) = ("peers", Some(id), Some(goal));
        Ok(Comparison { bench, target, goal, title, metric, unit, peer, parameters, rounds, costs })
    }

    fn parameters(&self, target: &Target) -> Map<String, Value> {
        let parameters = json!({
            "callers": target.callers,
            "value_bytes": VALUE_BYTES,
            "keys": KEYS,
            "nodes": NODES,
            "replicas": NODES,
            "engine": target.engine.name(),
            "switch": self.arguments.switch.on_veth().name(),
            "round_seconds": self.arguments.length.round_time().as_secs_f64(),
        });
        let Value::Object(parameters) = parameters else { unreachable!("an object above") };
        parameters
    }

    fn limits(&self, duration: Duration) -> Limits<'_> {
        Limits { duration, stop: &self.stop }
    }

    /// P1. The echo runs on a thread of this process, with its socket on a node's host.
    fn beside_echo(&self, target: &Target, native: &mut NativeLoad) -> Result<Figures> {
        native.run(Sequence::new(Work::Preload, 0), 64, self.limits(PRELOAD_TIMEOUT))?;
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

    /// P2.
    fn beside_redis_gets(
        &self,
        target: &Target,
        native: &mut NativeLoad,
        parameters: &mut Map<String, Value>,
    ) -> Result<Figures> {
        let servers = self.start_redis(1, target.engine)?;
        let mut load = connect(&servers, target.callers)?;
        native.run(Sequence::new(Work::Preload, 0), target.callers, self.limits(PRELOAD_TIMEOUT))?;
        load.run(Sequence::new(Work::Preload, 0), self.limits(PRELOAD_TIMEOUT))?;

        let mut own = |seed, limits: Limits<'_>| load.run(Sequence::new(Work::Get, seed), limits);
        own(0, self.limits(WARM_UP))?;
        let own_rate = own(0, self.limits(self.arguments.length.round_time()))?.throughput();
        let server = servers[0].address();
        let gets = |duration: Duration| (own_rate * duration.as_secs_f64()) as u64;
        let benchmark = |gets| {
            let run = || redis_server::benchmark_gets(server, target.callers, KEYS, gets);
            inside(CLIENT, run)?
        };
        let benchmark_rate = benchmark(gets(self.arguments.length.round_time()))?.unwrap_or(0.0);
        let is_own = own_rate >= benchmark_rate;
        let chosen = if is_own { "own" } else { "redis-benchmark" };
        eprintln!(
            "redis under our load: {own_rate:.0} op/s, under redis-benchmark: {benchmark_rate:.0}; using {chosen}"
        );
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        parameters.insert("peer_load".into(), chosen.into());
        if is_own {
            return self.alternate(target, Work::Get, native, &mut own);
        }
        let mut other = |_, limits: Limits<'_>| {
            let (operations, before) = (gets(limits.duration), MachineTime::now());
            let rate = benchmark(operations)?.unwrap_or(0.0);
            Ok(Measured::at_rate(operations, rate, before))
        };
        self.alternate(target, Work::Get, native, &mut other)
    }

    /// P4 and P5.
    fn beside_redis_puts(
        &self,
        target: &Target,
        native: &mut NativeLoad,
        parameters: &mut Map<String, Value>,
    ) -> Result<Figures> {
        parameters.insert("peer_version".into(), self.redis_version.clone().into());
        let servers = self.start_redis(NODES, target.engine)?;
        let mut load = connect(&servers, target.callers)?;
        let mut peer = |seed, limits: Limits<'_>| load.run(Sequence::new(Work::Put, seed), limits);
        self.alternate(target, Work::Put, native, &mut peer)
    }

    /// A primary and its replicas, each on a node's host.
    fn start_redis(&self, count: u8, engine: Engine) -> Result<Vec<RedisServer>> {
        let address = |index| SocketAddrV4::new(Host::Node(index).address(), PEER_PORT);
        let start = |index| {
            let primary = (index > 0).then(|| address(0));
            let role = Role { address: address(index), primary, durable: engine == Engine::Durable };
            inside(Host::Node(index), || RedisServer::start(role, self.directory.path()))?
        };
        let mut servers = (0..count).map(start).collect::<Result<Vec<_>>>()?;
        // Asked from where the load will come from: the answers pass the switch.
        let ready = || servers[0].wait_until_ready(usize::from(count) - 1, &self.stop);
        inside(CLIENT, ready)??;
        Ok(servers)
    }

    /// One side after the other, and in the next round in reverse: neither has the better half of a round.
    fn alternate(
        &self,
        target: &Target,
        work: Work,
        native: &mut NativeLoad,
        peer: Peer<'_>,
    ) -> Result<Figures> {
        let mut ours =
            |seed, limits: Limits<'_>| native.run(Sequence::new(work, seed), target.callers, limits);
        ours(0, self.limits(WARM_UP))?;
        peer(0, self.limits(WARM_UP))?;
        let (mut rounds, limits) = (Figures::default(), self.limits(self.arguments.length.round_time()));
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

/// One connection to the first server per caller; with others, an op waits for all of them.
fn connect(servers: &[RedisServer], callers: usize) -> Result<RedisLoad> {
    let wait_for = (servers.len() > 1).then_some(servers.len() - 1);
    let server = servers[0].address();
    let connect = || RedisLoad::connect(server, callers, wait_for);
    inside(CLIENT, connect)?.map_err(BenchError::system("connect to redis"))
}
