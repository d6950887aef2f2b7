//! `nicekv bench redis-benchmark`: the first measurement of a Redis user.
//!
//! ```text
//!   redis-benchmark  ─▶ `nicekv up`, or the gateway of a lab's client-0     beside    one Redis server, without replicas
//!   own RESP load    ─▶ the same                                            beside    Redis with two replicas: SET, then WAIT 2
//! ```
//!
//! `redis-benchmark` cannot wait for replicas: rows against WAIT 2 use the bench's own load
//! generator on both sides, with as many connections. With `-P 16` Redis gets one WAIT for sixteen
//! SETs, which is to its advantage. Rows against one Redis compare copies on three nodes with a
//! single copy. Durable: Redis syncs each write (`appendfsync always`).

mod store;

use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::Engine;
use crate::load::Measured;
use crate::load::native::{PRELOAD_TIMEOUT, WARM_UP};
use crate::load::redis::RedisLoad;
use crate::redis_server;
use crate::report::{Comparison, Goal, Report};
use crate::session::{RoundsArguments, Session, SessionArguments};
use crate::statistics::{Rounds, in_turn};
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::time::Duration;
use store::Store;

const NODES: u8 = 3;
const CONNECTIONS: usize = 50;
/// First port of the peers.
const PEER_PORT: u16 = 6390;
/// Ops of the first run, before the rate is known; later the least.
const TRIAL_OPERATIONS: u64 = 5_000;

/// Arguments of `nicekv bench redis-benchmark`.
#[derive(Clone, Debug, clap::Args)]
pub struct RedisBenchmarkArguments {
    /// In a lab, from client-0, instead of `nicekv up` on loopback; needs root
    #[arg(long)]
    lab: bool,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    session: SessionArguments,
}

/// The load generator of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// `redis-benchmark -t` this.
    Benchmark(&'static str),
    /// The bench's own: SETs, and a WAIT after those sent at once.
    Own,
}

/// The system that a row compares NICEKV with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// One Redis.
    Alone,
    /// A Redis that waits for two replicas.
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
    /// Number of keys; 1: always the same key.
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

/// One of the two sides.
struct Side {
    address: SocketAddrV4,
    keys: u32,
    /// Replicas that a SET waits for.
    wait_for: Option<usize>,
    /// Its last rate, by which the length of the next run is chosen.
    rate: f64,
}

struct Bench<'a> {
    arguments: &'a RedisBenchmarkArguments,
    session: Session,
}

pub(crate) fn run(arguments: &RedisBenchmarkArguments) -> Result<()> {
    redis_server::installed_version()?;
    let bench = Bench { arguments, session: arguments.session.start()? };
    let mut comparisons = Vec::new();
    for engine in [Engine::Memory, Engine::Durable] {
        let store = Store::up(&bench.session, arguments.lab, engine)?;
        for row in &ROWS {
            comparisons.push(bench.compare(row, engine, &store)?);
        }
    }
    let mut report = Report::new("redis-benchmark");
    report.comparisons(&comparisons);
    bench.session.finish(report)
}

impl Bench<'_> {
    fn compare(&self, row: &Row, engine: Engine, store: &Store) -> Result<Comparison> {
        let servers = match row.peer {
            Peer::Alone => 1,
            Peer::Waiting => NODES,
            Peer::ManyKeys => 0,
        };
        let start = |index| store.start_redis(index, engine, self.session.directory());
        let mut servers = (0..servers).map(start).collect::<Result<Vec<_>>>()?;
        let replicas = servers.len().saturating_sub(1);
        if let Some(server) = servers.first_mut() {
            store.at_client(|| server.wait_until_ready(replicas, &self.session.stop))??;
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

    /// Stores the keys of gets, under the names that `redis-benchmark -r` gives them.
    fn preload(&self, store: &Store, address: SocketAddrV4) -> Result<()> {
        let limits = self.session.limits(PRELOAD_TIMEOUT);
        let load = || -> Result<Measured> {
            let load = RedisLoad::connect(address, CONNECTIONS, None);
            let mut load = load.map_err(BenchError::system("connect"))?.pipelined(16);
            load.run(Sequence::new(Work::Preload, 0), limits)
        };
        store.at_client(load)?.map(|_| ())
    }

    /// Measures both sides in turn. The first round only measures their rates.
    fn alternate(
        &self,
        row: &Row,
        engine: Engine,
        store: &Store,
        mut sides: [Side; 2],
    ) -> Result<Comparison> {
        let (mut rounds, mut costs) = (Rounds::default(), Rounds::default());
        let (total, peer) = (self.arguments.rounds.rounds, row.peer_name(engine));
        let title = format!("{}, {}", row.title, engine.name());
        for round in 0..=total {
            let duration = if round == 0 { WARM_UP } else { self.session.round_time() };
            let [ours, peers] = in_turn(round, |side| -> Result<Measured> {
                let measured = self.load(row, store, &sides[side], duration)?;
                sides[side].rate = measured.throughput();
                Ok(measured)
            })?;
            if round > 0 {
                let (our, their) = (ours.throughput(), peers.throughput());
                rounds.push(our, their);
                costs.push(ours.cost_us(), peers.cost_us());
                eprintln!(
                    "{title} {round}/{total}: nicekv {our:.0} op/s, {peer} {their:.0}, ratio {:.2}",
                    our / their
                );
            }
        }
        Ok(Comparison {
            target: None,
            goal: row.goals[usize::from(engine == Engine::Durable)],
            title,
            network: None,
            metric: "throughput",
            unit: "op/s",
            peer,
            parameters: self.parameters(row, engine),
            rounds,
            costs,
        })
    }

    /// Runs the load of a row, for about `duration` if the rate is about the last one.
    fn load(&self, row: &Row, store: &Store, side: &Side, duration: Duration) -> Result<Measured> {
        let Driver::Benchmark(name) = row.driver else {
            let limits = self.session.limits(duration);
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
        self.session.check()?;
        Ok(Measured::at_rate(operations, rate, before))
    }

    fn parameters(&self, row: &Row, engine: Engine) -> Value {
        json!({
            "row": row.title, "place": if self.arguments.lab { "lab" } else { "up" }, "engine": engine.name(),
            "connections": CONNECTIONS, "pipeline": row.pipeline, "keys": row.keys, "value_bytes": VALUE_BYTES,
            "nodes": NODES, "replicas": NODES, "load": if row.driver == Driver::Own { "own" } else { "redis-benchmark" },
            "round_seconds": self.session.round_time().as_secs_f64(),
        })
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
