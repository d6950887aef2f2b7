//! `nicekv bench scans`: scans that the switch splits at the borders of records (TurboKV §4.3), and scans of everything.
//!
//! ```text
//!   over 8 pieces    keyspace of 8 records: one question, 8 answers      beside    the same keys in one record: one question, one answer
//!   of everything    our client, keys and values                         beside    one Redis server: SCAN and MGET on one connection
//!                                                                        beside    `redis-cli --scan`, and MGET
//! ```
//!
//! Ours are chains of three nodes and one Redis server has no replica, so nobody has fewer copies than its peer. Both sides tell every key with its value, which is
//! checked. Redis tells a thousand keys at a step, `redis-cli` ten: it cannot be told otherwise.

mod data;
mod ours;
mod redis;

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments, RoundsArguments};
use crate::cost::{self, MachineTime};
use crate::error::{BenchError, Result};
use crate::keyspace;
use crate::lab::{Engine, Lab, LabPlan, Network, Size};
use crate::load::Limits;
use crate::redis_server::{self, RedisServer, Role};
use crate::report::{self, Comparison, Goal};
use crate::statistics::{Rounds, in_turn};
use data::{KEY_BYTES, Seen, VALUE_BYTES};
use nicekv_lab::topology::Host;
use nicekv_proto::KeyspaceId;
use nicekv_runtime::Stop;
use ours::ScanLoad;
use redis::RedisScan;
use serde_json::{Map, Value, json};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const CLIENT: Host = Host::Client(0);
const PEER_PORT: u16 = 6390;
const LOAD_TIMEOUT: Duration = Duration::from_secs(300);
/// Records of the scan that is split, and pieces that are asked for at once.
const PIECES: u8 = 8;
/// Keys of a scan that is split: one of each record, and as many as the paper's longest scan has.
const SPLIT_KEYS: [u32; 2] = [8, 100];
/// Records of the keyspace that is scanned as a whole.
const RECORDS: u32 = 64;
const QUICK_KEYS: u32 = 100_000;
/// Scans of everything in a round.
const WHOLE_SCANS: u32 = 2;

/// Arguments of `nicekv bench scans`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScansArguments {
    /// Keys of the scan of everything; with --quick a tenth, unless told
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=20_000_000))]
    keys: u32,
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// A scan that can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scanned {
    /// Of this keyspace, whose records are so many, by our client.
    Ours {
        keyspace: KeyspaceId,
        pieces: u8,
    },
    Redis,
    RedisCli,
}

/// A row of the table: two scans of the same keys.
#[derive(Clone, Copy, Debug)]
struct Row {
    title: &'static str,
    keys: u32,
    sides: [Scanned; 2],
    peer: &'static str,
    goal: Goal,
}

impl Row {
    /// Of a whole keyspace; how fast keys come is told, instead of how long a scan takes.
    fn is_whole(&self) -> bool {
        !matches!(self.sides[1], Scanned::Ours { .. })
    }
}

/// What one side did in a round.
#[derive(Clone, Copy, Debug)]
struct Turn {
    scans: u32,
    elapsed: Duration,
    busy: Duration,
}

struct Bench<'a> {
    arguments: &'a ScansArguments,
    stop: &'a Stop,
    keys: u32,
    ours: ScanLoad,
    redis: RedisScan,
}

/// A keyspace of the lab, its records and its keys.
type Kept = (KeyspaceId, u32, u32);

/// By [`SPLIT_KEYS`] one with several records and one with one, then the one that is scanned as a whole.
fn keyspaces(keys: u32) -> Vec<Kept> {
    let split = SPLIT_KEYS.into_iter().flat_map(|keys| [(u32::from(PIECES), keys), (1, keys)]);
    let all = split.chain([(RECORDS, keys)]);
    all.enumerate().map(|(place, (records, keys))| (KeyspaceId(1 + place as u16), records, keys)).collect()
}

fn rows(keys: u32) -> Vec<Row> {
    let titles = ["scan of 8 keys, 8 pieces", "scan of 100 keys, 8 pieces"];
    let split = titles.into_iter().zip(SPLIT_KEYS).enumerate().map(|(place, (title, keys))| {
        let side = |pieces, offset| {
            let keyspace = KeyspaceId(1 + 2 * place as u16 + offset);
            Scanned::Ours { keyspace, pieces }
        };
        Row { title, keys, sides: [side(PIECES, 0), side(1, 1)], peer: "one-piece", goal: Goal::AtMost(3.0) }
    });
    let whole = [(Scanned::Redis, "redis-scan-mget"), (Scanned::RedisCli, "redis-cli-scan-mget")].map(
        |(redis, peer)| {
            let ours =
                Scanned::Ours { keyspace: KeyspaceId(1 + 2 * SPLIT_KEYS.len() as u16), pieces: PIECES };
            Row { title: "scan of everything", keys, sides: [ours, redis], peer, goal: Goal::AtLeast(5.0) }
        },
    );
    split.chain(whole).collect()
}

pub(crate) fn run(arguments: &ScansArguments) -> Result<()> {
    redis_server::installed_version()?;
    let directory = arguments.files.directory()?;
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let keys = if arguments.length.quick { arguments.keys.min(QUICK_KEYS) } else { arguments.keys };
    let network = arguments.network.network();
    let (lab, ours) = lab(keys, network, directory.path())?;
    let (_server, redis) = redis(&lab, directory.path(), &stop)?;
    let mut bench = Bench { arguments, stop: &stop, keys, ours, redis };
    bench.preload()?;
    let mut comparisons = Vec::new();
    for row in rows(keys) {
        comparisons.push(lab.inside(CLIENT, || bench.compare(&row, network))??);
    }
    print!("{}", report::table(&comparisons));
    let (lines, panels) = (report::json(&comparisons), report::panels(&comparisons));
    arguments.files.write("scans", &lines, &panels)
}

/// A lab with all keyspaces, and a client in it.
fn lab(keys: u32, network: Network, directory: &Path) -> Result<(Lab, ScanLoad)> {
    let text = |(id, records, _): &Kept| {
        let (id, replicas) = (id.0, SIZE.replicas);
        format!(
            "scanned-{id}=id={id},partitioning=range,replication=chain,replicas={replicas},partitions={records}"
        )
    };
    let kept = keyspaces(keys);
    let texts: Vec<String> = kept.iter().map(text).collect();
    let further: Vec<&str> = texts.iter().flat_map(|text| ["--keyspace", text]).collect();
    eprintln!("starting a lab of {} nodes, {}", SIZE.nodes, network.name());
    let plan = LabPlan { further: &further, ..LabPlan::new(SIZE, Engine::Memory, network, directory) };
    let lab = Lab::up(&plan)?;
    let known = texts.iter().zip(&kept).map(|(text, (_, records, _))| keyspace::known(text, SIZE, *records));
    let known = known.collect::<Result<Vec<_>>>()?;
    let bind = || ScanLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), known);
    let ours = lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
    Ok((lab, ours))
}

/// A server where a node of ours is, and a connection to it.
fn redis(lab: &Lab, directory: &Path, stop: &Stop) -> Result<(RedisServer, RedisScan)> {
    let host = Host::Node(0);
    let address = SocketAddrV4::new(host.address(), PEER_PORT);
    let role = Role { address, primary: None, durable: false };
    let mut server = lab.inside(host, || RedisServer::start(role, directory))??;
    let connect = || {
        server.wait_until_ready(0, stop)?;
        RedisScan::connect(address).map_err(BenchError::system("connect"))
    };
    let redis = lab.inside(CLIENT, connect)??;
    Ok((server, redis))
}

impl<'a> Bench<'a> {
    fn preload(&mut self) -> Result<()> {
        let limits = self.limits();
        for (keyspace, _, keys) in keyspaces(self.keys) {
            eprintln!("storing {keys} keys");
            self.ours.preload(keyspace, keys, limits)?;
        }
        self.redis.preload(self.keys, self.stop)
    }

    fn limits(&self) -> Limits<'a> {
        Limits { duration: LOAD_TIMEOUT, stop: self.stop }
    }

    /// One side after the other, and in the next round in reverse, after a round that does not count.
    fn compare(&mut self, row: &Row, network: Network) -> Result<Comparison> {
        let (mut rounds, mut costs) = (Rounds::default(), Rounds::default());
        let total = self.arguments.rounds.rounds;
        for round in 0..=total {
            let [ours, peers] = in_turn(round, |side| self.turn(row, row.sides[side]))?;
            if round == 0 {
                continue;
            }
            let (our, their) = (row.figure(ours), row.figure(peers));
            let (title, peer, ratio) = (row.title, row.peer, our / their);
            eprintln!(
                "{title} {round}/{total}: nicekv {our:.1} {}, {peer} {their:.1}, ratio {ratio:.2}",
                row.metric().1
            );
            rounds.pairs.push((our, their));
            costs.pairs.push((row.cost_us(ours), row.cost_us(peers)));
        }
        Ok(self.comparison(row, network, rounds, costs))
    }

    /// So many scans of everything, or as many short ones as there is time for.
    fn turn(&mut self, row: &Row, side: Scanned) -> Result<Turn> {
        let round_time = self.arguments.length.round_time();
        let (machine, begun, mut scans) = (MachineTime::now(), Instant::now(), 0);
        let mut seen = Seen::none_of(row.keys);
        loop {
            seen.forget();
            match side {
                Scanned::Ours { keyspace, pieces } => {
                    self.ours.run(keyspace, ours::whole(pieces), &mut seen, self.limits())?;
                }
                Scanned::Redis => self.redis.run(redis::COUNT, &mut seen)?,
                Scanned::RedisCli => self.redis.run_by_cli(redis::COUNT, &mut seen)?,
            }
            if self.stop.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            scans += 1;
            let elapsed = begun.elapsed();
            if if row.is_whole() { scans == WHOLE_SCANS } else { elapsed >= round_time } {
                return Ok(Turn { scans, elapsed, busy: MachineTime::now().since(machine).busy });
            }
        }
    }

    fn comparison(&self, row: &Row, network: Network, rounds: Rounds, costs: Rounds) -> Comparison {
        let Row { title, goal, peer, .. } = *row;
        let (metric, unit) = row.metric();
        let (bench, target, goal, title, network_name) =
            ("scans", None, Some(goal), title.into(), network.name());
        let parameters = self.parameters(row, network_name);
        let network = None;
        Comparison { bench, target, goal, title, network, metric, unit, peer, parameters, rounds, costs }
    }

    fn parameters(&self, row: &Row, network: &str) -> Map<String, Value> {
        let records = if row.is_whole() { RECORDS } else { PIECES.into() };
        let parameters = json!({
            "row": row.title, "keys": row.keys, "key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "records": records,
            "nodes": SIZE.nodes, "replicas": SIZE.replicas, "replication": "chain", "engine": Engine::Memory.name(),
            "switch": network, "redis_count": redis::COUNT,
            "round_seconds": self.arguments.length.round_time().as_secs_f64(),
        });
        parameters.as_object().cloned().unwrap_or_default()
    }
}

impl Row {
    fn metric(&self) -> (&'static str, &'static str) {
        if self.is_whole() { ("throughput", "key/s") } else { ("mean_time", "us") }
    }

    fn figure(&self, turn: Turn) -> f64 {
        let seconds = turn.elapsed.as_secs_f64() / f64::from(turn.scans);
        if self.is_whole() { f64::from(self.keys) / seconds } else { seconds * 1e6 }
    }

    /// Microseconds of processor time of a key, or of a short scan.
    fn cost_us(&self, turn: Turn) -> f64 {
        let scan_us = turn.busy.max(cost::TICK).as_secs_f64() * 1e6 / f64::from(turn.scans);
        if self.is_whole() { scan_us / f64::from(self.keys) } else { scan_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_of_a_row_scan_as_many_keys() {
        let kept = keyspaces(5_000);
        for row in rows(5_000) {
            for side in row.sides {
                let Scanned::Ours { keyspace, pieces } = side else { continue };
                let (_, records, keys) = kept.iter().find(|(id, ..)| *id == keyspace).unwrap();
                assert_eq!(*keys, row.keys, "{row:?}");
                assert!(row.is_whole() || *records == u32::from(pieces), "{row:?}");
            }
        }
    }

    #[test]
    fn a_short_scan_is_told_as_time_and_a_long_one_as_rate() {
        let [short, .., long] = &rows(1_000)[..] else { panic!("rows") };
        let turn = Turn { scans: 4, elapsed: Duration::from_secs(2), busy: Duration::from_secs(4) };
        assert_eq!((short.figure(turn), short.cost_us(turn)), (500_000.0, 1_000_000.0));
        assert_eq!((long.figure(turn), long.cost_us(turn)), (2_000.0, 1_000.0));
    }
}
