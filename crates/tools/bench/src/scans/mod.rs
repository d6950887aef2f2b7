//! `nicekv bench scans`: scans that the switch splits at the borders of records (TurboKV §4.3), and
//! scans of everything.
//!
//! ```text
//!   over 8 pieces    keyspace of 8 records: one question, 8 answers      beside    the same keys in one record: one question, one answer
//!   of everything    NICEKV client, keys and values                      beside    one Redis server: SCAN and MGET on one connection
//!                                                                        beside    `redis-cli --scan`, and MGET
//! ```
//!
//! NICEKV's keyspaces are chains of three nodes, and the Redis server has no replica: no side has
//! fewer copies than its peer. Both sides return every key with its value, which is checked. A step
//! of SCAN returns a thousand keys, one of `redis-cli` ten, which is fixed.

mod data;
mod nicekv;
mod redis;

use self::redis::RedisScan;
use crate::cost::{self, MachineTime};
use crate::error::Result;
use crate::keyspace;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::Limits;
use crate::redis_server::{self, RedisServer, Role};
use crate::report::{Comparison, Goal, NICEKV, Report};
use crate::session::{RoundsArguments, Session, SessionArguments};
use crate::statistics::{Rounds, in_turn};
use data::{KEY_BYTES, Seen, VALUE_BYTES};
use nicekv::ScanLoad;
use nicekv_lab::topology::Host;
use nicekv_proto::KeyspaceId;
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const PEER_PORT: u16 = 6390;
const LOAD_TIMEOUT: Duration = Duration::from_secs(300);
/// Records of the scan that is split, and pieces requested at once.
const PIECES: u8 = 8;
/// Keys of the scans that are split: one per record, and as many as the paper's longest scan has.
const SPLIT_KEYS: [u32; 2] = [8, 100];
/// Records of the keyspace that is scanned as a whole.
const RECORDS: u32 = 64;
const QUICK_KEYS: u32 = 100_000;
/// Scans of everything in a round.
const WHOLE_SCANS: u32 = 2;

/// Arguments of `nicekv bench scans`.
#[derive(Clone, Debug, clap::Args)]
pub struct ScansArguments {
    /// Keys of the scan of everything; with --quick at most 100,000
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1_000..=20_000_000))]
    keys: u32,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    session: SessionArguments,
}

/// A client, and the keys that it scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scanned {
    /// The NICEKV client scans this keyspace.
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
    /// A scan of everything, whose figure is a rate of keys. That of a short scan is its time.
    fn is_whole(&self) -> bool {
        !matches!(self.sides[1], Scanned::Ours { .. })
    }
}

/// One side's result of a round.
#[derive(Clone, Copy, Debug)]
struct Turn {
    scans: u32,
    elapsed: Duration,
    busy: Duration,
}

struct Bench<'a> {
    session: &'a Session,
    rounds: u32,
    keys: u32,
    ours: ScanLoad,
    redis: RedisScan,
}

/// A keyspace of the lab, and its numbers of records and keys.
type Scannable = (KeyspaceId, u32, u32);

/// The keyspaces: for each of [`SPLIT_KEYS`] one with several records and one with a single record,
/// then the one that is scanned as a whole.
fn keyspaces(keys: u32) -> Vec<Scannable> {
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
    let session = arguments.session.start()?;
    let keys = session.few_or(arguments.keys.min(QUICK_KEYS), arguments.keys);
    let (lab, ours) = lab(keys, &session)?;
    let (_server, redis) = redis(&lab, &session)?;
    let mut bench = Bench { session: &session, rounds: arguments.rounds.rounds, keys, ours, redis };
    lab.inside(CLIENT, || bench.preload())??;
    let mut comparisons = Vec::new();
    for row in rows(keys) {
        comparisons.push(lab.inside(CLIENT, || bench.compare(&row))??);
    }
    let mut report = Report::new("scans");
    report.comparisons(&comparisons);
    session.finish(report)
}

/// A lab with all keyspaces, and a client in it.
fn lab(keys: u32, session: &Session) -> Result<(Lab, ScanLoad)> {
    let text = |(id, records, _): &Scannable| {
        let (id, replicas) = (id.0, SIZE.replicas);
        format!(
            "scanned-{id}=id={id},partitioning=range,replication=chain,replicas={replicas},partitions={records}"
        )
    };
    let keyspaces = keyspaces(keys);
    let texts: Vec<String> = keyspaces.iter().map(text).collect();
    let options: Vec<&str> = texts.iter().flat_map(|text| ["--keyspace", text]).collect();
    eprintln!("starting a lab of {} nodes, {}", SIZE.nodes, session.network.name());
    let lab = Lab::up(&LabPlan { options: &options, ..session.plan(SIZE, Engine::Memory) })?;
    let known =
        texts.iter().zip(&keyspaces).map(|(text, (_, records, _))| keyspace::known(text, SIZE, *records));
    let known = known.collect::<Result<Vec<_>>>()?;
    let ours = lab.client(CLIENT, |address| ScanLoad::bind(address, known))?;
    Ok((lab, ours))
}

/// A Redis server on a node's host, and a connection to it.
fn redis(lab: &Lab, session: &Session) -> Result<(RedisServer, RedisScan)> {
    let host = Host::Node(0);
    let address = SocketAddrV4::new(host.address(), PEER_PORT);
    let role = Role { address, primary: None, durable: false };
    let mut server = lab.inside(host, || RedisServer::start(role, session.directory()))??;
    lab.inside(CLIENT, || server.wait_until_ready(0, &session.stop))??;
    let redis = lab.client(CLIENT, |_| RedisScan::connect(address))?;
    Ok((server, redis))
}

impl<'a> Bench<'a> {
    fn preload(&mut self) -> Result<()> {
        let limits = self.limits();
        for (keyspace, _, keys) in keyspaces(self.keys) {
            eprintln!("storing {keys} keys");
            self.ours.preload(keyspace, keys, limits)?;
        }
        self.redis.preload(self.keys, self.session)
    }

    fn limits(&self) -> Limits<'a> {
        self.session.limits(LOAD_TIMEOUT)
    }

    /// Measures both sides in turn, after a round that does not count.
    fn compare(&mut self, row: &Row) -> Result<Comparison> {
        let (mut rounds, mut costs) = (Rounds::default(), Rounds::default());
        for round in 0..=self.rounds {
            let [ours, peers] = in_turn(round, |side| self.turn(row, row.sides[side]))?;
            if round == 0 {
                continue;
            }
            let (our, their) = (row.figure(ours), row.figure(peers));
            let Row { title, peer, .. } = row;
            let (total, unit) = (self.rounds, row.metric().1);
            eprintln!(
                "{title} {round}/{total}: {NICEKV} {our:.1} {unit}, {peer} {their:.1}, ratio {:.2}",
                our / their
            );
            rounds.push(our, their);
            costs.push(row.cost_us(ours), row.cost_us(peers));
        }
        let (metric, unit) = row.metric();
        Ok(Comparison {
            target: None,
            goal: Some(row.goal),
            title: row.title.into(),
            network: None,
            metric,
            unit,
            peer: row.peer,
            parameters: self.parameters(row),
            rounds,
            costs,
        })
    }

    /// Scans everything [`WHOLE_SCANS`] times, or repeats a short scan for the time of a round.
    fn turn(&mut self, row: &Row, side: Scanned) -> Result<Turn> {
        let round_time = self.session.round_time();
        let (machine, begun, mut scans) = (MachineTime::now(), Instant::now(), 0);
        let mut seen = Seen::none_of(row.keys);
        loop {
            seen.clear();
            match side {
                Scanned::Ours { keyspace, pieces } => {
                    self.ours.run(keyspace, nicekv::whole(pieces), &mut seen, self.limits())?;
                }
                Scanned::Redis => self.redis.run(redis::COUNT, &mut seen)?,
                Scanned::RedisCli => self.redis.run_by_cli(redis::COUNT, &mut seen)?,
            }
            self.session.check()?;
            scans += 1;
            let elapsed = begun.elapsed();
            if if row.is_whole() { scans == WHOLE_SCANS } else { elapsed >= round_time } {
                return Ok(Turn { scans, elapsed, busy: MachineTime::now().since(machine).busy });
            }
        }
    }

    fn parameters(&self, row: &Row) -> Value {
        let records = if row.is_whole() { RECORDS } else { PIECES.into() };
        json!({
            "row": row.title, "keys": row.keys, "key_bytes": KEY_BYTES, "value_bytes": VALUE_BYTES, "records": records,
            "nodes": SIZE.nodes, "replicas": SIZE.replicas, "replication": "chain", "engine": Engine::Memory.name(),
            "switch": self.session.network.name(), "redis_count": redis::COUNT,
            "round_seconds": self.session.round_time().as_secs_f64(),
        })
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

    /// Processor time of a key, or of a short scan, in microseconds.
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
        let keyspaces = keyspaces(5_000);
        for row in rows(5_000) {
            for side in row.sides {
                let Scanned::Ours { keyspace, pieces } = side else { continue };
                let (_, records, keys) = keyspaces.iter().find(|(id, ..)| *id == keyspace).unwrap();
                assert_eq!(*keys, row.keys, "{row:?}");
                assert!(row.is_whole() || *records == u32::from(pieces), "{row:?}");
            }
        }
    }

    #[test]
    fn a_short_scan_has_a_time_and_a_long_one_a_rate() {
        let [short, .., long] = &rows(1_000)[..] else { panic!("rows") };
        let turn = Turn { scans: 4, elapsed: Duration::from_secs(2), busy: Duration::from_secs(4) };
        assert_eq!((short.figure(turn), short.cost_us(turn)), (500_000.0, 1_000_000.0));
        assert_eq!((long.figure(turn), long.cost_us(turn)), (2_000.0, 1_000.0));
    }
}
