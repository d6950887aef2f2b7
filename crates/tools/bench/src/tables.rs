//! `nicekv bench tables`: whether a switch in the kernel is as fast with full tables as with almost
//! empty ones.
//!
//! ```text
//!   client ══ port ─▶ pipeline ─▶ one of 255 ports ══ node          with one entry in each ring,  then
//!   64 addresses, random vnodes                                     4,096 + 16,384 + 4,096 entries, 1,024 groups, 255 servers
//!                                                                   and for a keyspace by range: 1 record, then 10,240 with all tables full; 1, then 4,096 of one node
//!                                                                   and for a keyspace without spread hot keys, then with: gets of 10,000 hot keys, of others
//! ```
//!
//! There is no cluster: network namespaces, links, the programs and their loader. A thread sends as
//! fast as it can; each datagram passes the whole pipeline in its system call. The figure is the
//! rate of routed datagrams. The kernel reports how long the programs themselves take, in separate
//! runs, since reading its clock costs as much as a lookup.

mod fill;

use crate::cost::MachineTime;
use crate::error::{BenchError, Result};
use crate::netns::apart;
use crate::report::{Comparison, Goal, Report};
use crate::session::{FileArguments, RoundsArguments, round_time, stop_on_signals};
use crate::statistics::{Rounds, in_turn};
use crate::switch_links::{NODES, PORT, ROUTER_MAC, SwitchLinks};
use fill::Fill;
use nicekv_proto::placement::key_digest;
use nicekv_proto::route::leave_room_for_stamp;
use nicekv_proto::{ClientId, Condition, Get, KeyDigest, KeyspaceId, OpId, Operation, Update};
use nicekv_runtime::Stop;
use nicekv_switch::{Backend as _, Counter, HOT_CAPACITY, Table, VNODES, VringConfig};
use nicekv_switch_xdp::{Hook, KernelSwitch};
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// Minimum rate with full tables, as a part of that with empty ones, and with hot keys, as a part
/// of that without.
const KEPT_MIN: f64 = 0.9;
/// The time of the programs is measured for this fraction of a round.
const PROGRAM_PART: u32 = 4;
/// Datagrams between two readings of the clock.
const BURST: usize = 256;
/// Flows sent in turn, more than any table has entries.
const FLOWS: usize = 1 << 15;
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

/// Arguments of `nicekv bench tables`.
#[derive(Clone, Debug, clap::Args)]
pub struct TablesArguments {
    /// Measure for half a second instead of two in each round
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rounds: RoundsArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// Kinds of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Put,
    /// In a keyspace partitioned by range.
    RecordGet,
    RecordPut,
    /// The same, with all records on one node.
    PlainRecordGet,
    PlainRecordPut,
    /// A get of a key with a hot entry.
    HotGet,
    /// A get of a key without one, which the HashPipe counts.
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

    /// Content of the tables that is compared: almost empty, and full.
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

    /// The baseline of full tables.
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

    /// The first address of its ring.
    fn ring(self) -> Ipv4Addr {
        let ring = match self {
            Self::Get | Self::HotGet | Self::CandidateGet => VringConfig::DEFAULT.unicast,
            Self::Put => VringConfig::DEFAULT.multicast,
            Self::RecordGet | Self::PlainRecordGet => fill::RECORDS.unicast,
            Self::RecordPut | Self::PlainRecordPut => fill::RECORDS.multicast,
        };
        Ipv4Addr::from(ring.first())
    }

    /// A datagram for a vnode. In a keyspace by range, `vnode` selects the part of all match
    /// values.
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

/// Figures of one kind at one hook: full and empty.
#[derive(Default)]
struct Figures {
    /// Packets per second.
    rates: Rounds,
    /// Processor time of the whole machine per packet, in microseconds.
    costs: Rounds,
    /// Time in the program per packet, in nanoseconds.
    program: Rounds,
}

/// A switch, and the sockets that send to it.
struct Testbed {
    hook: Hook,
    switch: KernelSwitch,
    clients: Vec<UdpSocket>,
    /// Instances of hot entries used so far.
    instances: u64,
    /// Declared last: the namespaces outlive the switch in them.
    links: SwitchLinks,
}

pub(crate) fn run(arguments: &TablesArguments) -> Result<()> {
    let stop = stop_on_signals()?;
    let figures = apart(|| measure_all(arguments, &stop))?;
    let mut report = Report::new("tables");
    report.comparisons(&comparisons(round_time(arguments.quick), figures));
    report.finish(&arguments.files.output)
}

/// Measures all kinds at all hooks.
fn measure_all(arguments: &TablesArguments, stop: &Stop) -> Result<Vec<(Kind, Hook, Figures)>> {
    let mut testbeds = HOOKS.into_iter().map(Testbed::new).collect::<Result<Vec<_>>>()?;
    let mut all: Vec<(Kind, Hook, Figures)> = Vec::new();
    for kind in Kind::ALL {
        all.extend(HOOKS.map(|hook| (kind, hook, Figures::default())));
    }
    let time = round_time(arguments.quick);
    for round in 1..=arguments.rounds.rounds {
        for testbed in &mut testbeds {
            for kind in Kind::ALL {
                let [empty, full] = kind.fills();
                let [full, empty] =
                    in_turn(round, |side| testbed.measure([full, empty][side], kind, time, stop))?;
                let is_it = |entry: &&mut (Kind, Hook, Figures)| (entry.0, entry.1) == (kind, testbed.hook);
                let (.., figures) = all.iter_mut().find(is_it).expect("every kind at every hook");
                figures.rates.push(full.rate, empty.rate);
                figures.costs.push(full.cost_us, empty.cost_us);
                figures.program.push(full.program_ns, empty.program_ns);
                eprintln!(
                    "{round} {} {}: full {:.0}/s, {:.0} ns in the program, empty {:.0}/s, {:.0} ns",
                    testbed.hook,
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

/// Figures of one kind with one content of the tables.
struct Measured {
    rate: f64,
    cost_us: f64,
    program_ns: f64,
}

impl Testbed {
    fn new(hook: Hook) -> Result<Self> {
        let links = SwitchLinks::new(hook, NODES)?;
        let ports = links.enter_switch()?;
        let switch = KernelSwitch::load(fill::vrings(), ROUTER_MAC, &ports)?;
        let clients = links.clients()?;
        Ok(Self { hook, switch, clients, instances: 0, links })
    }

    fn measure(&mut self, fill: Fill, kind: Kind, time: Duration, stop: &Stop) -> Result<Measured> {
        self.links.enter_switch()?;
        self.switch.install(&fill.tables(NODES))?;
        self.switch.set_hot(&fill.hot_config())?;
        // Each instance is used once.
        self.instances += HOT_CAPACITY as u64;
        self.switch.change_hot(true, &[], &fill.hot_entries(self.instances))?;
        // The first datagrams resolve addresses, and are not counted.
        self.send(kind, time / 20, stop)?;
        let (before, cpu) = (self.routed(kind)?, MachineTime::now());
        let took = self.send(kind, time, stop)?;
        let (routed, spent) = (self.routed(kind)? - before, MachineTime::now().since(cpu));
        if routed == 0 {
            return Err(BenchError::Failed(format!(
                "{} at {}: no datagram was routed",
                kind.name(),
                self.hook
            )));
        }
        let counting = nicekv_switch_xdp::count_runs()?;
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
        Ok(self.switch.counters()?.get(Counter::Hits(kind.table())))
    }

    /// Sends for about `time`; returns the exact time.
    fn send(&self, kind: Kind, time: Duration, stop: &Stop) -> Result<Duration> {
        let ring = u32::from(kind.ring());
        let flows = fill::flows(FLOWS)
            .map(|(client, vnode)| {
                // Vnode 0 has the ring's own address, which stands for the digest's vnode.
                let to = SocketAddrV4::new(Ipv4Addr::from(ring + u32::from(vnode.max(1))), PORT);
                (&self.clients[client], to, kind.datagram(vnode))
            })
            .collect::<Vec<_>>();
        let mut flows = flows.iter().cycle();
        let began = Instant::now();
        while began.elapsed() < time {
            if stop.is_stopped() {
                return Err(BenchError::Interrupted);
            }
            for &(client, to, ref datagram) in flows.by_ref().take(BURST) {
                // A datagram that the link drops is not routed, and not counted.
                let _ = client.send_to(datagram, to);
            }
        }
        Ok(began.elapsed())
    }
}

/// All rates, then all times in the program.
fn comparisons(round_time: Duration, all: Vec<(Kind, Hook, Figures)>) -> Vec<Comparison> {
    let (mut rates, mut programs) = (Vec::new(), Vec::new());
    for (kind, hook, Figures { rates: rounds, costs, program }) in all {
        let [_, full] = kind.fills();
        let tables = full.tables(NODES);
        let entries: Map<String, Value> =
            Table::ALL.iter().map(|table| (table.name().into(), tables.entries(*table).into())).collect();
        let rate = Comparison {
            target: matches!(kind, Kind::Get | Kind::RecordGet).then_some("P10"),
            goal: Some(Goal::AtLeast(KEPT_MIN)),
            title: kind.name().into(),
            network: Some(hook.name()),
            metric: "packet_rate",
            unit: "1/s",
            peer: kind.peer(),
            parameters: json!({
                "hook": hook.name(),
                "kind": kind.name(),
                "entries": entries,
                "hot entries": full.hot_entries(0).len(),
                "groups": tables.groups().len(),
                "hosts": tables.hosts.len(),
                "seconds": round_time.as_secs_f64(),
            }),
            rounds,
            costs,
        };
        programs.push(Comparison {
            target: None,
            goal: None,
            title: format!("{}, in the program", kind.name()),
            metric: "program_time",
            unit: "ns",
            rounds: program,
            ..rate.clone()
        });
        rates.push(rate);
    }
    rates.extend(programs);
    rates
}
