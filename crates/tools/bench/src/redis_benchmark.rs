//! `nicekv bench redis-benchmark`: what a Redis user measures first.
//!
//! ```text
//!   redis-benchmark  ─▶ `nicekv up`, or the gateway of a lab's client-0     beside    one Redis server, without replicas
//!   our RESP load    ─▶ the same                                            beside    Redis with two replicas: SET, then WAIT 2
//! ```
//!
//! `redis-benchmark` cannot wait for replicas: a row against WAIT 2 is driven by the same load generator of ours on both sides, with as
//! many connections, and with `-P 16` Redis gets one WAIT for the sixteen SETs, which is to its advantage. A row against one Redis
//! compares copies on three nodes with a single one, and is there for honesty. Durable: Redis syncs each write (`appendfsync always`).

mod store;

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments, RoundsArguments};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::Engine;
use crate::load::redis::RedisLoad;
use crate::load::{Limits, Measured};
use crate::redis_server;
use crate::report::{self, Comparison, Goal};
use crate::statistics::Rounds;
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use serde_json::{Map, Value, json};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;
use store::Store;

const NODES: u8 = 3;
const CLIENT: Host = Host::Client(0);
const CONNECTIONS: usize = 50;
/// Where the peers listen.
const PEER_PORT: u16 = 6390;
/// What the first run is sized by, before anything is known.
const TRIAL_OPERATIONS: u64 = 5_000;
const WARM_UP: Duration = Duration::from_millis(300);
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `nicekv bench redis-benchmark`.
#[derive(Clone, Debug, clap::Args)]
pub struct RedisBenchmarkArguments {
    /// In a lab, from client-0, instead of `nicekv up` on loopback; needs root
    #[arg(long)]
    lab: bool,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// Who drives a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// `redis-benchmark -t` this.
    Benchmark(&'static str),
    /// Our load: SETs, and a WAIT after those that are sent at once.
    Own,
}

/// What a row is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// One Redis.
    Alone,
    /// A Redis with two replicas, for which it waits.
    Waiting,
    /// NICEKV itself, with many keys.
    ManyKeys,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    title: &'static str,
    driver: Driver,
    peer: Peer,
    pipeline: usize,
    /// Keys that are used; 1: the same always.
    keys: u32,
    /// With the memory engine, and with the durable one.
    goals: [Option<Goal>; 2],
}

const fn beside_one(title: &'static str, name: &'static str, pipeline: usize, keys: u32) -> Row {
    Row { title, driver: Driver::Benchmark(name), peer: Peer::Alone, pipeline, keys, goals: [None; 2] }
}

const fn beside_three(title: &'static str, pipeline: usize) -> Row {
    Row { title, driver: Driver::Own, peer: Peer::Waiting, pipeline, keys: KEYS, goals: [None; 2] }
}

const ROWS: [Row; 10] = [
    Row { goals: [Some(Goal::AtLeast(1.0)); 2], ..beside_one("GET -c 50", "get", 1, KEYS) },
    Row { goals: [Some(Goal::AtLeast(0.5)); 2], ..beside_one("GET -c 50 -P 16", "get", 16, KEYS) },
    beside_one("SET -c 50", "set", 1, KEYS),
    beside_one("SET -c 50 -P 16", "set", 16, KEYS),
    Row { goals: [None, Some(Goal::AtLeast(1.0))], ..beside_three("SET, 50 connections", 1) },
    beside_three("SET, 50 connections, 16 at once", 16),
    beside_one("INCR -c 50, one key", "incr", 1, 1),
    beside_one("INCR -c 50, many keys", "incr", 1, KEYS),
    Row {
        peer: Peer::ManyKeys,
        goals: [Some(Goal::AtLeast(0.5)); 2],
        ..beside_one("INCR -c 50, one key beside many", "incr", 1, 1)
    },
    beside_one("INCR -c 50 -P 16, many keys", "incr", 16, KEYS),
];

/// One of the two that are compared.
struct Side {
    address: SocketAddrV4,
    keys: u32,
    /// Replicas that a SET is to wait for.
    wait_for: Option<usize>,
    /// Its rate as far as it is known, from which follows how much is asked of it.
    rate: f64,
}

struct Bench<'a> {
    arguments: &'a RedisBenchmarkArguments,
    directory: &'a Path,
    stop: &'a Stop,
}

pub(crate) fn run(arguments: &RedisBenchmarkArguments) -> Result<()> {
    redis_server::installed_version()?;
    let directory = arguments.files.directory()?;
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let bench = Bench { arguments, directory: directory.path(), stop: &stop };
    let mut comparisons = Vec::new();
    for engine in [Engine::Memory, Engine::Durable] {
        let network = arguments.lab.then(|| arguments.network.network());
        let store = Store::up(network, engine, directory.path())?;
        for row in &ROWS {
            comparisons.push(bench.compare(row, engine, &store)?);
        }
        drop(store);
    }
    print!("{}", report::table(&comparisons));
    let (lines, panels) = (report::json(&comparisons), report::panels(&comparisons));
    arguments.files.write("redis-benchmark", &lines, &panels)
}

impl Bench<'_> {
    fn compare(&self, row: &Row, engine: Engine, store: &Store) -> Result<Comparison> {
        let servers = match row.peer {
            Peer::Alone => 1,
            Peer::Waiting => NODES,
            Peer::ManyKeys => 0,
        };
        let start = |index| store.start_redis(index, engine, self.directory);
        let mut servers = (0..servers).map(start).collect::<Result<Vec<_>>>()?;
        let replicas = servers.len().saturating_sub(1);
        if let Some(server) = servers.first_mut() {
            store.at_client(|| server.wait_until_ready(replicas, self.stop))??;
        }
        let side = |address, keys, wait_for| Side { address, keys, wait_for, rate: TRIAL_OPERATIONS as f64 };
        let ours = side(store.address(), row.keys, None);
        let peer = match servers.first() {
            Some(server) => side(server.address(), row.keys, (replicas > 0).then_some(replicas)),
            None => side(store.address(), KEYS, None),
        };
        let sides = [ours, peer];
        if row.driver == Driver::Benchmark("get") {
            sides.iter().try_for_each(|side| self.preload(store, side.address))?;
        }
        self.alternate(row, engine, store, sides)
    }

    /// What is got must be there, under the names that `redis-benchmark -r` gives.
    fn preload(&self, store: &Store, address: SocketAddrV4) -> Result<()> {
        let limits = Limits { duration: PRELOAD_TIMEOUT, stop: self.stop };
        let load = || -> Result<Measured> {
            let load = RedisLoad::connect(address, CONNECTIONS, None);
            let mut load = load.map_err(BenchError::system("connect"))?.pipelined(16);
            load.run(Sequence::new(Work::Preload, 0), limits)
        };
        store.at_client(load)?.map(|_| ())
    }

    /// One side after the other, and in the next round in reverse.
    fn alternate(
        &self,
        row: &Row,
        engine: Engine,
        store: &Store,
        mut sides: [Side; 2],
    ) -> Result<Comparison> {
        let (mut rounds, mut costs) = (Rounds::default(), Rounds::default());
        for round in 0..=self.arguments.rounds.rounds {
            let mut figures = [(0.0, 0.0); 2];
            for index in if round % 2 == 1 { [0, 1] } else { [1, 0] } {
                let duration = if round == 0 { WARM_UP } else { self.round_time() };
                let measured = self.load(row, store, &sides[index], duration)?;
                sides[index].rate = measured.throughput();
                figures[index] = (measured.throughput(), measured.cost_us());
            }
            // The first one has only shown how much is to be asked.
            if round > 0 {
                let [ours, peers] = figures;
                rounds.pairs.push((ours.0, peers.0));
                costs.pairs.push((ours.1, peers.1));
                let (title, engine, peer) = (row.title, engine.name(), row.peer_name(engine));
                let total = self.arguments.rounds.rounds;
                eprintln!(
                    "{title}, {engine} {round}/{total}: nicekv {:.0} op/s, {peer} {:.0}, ratio {:.2}",
                    ours.0,
                    peers.0,
                    ours.0 / peers.0
                );
            }
        }
        Ok(self.comparison(row, engine, rounds, costs))
    }

    /// One run, of about `duration` if the rate is about as it was.
    fn load(&self, row: &Row, store: &Store, side: &Side, duration: Duration) -> Result<Measured> {
        let Driver::Benchmark(name) = row.driver else {
            let limits = Limits { duration, stop: self.stop };
            let work = || -> Result<Measured> {
                let load = RedisLoad::connect(side.address, CONNECTIONS, side.wait_for);
                let mut load = load.map_err(BenchError::system("connect"))?.pipelined(row.pipeline);
                load.run(Sequence::new(Work::Put, 1), limits)
            };
            return store.at_client(work)?;
        };
        let operations = ((side.rate * duration.as_secs_f64()) as u64).max(TRIAL_OPERATIONS);
        let options = redis_server::options(CONNECTIONS, row.pipeline, side.keys);
        let before = MachineTime::now();
        let rate =
            store.at_client(|| redis_server::benchmark(side.address, name, operations, &options))??;
        let rate = rate.ok_or_else(|| {
            BenchError::Environment("redis-benchmark is not installed: `apt install redis-tools`".into())
        })?;
        if self.stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        Ok(Measured::at_rate(operations, rate, before))
    }

    fn round_time(&self) -> Duration {
        self.arguments.length.round_time()
    }

    fn comparison(&self, row: &Row, engine: Engine, rounds: Rounds, costs: Rounds) -> Comparison {
        let parameters = json!({
            "row": row.title, "place": if self.arguments.lab { "lab" } else { "up" }, "engine": engine.name(),
            "connections": CONNECTIONS, "pipeline": row.pipeline, "keys": row.keys, "value_bytes": VALUE_BYTES,
            "nodes": NODES, "replicas": NODES, "load": if row.driver == Driver::Own { "own" } else { "redis-benchmark" },
            "round_seconds": self.round_time().as_secs_f64(),
        });
        let parameters: Map<String, Value> = parameters.as_object().cloned().unwrap_or_default();
        let (bench, metric, unit) = ("redis-benchmark", "throughput", "op/s");
        let (goal, peer) = (row.goals[usize::from(engine == Engine::Durable)], row.peer_name(engine));
        let title = format!("{}, {}", row.title, engine.name());
        Comparison {
            bench,
            target: None,
            goal,
            title,
            network: None,
            metric,
            unit,
            peer,
            parameters,
            rounds,
            costs,
        }
    }
}

impl Row {
    fn peer_name(&self, engine: Engine) -> &'static str {
        match (self.peer, engine) {
            (Peer::Alone, Engine::Memory) => "redis-alone",
            (Peer::Alone, Engine::Durable) => "redis-alone-always",
            (Peer::Waiting, Engine::Memory) => "redis-wait-2",
            (Peer::Waiting, Engine::Durable) => "redis-always-wait-2",
            (Peer::ManyKeys, _) => "nicekv-many-keys",
        }
    }
}
