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

use crate::arguments::{FileArguments, LengthArguments};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, Size, inside};
use crate::load::redis::RedisLoad;
use crate::load::{Limits, Measured};
use crate::redis_server::{self, RedisServer, Role};
use crate::report::{self, Comparison, Goal};
use crate::statistics::{ROUNDS_MIN, Rounds};
use crate::workload::{KEYS, Sequence, VALUE_BYTES, Work};
use nicekv_lab::Hook;
use nicekv_lab::topology::{Host, RESP};
use nicekv_runtime::Stop;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const NODES: u8 = 3;
const CLIENT: Host = Host::Client(0);
const CONNECTIONS: usize = 50;
/// Where the peers listen.
const PEER_PORT: u16 = 6390;
/// What the first run is sized by, before anything is known.
const TRIAL_OPERATIONS: u64 = 5_000;
const WARM_UP: Duration = Duration::from_millis(300);

/// Arguments of `nicekv bench redis-benchmark`.
#[derive(Clone, Debug, clap::Args)]
pub struct RedisBenchmarkArguments {
    /// In a lab, from client-0, instead of `nicekv up` on loopback; needs root
    #[arg(long)]
    lab: bool,
    #[command(flatten)]
    length: LengthArguments,
    /// Rounds of each comparison
    #[arg(long, default_value_t = ROUNDS_MIN, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..))]
    rounds: u32,
    #[command(flatten)]
    files: FileArguments,
}

/// Who drives a row, and so what its peer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    /// `redis-benchmark -t` this; the peer is one server.
    Benchmark(&'static str),
    /// Our load; the peer has two replicas, and waits for them.
    Own,
}

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    title: &'static str,
    driver: Driver,
    pipeline: usize,
    /// Keys that are used; 1: the same always.
    keys: u32,
    goal: [Option<Goal>; 2],
}

const fn row(title: &'static str, driver: Driver, pipeline: usize, keys: u32) -> Row {
    Row { title, driver, pipeline, keys, goal: [None, None] }
}

/// Goals: with the memory engine, and with the durable one.
const ROWS: [Row; 9] = [
    Row { goal: [Some(Goal::AtLeast(1.0)), None], ..row("GET -c 50", Driver::Benchmark("get"), 1, KEYS) },
    Row {
        goal: [Some(Goal::AtLeast(0.5)), None],
        ..row("GET -c 50 -P 16", Driver::Benchmark("get"), 16, KEYS)
    },
    row("SET -c 50", Driver::Benchmark("set"), 1, KEYS),
    row("SET -c 50 -P 16", Driver::Benchmark("set"), 16, KEYS),
    row("INCR -c 50, one key", Driver::Benchmark("incr"), 1, 1),
    row("INCR -c 50, many keys", Driver::Benchmark("incr"), 1, KEYS),
    row("INCR -c 50 -P 16, many keys", Driver::Benchmark("incr"), 16, KEYS),
    Row { goal: [None, Some(Goal::AtLeast(1.0))], ..row("SET, 50 connections", Driver::Own, 1, KEYS) },
    row("SET, 50 connections, 16 at once", Driver::Own, 16, KEYS),
];

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
        let store = Store::up(arguments.lab, engine, directory.path())?;
        for row in &ROWS {
            comparisons.push(bench.compare(row, engine, &store)?);
        }
        drop(store);
    }
    print!("{}", report::table(&comparisons));
    print!("{}", one_key_beside_many(&comparisons));
    arguments.files.write_json(&report::json(&comparisons))
}

/// NICEKV with its gateway.
enum Store {
    Up(Child, SocketAddrV4),
    Lab(#[allow(dead_code, reason = "removed when it is dropped")] Lab),
}

impl Store {
    fn up(in_lab: bool, engine: Engine, directory: &Path) -> Result<Self> {
        if in_lab {
            return Lab::up(
                Size { nodes: NODES, replicas: NODES },
                engine,
                Hook::default(),
                &directory.join("lab"),
            )
            .map(Self::Lab);
        }
        let program = std::env::current_exe().map_err(BenchError::system("find the executable"))?;
        let mut command = Command::new(program);
        command.args(["up", "--engine", engine.name(), "--resp", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(directory.join(format!("up-{}", engine.name())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(BenchError::system("start `nicekv up`"))?;
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(std::io::Result::ok).find(|line| line.starts_with("ready "));
        let address = ready.as_deref().and_then(|line| {
            line.split(' ')
                .find_map(|word| word.strip_prefix("resp="))
                .and_then(|address| address.parse().ok())
        });
        let failed = || BenchError::Failed("`nicekv up` did not get ready".into());
        match address {
            Some(address) => Ok(Self::Up(child, address)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failed())
            }
        }
    }

    fn address(&self) -> SocketAddrV4 {
        match self {
            Self::Up(_, address) => *address,
            Self::Lab(_) => RESP,
        }
    }

    /// Runs where the load comes from.
    fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        match self {
            Self::Up(..) => Ok(work()),
            Self::Lab(_) => inside(CLIENT, work),
        }
    }

    /// A Redis server where a node of ours would be.
    fn start_redis(&self, index: u8, engine: Engine, directory: &Path) -> Result<RedisServer> {
        let address = |index: u8| match self {
            Self::Up(..) => SocketAddrV4::new(Ipv4Addr::LOCALHOST, PEER_PORT + u16::from(index)),
            Self::Lab(_) => SocketAddrV4::new(Host::Node(index).address(), PEER_PORT),
        };
        let primary = (index > 0).then(|| address(0));
        let role = Role { address: address(index), primary, durable: engine == Engine::Durable };
        match self {
            Self::Up(..) => RedisServer::start(role, directory),
            Self::Lab(_) => inside(Host::Node(index), || RedisServer::start(role, directory))?,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Self::Up(child, _) = self {
            // It may have ended already, and there is nobody to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Bench<'_> {
    fn compare(&self, row: &Row, engine: Engine, store: &Store) -> Result<Comparison> {
        let replicas = if row.driver == Driver::Own { NODES - 1 } else { 0 };
        let start = |index| store.start_redis(index, engine, self.directory);
        let mut servers = (0..=replicas).map(start).collect::<Result<Vec<_>>>()?;
        store.at_client(|| servers[0].wait_until_ready(replicas.into(), self.stop))??;
        let addresses = [store.address(), servers[0].address()];
        let (mut rounds, mut costs) = (Rounds::default(), Rounds::default());
        let mut known = [TRIAL_OPERATIONS as f64; 2];
        for round in 0..=self.arguments.rounds {
            let mut figures = [(0.0, 0.0); 2];
            for side in if round % 2 == 1 { [0, 1] } else { [1, 0] } {
                let duration = if round == 0 { WARM_UP } else { self.arguments.length.round_time() };
                let wait_for = (side == 1 && replicas > 0).then_some(usize::from(replicas));
                let measured = self.load(row, store, addresses[side], wait_for, (known[side], duration))?;
                known[side] = measured.throughput();
                figures[side] = (measured.throughput(), measured.cost_us());
            }
            // The first one has only shown how much is to be asked.
            if round > 0 {
                rounds.pairs.push((figures[0].0, figures[1].0));
                costs.pairs.push((figures[0].1, figures[1].1));
                eprintln!(
                    "{} ({}) {round}: nicekv {:.0} op/s, redis {:.0}",
                    row.title,
                    engine.name(),
                    figures[0].0,
                    figures[1].0
                );
            }
        }
        Ok(self.comparison(row, engine, rounds, costs))
    }

    /// One run, of about `duration` if the rate is about as `known`.
    fn load(
        &self,
        row: &Row,
        store: &Store,
        address: SocketAddrV4,
        wait_for: Option<usize>,
        (known, duration): (f64, Duration),
    ) -> Result<Measured> {
        let Driver::Benchmark(name) = row.driver else {
            let limits = Limits { duration, stop: self.stop };
            let work = || -> Result<Measured> {
                let load = RedisLoad::connect(address, CONNECTIONS, wait_for);
                let mut load = load.map_err(BenchError::system("connect"))?.pipelined(row.pipeline);
                load.run(Sequence::new(Work::Put, 1), limits)
            };
            return store.at_client(work)?;
        };
        let operations = ((known * duration.as_secs_f64()) as u64).max(TRIAL_OPERATIONS);
        let mut arguments: Vec<String> = vec!["-c".into(), CONNECTIONS.to_string()];
        arguments.extend(["-P".into(), row.pipeline.to_string(), "-n".into(), operations.to_string()]);
        arguments.extend(["-d".into(), VALUE_BYTES.to_string()]);
        if row.keys > 1 {
            arguments.extend(["-r".into(), row.keys.to_string()]);
        }
        let before = MachineTime::now();
        let rate = store.at_client(|| redis_server::benchmark(address, name, &arguments))??;
        let rate = rate.ok_or_else(|| {
            BenchError::Environment("redis-benchmark is not installed: `apt install redis-tools`".into())
        })?;
        if self.stop.is_stopped() {
            return Err(BenchError::Interrupted);
        }
        Ok(Measured::at_rate(operations, rate, before))
    }

    fn comparison(&self, row: &Row, engine: Engine, rounds: Rounds, costs: Rounds) -> Comparison {
        let durable = engine == Engine::Durable;
        let peer = match (row.driver, durable) {
            (Driver::Own, false) => "redis-wait-2",
            (Driver::Own, true) => "redis-always-wait-2",
            (Driver::Benchmark(_), false) => "redis-alone",
            (Driver::Benchmark(_), true) => "redis-alone-always",
        };
        let parameters = json!({
            "row": row.title, "place": if self.arguments.lab { "lab" } else { "up" }, "engine": engine.name(),
            "connections": CONNECTIONS, "pipeline": row.pipeline, "keys": row.keys, "value_bytes": VALUE_BYTES,
            "nodes": NODES, "replicas": NODES, "load": if row.driver == Driver::Own { "own" } else { "redis-benchmark" },
            "round_seconds": self.arguments.length.round_time().as_secs_f64(),
        });
        let parameters: Map<String, Value> = parameters.as_object().cloned().unwrap_or_default();
        let (metric, unit) = ("throughput", "op/s");
        let goal = row.goal[usize::from(durable)];
        Comparison {
            bench: "redis-benchmark",
            target: Some(engine.name()),
            goal,
            title: row.title,
            metric,
            unit,
            peer,
            parameters,
            rounds,
            costs,
        }
    }
}

/// How much a hot counter costs.
fn one_key_beside_many(comparisons: &[Comparison]) -> String {
    let rates = |title: &str| -> Vec<f64> {
        let rows = comparisons.iter().filter(|comparison| comparison.title == title);
        rows.map(|comparison| comparison.rounds.ours().median).collect()
    };
    let pairs = rates("INCR -c 50, one key").into_iter().zip(rates("INCR -c 50, many keys"));
    let line = |((one, many), engine): ((f64, f64), &str)| {
        format!("INCR of one key ÷ of many, {engine}: {:.2}, target ≥ 0.5\n", one / many)
    };
    pairs.zip(["memory", "durable"]).map(line).collect()
}
