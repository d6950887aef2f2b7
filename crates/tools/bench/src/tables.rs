//! `nicekv bench tables`: whether a switch in the kernel is as fast with every table full as with next to nothing in them.
//!
//! ```text
//!   client ══ port ─▶ pipeline ─▶ one of 255 ports ══ node          with one entry in each ring,  then
//!   64 addresses, random vnodes                                     4,096 + 16,384 + 4,096 entries, 1,024 groups, 255 servers
//!                                                                   and of a keyspace by range: 1 record, then 10,240 beside all that; 1, then 4,096 of one node
//!                                                                   and of a keyspace that does not spread its hot keys, then does: gets of 10,000 hot keys, of others
//! ```
//!
//! There is no cluster: namespaces, cables, the programs and their loader. A thread sends as fast as it can, each datagram goes the whole way in
//! its system call, and what is counted is what the pipeline has routed. How long the programs themselves take, the kernel tells; that is
//! measured by itself, since the kernel's clock costs as much as a lookup.

pub(crate) mod cables;
mod fill;

use crate::arguments::{FileArguments, LengthArguments, RoundsArguments};
use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::report::{self, Comparison, Goal};
use crate::statistics::{Rounds, in_turn};
use cables::{Cables, NODES};
use fill::Fill;
use nicekv_proto::placement::key_digest;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Condition, Get, KeyDigest, KeyspaceId, OpId, Operation, Update};
use nicekv_runtime::Stop;
use nicekv_switch::{Backend as _, BackendError, Counter, HOT_CAPACITY, Table, VNODES, VringConfig};
use nicekv_switch_xdp::{Hook, KernelSwitch};
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// With full tables the rate is to be so much of that with empty ones, and with hot keys of that without.
const KEPT_MIN: f64 = 0.9;
/// Of a round's time so much is for what the programs take by themselves.
const PROGRAM_PART: u32 = 4;
/// Datagrams between two looks at the clock.
const BURST: usize = 256;
/// Destinations and sources in turn, more than any table has entries.
const WAYS: usize = 1 << 15;
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

/// Arguments of `nicekv bench tables`.
#[derive(Clone, Debug, clap::Args)]
pub struct TablesArguments {
    #[command(flatten)]
    length: LengthArguments,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Put,
    /// Of keyspaces by range.
    RecordGet,
    RecordPut,
    /// The same where one node has all records.
    PlainRecordGet,
    PlainRecordPut,
    /// Of a key with a hot entry.
    HotGet,
    /// Of a key without one, which is counted in the HashPipe.
    CandidateGet,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Get,
        Self::Put,
        Self::RecordGet,
        Self::RecordPut,
        Self::PlainRecordGet,
        Self::PlainRecordPut,
        Self::HotGet,
        Self::CandidateGet,
    ];

    /// Next to nothing, and everything.
    fn fills(self) -> [Fill; 2] {
        match self {
            Self::Get | Self::Put => [Fill::Empty, Fill::Full],
            Self::RecordGet | Self::RecordPut => [Fill::OneRecord, Fill::Records],
            Self::PlainRecordGet | Self::PlainRecordPut => [Fill::OneRecord, Fill::RecordsOnly],
            Self::HotGet | Self::CandidateGet => [Fill::Empty, Fill::Hot],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Get => "get, tables full",
            Self::Put => "put to three, tables full",
            Self::RecordGet => "get by record, tables full",
            Self::RecordPut => "put by record to three, tables full",
            Self::PlainRecordGet => "get, 4,096 records",
            Self::PlainRecordPut => "put to three, 4,096 records",
            Self::HotGet => "get, 10,000 hot keys",
            Self::CandidateGet => "get, none of 10,000 hot keys",
        }
    }

    fn is_of_hot_keys(self) -> bool {
        matches!(self, Self::HotGet | Self::CandidateGet)
    }

    /// What it is compared with.
    fn peer(self) -> &'static str {
        match self {
            Self::PlainRecordGet | Self::PlainRecordPut => "1 record",
            Self::HotGet | Self::CandidateGet => "no hot keys",
            _ => "empty tables",
        }
    }

    fn table(self) -> Table {
        match self {
            Self::Get | Self::HotGet | Self::CandidateGet => Table::Unicast,
            Self::Put => Table::Multicast,
            Self::RecordGet | Self::RecordPut | Self::PlainRecordGet | Self::PlainRecordPut => Table::Record,
        }
    }

    /// The base of its ring.
    fn ring(self) -> Ipv4Addr {
        let ring = match self {
            Self::Get | Self::HotGet | Self::CandidateGet => VringConfig::DEFAULT.unicast,
            Self::Put => VringConfig::DEFAULT.multicast,
            Self::RecordGet | Self::PlainRecordGet => fill::RECORDS.unicast,
            Self::RecordPut | Self::PlainRecordPut => fill::RECORDS.multicast,
        };
        Ipv4Addr::from(ring.first())
    }

    /// Of a keyspace by range: in this part of all values.
    fn datagram(self, vnode: u16) -> Vec<u8> {
        let (key, op) = (b"key".as_slice(), OpId { client: ClientId(1), sequence: 1 });
        let (keyspace, digest) = match self {
            Self::Get | Self::Put => (KeyspaceId::DEFAULT, key_digest(key)),
            Self::HotGet => (KeyspaceId::DEFAULT, fill::hot_digest(vnode.into())),
            Self::CandidateGet => (KeyspaceId::DEFAULT, fill::hot_digest(usize::from(vnode) + VNODES)),
            _ => {
                let value = u128::from(vnode) << 112 | key_digest(key).match_value() >> 16;
                (fill::KEYSPACE, KeyDigest::of_match_value(value))
            }
        };
        let reply_to = None;
        let mut bytes = Vec::new();
        match self {
            Self::Get | Self::RecordGet | Self::PlainRecordGet | Self::HotGet | Self::CandidateGet => {
                Get { keyspace, op, digest, reply_to, forwarded: None, key, padding: 0 }.encode(&mut bytes);
                if self.is_of_hot_keys() {
                    leave_room_for_stamp(&mut bytes);
                }
            }
            Self::Put | Self::RecordPut | Self::PlainRecordPut => {
                let (watermark, condition, return_old) = (0, Condition::Always, false);
                let operation = Operation::Delete;
                Update { keyspace, op, digest, reply_to, watermark, condition, return_old, operation, key }
                    .encode(&mut bytes);
            }
        }
        bytes
    }
}

/// What was measured at one hook, of one kind: full and empty.
#[derive(Default)]
struct Figures {
    /// Packets a second.
    rates: Rounds,
    /// Microseconds of processor time for each, of the whole machine.
    costs: Rounds,
    /// Nanoseconds in the program.
    program: Rounds,
}

/// A switch of its own, and who sends to it.
struct Bed {
    hook: Hook,
    switch: KernelSwitch,
    clients: Vec<UdpSocket>,
    /// Of hot entries, so far.
    instances: u64,
    /// Declared last: the namespaces outlive what works in them.
    cables: Cables,
}

pub(crate) fn run(arguments: &TablesArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    // The thread changes its namespace, and is not to keep it.
    let figures = std::thread::scope(|scope| {
        let measured = scope.spawn(|| measure_all(arguments, &stop)).join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let comparisons = comparisons(arguments, figures);
    print!("{}", report::table(&comparisons));
    arguments.files.write("tables", &report::json(&comparisons), &report::panels(&comparisons))
}

/// By kind, then by hook.
fn measure_all(arguments: &TablesArguments, stop: &Stop) -> Result<Vec<(Kind, Hook, Figures)>> {
    let mut beds = HOOKS.into_iter().map(Bed::new).collect::<Result<Vec<_>>>()?;
    let mut all: Vec<(Kind, Hook, Figures)> = Vec::new();
    for kind in Kind::ALL {
        all.extend(HOOKS.map(|hook| (kind, hook, Figures::default())));
    }
    let time = arguments.length.round_time();
    for round in 1..=arguments.rounds.rounds {
        for bed in &mut beds {
            for kind in Kind::ALL {
                let [empty, full] = kind.fills();
                let [full, empty] =
                    in_turn(round, |side| bed.measure([full, empty][side], kind, time, stop))?;
                let of_it = |entry: &&mut (Kind, Hook, Figures)| (entry.0, entry.1) == (kind, bed.hook);
                let (.., figures) = all.iter_mut().find(of_it).expect("every kind at every hook");
                figures.rates.pairs.push((full.rate, empty.rate));
                figures.costs.pairs.push((full.cost_us, empty.cost_us));
                figures.program.pairs.push((full.program_ns, empty.program_ns));
                eprintln!(
                    "{round} {} {}: full {:.0}/s, {:.0} ns in the program, empty {:.0}/s, {:.0} ns",
                    bed.hook,
                    kind.name(),
                    full.rate,
                    full.program_ns,
                    empty.rate,
                    empty.program_ns
                );
            }
        }
    }
    Ok(all)
}

/// Of one kind with one fill.
struct Measured {
    rate: f64,
    cost_us: f64,
    program_ns: f64,
}

impl Bed {
    fn new(hook: Hook) -> Result<Self> {
        let cables = Cables::new(hook, NODES)?;
        let ports = cables.enter_switch()?;
        let switch = KernelSwitch::load(fill::vrings(), cables::ROUTER_MAC, &ports)
            .map_err(|error| BenchError::Environment(error.to_string()))?;
        let clients = cables.clients()?;
        Ok(Self { hook, switch, clients, instances: 0, cables })
    }

    fn measure(&mut self, fill: Fill, kind: Kind, time: Duration, stop: &Stop) -> Result<Measured> {
        self.cables.enter_switch()?;
        self.switch.install(&fill.tables(NODES)).map_err(refused)?;
        self.switch.set_hot(&fill.hot_config()).map_err(refused)?;
        // Instances are used once.
        self.instances += HOT_CAPACITY as u64;
        self.switch.change_hot(true, &[], &fill.hot_entries(self.instances)).map_err(refused)?;
        // What was sent to learn who is where is not counted.
        self.send(kind, time / 20, stop)?;
        let (before, cpu) = (self.routed(kind)?, MachineTime::now());
        let took = self.send(kind, time, stop)?;
        let (routed, spent) = (self.routed(kind)? - before, MachineTime::now().since(cpu));
        if routed == 0 {
            return Err(BenchError::Failed(format!("{} at {}: nothing was routed", kind.name(), self.hook)));
        }
        let counting =
            nicekv_switch_xdp::count_runs().map_err(|error| BenchError::Environment(error.to_string()))?;
        let before = self.switch.runs();
        self.send(kind, time / PROGRAM_PART, stop)?;
        let after = self.switch.runs();
        drop(counting);
        let (count, in_program) = (after.count - before.count, after.time - before.time);
        Ok(Measured {
            rate: routed as f64 / took.as_secs_f64(),
            cost_us: spent.busy.as_secs_f64() * 1e6 / routed as f64,
            program_ns: in_program.as_nanos() as f64 / count.max(1) as f64,
        })
    }

    /// Datagrams that the pipeline has routed.
    fn routed(&self, kind: Kind) -> Result<u64> {
        Ok(self.switch.counters().map_err(refused)?.get(Counter::Hits(kind.table())))
    }

    /// Sends for this long; returns how long it was.
    fn send(&self, kind: Kind, time: Duration, stop: &Stop) -> Result<Duration> {
        let ring = u32::from(kind.ring());
        let ways = fill::ways(WAYS)
            .map(|(client, vnode)| {
                // The ring's own address means what the digest says.
                let to = SocketAddrV4::new(Ipv4Addr::from(ring + u32::from(vnode.max(1))), cables::PORT);
                (&self.clients[client], to, kind.datagram(vnode))
            })
            .collect::<Vec<_>>();
        let mut ways = ways.iter().cycle();
        let began = Instant::now();
        while began.elapsed() < time {
            if stop.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            for &(client, to, ref datagram) in ways.by_ref().take(BURST) {
                // What the cable has no room for is not routed, and not counted.
                let _ = client.send_to(datagram, to);
            }
        }
        Ok(began.elapsed())
    }
}

fn refused(error: BackendError) -> BenchError {
    BenchError::Failed(error.to_string())
}

fn comparisons(arguments: &TablesArguments, all: Vec<(Kind, Hook, Figures)>) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    let mut programs = Vec::new();
    for (kind, hook, figures) in all {
        let mut parameters = Map::new();
        let tables = kind.fills()[1].tables(NODES);
        let entries: Map<String, Value> =
            Table::ALL.iter().map(|table| (table.name().into(), tables.entries(*table).into())).collect();
        parameters.insert("hook".into(), hook.name().into());
        parameters.insert("kind".into(), kind.name().into());
        parameters.insert("entries".into(), entries.into());
        parameters.insert("hot entries".into(), kind.fills()[1].hot_entries(0).len().into());
        parameters.insert("groups".into(), tables.groups().len().into());
        parameters.insert("hosts".into(), tables.hosts.len().into());
        parameters.insert("seconds".into(), json!(arguments.length.round_time().as_secs_f64()));
        let rate = Comparison {
            bench: "tables",
            target: matches!(kind, Kind::Get | Kind::RecordGet).then_some("P10"),
            goal: Some(Goal::AtLeast(KEPT_MIN)),
            title: kind.name().into(),
            network: Some(hook.name()),
            metric: "packet_rate",
            unit: "1/s",
            peer: kind.peer(),
            parameters: parameters.clone(),
            rounds: figures.rates,
            costs: Rounds { pairs: figures.costs.pairs.clone() },
        };
        comparisons.push(rate);
        programs.push(Comparison {
            bench: "tables",
            target: None,
            goal: None,
            title: format!("{}, in the program", kind.name()),
            network: Some(hook.name()),
            metric: "program_time",
            unit: "ns",
            peer: kind.peer(),
            parameters,
            rounds: figures.program,
            costs: figures.costs,
        });
    }
    comparisons.extend(programs);
    comparisons
}
