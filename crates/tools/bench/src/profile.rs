//! `nicekv bench profile`: where an op's time goes, by role.
//!
//! The figures are what the kernel keeps of each process anyway, so that the programs run as they
//! are shipped: time on a processor (`schedstat`), sleeps and preemptions (`status`), datagrams (of
//! the host's network namespace; a GSO or GRO batch counts once). `perf stat`, if it is installed,
//! counts system calls and fsyncs, then allocations, in further runs of the same load: tracing
//! costs a little.
//!
//! The client is the load generator, a thread of this process. The switch is the kernel: its share,
//! and that of the links, is the soft interrupts outside of processes; those within a system call
//! of a role are charged to that role. Other processes of the machine have taken the remaining
//! time. The less that is, the better the figures.

mod tracer;

use crate::bar_chart::{Bar, Panel};
use crate::cost::{MachineTime, ProcessCounts};
use crate::error::Result;
use crate::keyspace::Replicated;
use crate::lab::{CLIENT, Engine, Lab, LabPlan, Size};
use crate::load::Measured;
use crate::load::native::{Callers, NativeLoad, PRELOAD_TIMEOUT, WARM_UP};
use crate::report::{NICEKV, Report, Row};
use crate::session::{Session, SessionArguments};
use crate::workload::{Sequence, VALUE_BYTES, Work};
use serde_json::{Value, json};
use std::time::Duration;
use tracer::{Probes, SYSTEM_CALLS, Tracer};

/// The metrics of a role: name, unit, and column of the table.
const METRICS: [(&str, &str, &str); 8] = [
    ("cpu_per_op", "us", "CPU us"),
    ("system_calls", "per op", "syscalls"),
    ("sleeps", "per op", "sleeps"),
    ("preemptions", "per op", "preempt"),
    ("datagrams_in", "per op", "in"),
    ("datagrams_out", "per op", "out"),
    ("forces", "per op", "fsyncs"),
    ("allocations", "per op", "allocs"),
];
const SIZE: Size = Size { nodes: 3, replicas: 3 };
/// The role of the load generator.
const LOAD: &str = "client";
const CALLERS: [usize; 2] = [1, 64];
/// Time that `perf` needs to open its counters.
const PERF_STARTS: Duration = Duration::from_millis(200);

/// Arguments of `nicekv bench profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArguments {
    /// How puts reach all replicas
    #[arg(long, value_enum, default_value_t)]
    replication: Replicated,
    #[command(flatten)]
    session: SessionArguments,
}

/// The counts of a role.
struct Share {
    role: String,
    counts: ProcessCounts,
    /// Per op; `None` without `perf`.
    system_calls: Option<f64>,
    fsyncs: Option<f64>,
    allocations: Option<f64>,
}

/// The counts of all roles under one kind of load.
struct Profile {
    name: &'static str,
    replication: &'static str,
    callers: usize,
    measured: Measured,
    soft_interrupts: Duration,
    shares: Vec<Share>,
}

pub(crate) fn run(arguments: &ProfileArguments) -> Result<()> {
    let session = arguments.session.start()?;
    let keyspace = arguments.replication.keyspace();
    let options: Vec<&str> = keyspace.iter().flat_map(|text| ["--keyspace", text]).collect();
    let mut report = Report::new("profile");
    let kinds = [
        (Engine::Memory, [("get", Work::Get), ("put", Work::Put)].as_slice()),
        (Engine::Durable, [("durable put", Work::Put)].as_slice()),
    ];
    for (engine, works) in kinds {
        let lab = Lab::up(&LabPlan { options: &options, ..session.plan(SIZE, engine) })?;
        let mut roles = lab.processes()?;
        roles.push((LOAD.into(), std::process::id()));
        for &(name, work) in works {
            for callers in CALLERS {
                let load = (name, work, callers);
                measure(&session, arguments.replication, load, &lab, &roles)?.report(&mut report);
                report.print();
            }
        }
    }
    session.finish(report)
}

fn measure(
    session: &Session,
    replication: Replicated,
    (name, work, callers): (&'static str, Work, usize),
    lab: &Lab,
    roles: &[(String, u32)],
) -> Result<Profile> {
    let limits = session.limits(session.round_time());
    let keyspace = replication.known(SIZE)?;
    let mut load = lab.client(CLIENT, |address| NativeLoad::bind(address, keyspace))?;
    load.preload(session.limits(PRELOAD_TIMEOUT))?;
    load.run(Sequence::new(work, 0), Callers::single(callers), session.limits(WARM_UP))?;
    let counts = || roles.iter().map(|role| counts_of(role, roles)).collect::<Vec<_>>();
    let (before, machine) = (counts(), MachineTime::now());
    let measured = load.run(Sequence::new(work, 1), Callers::single(callers), limits)?;
    let (after, machine) = (counts(), MachineTime::now().since(machine));
    let mut traced = |seed, events: &[&str]| -> Result<Vec<Option<Vec<f64>>>> {
        let tracers: Vec<_> = roles.iter().map(|(_, process)| Tracer::start(*process, events)).collect();
        std::thread::sleep(PERF_STARTS);
        let run = load.run(Sequence::new(work, seed), Callers::single(callers), limits)?;
        let per_op = |count: u64| count as f64 / run.operations as f64;
        let counted = tracers.into_iter().map(|tracer| tracer.and_then(Tracer::finish));
        Ok(counted.map(|counts| Some(counts?.into_iter().map(per_op).collect())).collect())
    };
    let system_calls = traced(2, &SYSTEM_CALLS)?;
    let allocations = match Probes::set() {
        Some(probes) => traced(3, &probes.events.iter().map(String::as_str).collect::<Vec<_>>())?,
        None => vec![None; roles.len()],
    };
    let shares = (0..roles.len()).map(|index| Share {
        role: roles[index].0.clone(),
        counts: after[index].since(before[index]),
        system_calls: system_calls[index].as_ref().map(|counts| counts[0]),
        fsyncs: system_calls[index].as_ref().map(|counts| counts[1] + counts[2]),
        allocations: allocations[index].as_ref().map(|counts| counts.iter().sum()),
    });
    let shares = shares.collect();
    let replication = replication.name();
    Ok(Profile { name, replication, callers, measured, soft_interrupts: machine.soft_interrupts, shares })
}

/// The counts of a role's process. The load generator's socket is in the client's network
/// namespace, where the gateway runs. An edge shares its host's namespace, whose datagrams are not
/// its own.
fn counts_of((role, process): &(String, u32), roles: &[(String, u32)]) -> ProcessCounts {
    let of_process = ProcessCounts::of(*process);
    let ProcessCounts { datagrams_in, datagrams_out, .. } = match role.as_str() {
        LOAD => {
            let gateway = roles.iter().find(|(role, _)| *role == CLIENT.to_string());
            gateway.map_or(of_process, |(_, process)| ProcessCounts::of(*process))
        }
        role if role.starts_with("edge-") => ProcessCounts::default(),
        _ => of_process,
    };
    ProcessCounts { datagrams_in, datagrams_out, ..of_process }
}

impl Profile {
    fn per_op(&self, count: u64) -> f64 {
        count as f64 / self.measured.operations as f64
    }

    fn cost_us(&self, busy: Duration) -> f64 {
        busy.as_secs_f64() * 1e6 / self.measured.operations as f64
    }

    /// Processor time that no role has taken.
    fn others(&self) -> Duration {
        let roles: Duration = self.shares.iter().map(|share| share.counts.busy).sum();
        self.measured.busy.saturating_sub(roles + self.soft_interrupts)
    }

    fn report(&self, report: &mut Report) {
        let Self { name, callers, measured, .. } = self;
        report.note(format_args!(
            "{name}, {callers} in flight: {:.0} op/s, {:.1} us of all processors per op, of these {:.1} in soft interrupts outside of processes, {:.1} others'",
            measured.throughput(),
            measured.cost_us(),
            self.cost_us(self.soft_interrupts),
            self.cost_us(self.others()),
        ));
        let header: Vec<&str> = ["per op"].into_iter().chain(METRICS.map(|(.., column)| column)).collect();
        let line = |share: &Share| {
            let known = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
            [share.role.clone()].into_iter().chain(self.figures(share).map(known)).collect()
        };
        report.table(&header, self.shares.iter().map(line));
        self.rows().iter().for_each(|row| report.record(row));
        report.panel(self.panel());
    }

    /// Processor time by role.
    fn panel(&self) -> Panel {
        let bar = |(role, busy): (&str, Duration)| Bar::ours(role, &[self.cost_us(busy)]);
        let roles = self.shares.iter().map(|share| (share.role.as_str(), share.counts.busy));
        let rest = [("soft interrupts", self.soft_interrupts), ("others", self.others())];
        let title = format!("{}, {} in flight, CPU us per op", self.name, self.callers);
        Panel { title, bars: roles.chain(rest).map(bar).collect() }
    }

    /// The figures of a role, in the order of [`METRICS`].
    fn figures(&self, share: &Share) -> [Option<f64>; METRICS.len()] {
        let Share { counts, .. } = share;
        [
            Some(self.cost_us(counts.busy)),
            share.system_calls,
            Some(self.per_op(counts.wake_ups)),
            Some(self.per_op(counts.preemptions)),
            Some(self.per_op(counts.datagrams_in)),
            Some(self.per_op(counts.datagrams_out)),
            share.fsyncs,
            share.allocations,
        ]
    }

    fn rows(&self) -> Vec<Row> {
        let row = |role: &str, metric: (&'static str, &'static str), figure: f64| {
            Row::new(self.name, NICEKV, metric, vec![figure]).parameters(self.parameters(role))
        };
        let mut rows = vec![
            row("machine", ("throughput", "op/s"), self.measured.throughput()),
            row("machine", ("cpu_per_op", "us"), self.measured.cost_us()),
            row("machine", ("soft_interrupts_per_op", "us"), self.cost_us(self.soft_interrupts)),
            row("machine", ("others_cpu_per_op", "us"), self.cost_us(self.others())),
        ];
        for share in &self.shares {
            let metrics = METRICS.into_iter().zip(self.figures(share));
            rows.extend(
                metrics.filter_map(|((metric, unit, _), figure)| {
                    Some(row(&share.role, (metric, unit), figure?))
                }),
            );
        }
        rows
    }

    fn parameters(&self, role: &str) -> Value {
        json!({
            "work": self.name, "replication": self.replication, "callers": self.callers, "role": role,
            "nodes": SIZE.nodes, "replicas": SIZE.replicas, "value_bytes": VALUE_BYTES,
        })
    }
}
