//! `nicekv bench profile`: where an op's time goes, by role.
//!
//! Counted from outside, by what the kernel keeps of each process anyway, so that what is measured is what is shipped: time on a processor
//! (`schedstat`), sleeps and preemptions (`status`), datagrams (of the host's network namespace; a train of them counts once). System calls
//! and forces, then allocations, are counted by `perf stat`, where there is one, in further runs of the same load: tracing costs a little.
//!
//! The client is the load generator, a thread of this process. The switch is the kernel: what soft interrupts cost outside of processes is its
//! share and the cables', and what they cost within a system call of a role is charged to that role. What is left of the machine's time others
//! have taken, and the figures are to be believed as far as that is little.

mod tracer;

use crate::arguments::{FileArguments, LengthArguments, NetworkArguments};
use crate::cost::{MachineTime, ProcessCounts};
use crate::error::{BenchError, Result};
use crate::keyspace::Replicated;
use crate::lab::{Engine, Lab, LabPlan, Size};
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::plot::{Bar, Panel};
use crate::report;
use crate::statistics::Summary;
use crate::workload::{Sequence, VALUE_BYTES, Work};
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::time::Duration;
use tracer::{Probes, SYSTEM_CALLS, Tracer};

/// What is counted of a role: its name, its unit, and its column.
const METRICS: [(&str, &str, &str); 8] = [
    ("cpu_per_op", "us", "CPU us"),
    ("system_calls", "per op", "syscalls"),
    ("sleeps", "per op", "sleeps"),
    ("preemptions", "per op", "preempt"),
    ("datagrams_in", "per op", "in"),
    ("datagrams_out", "per op", "out"),
    ("forces", "per op", "forces"),
    ("allocations", "per op", "allocs"),
];
const SIZE: Size = Size { nodes: 3, replicas: 3 };
const CLIENT: Host = Host::Client(0);
/// The role of the load generator.
const LOAD: &str = "client";
const CALLERS: [usize; 2] = [1, 64];
const WARM_UP: Duration = Duration::from_millis(300);
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// `perf` has opened its counters by then.
const PERF_STARTS: Duration = Duration::from_millis(200);

/// Arguments of `nicekv bench profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArguments {
    #[command(flatten)]
    length: LengthArguments,
    /// How what is put is replicated
    #[arg(long, value_enum, default_value_t)]
    replication: Replicated,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What a role does for an op.
struct Share {
    role: String,
    counts: ProcessCounts,
    /// Without `perf`, nobody knows.
    system_calls: Option<f64>,
    forces: Option<f64>,
    allocations: Option<f64>,
}

/// One kind of op.
struct Profile {
    name: &'static str,
    replication: &'static str,
    callers: usize,
    measured: Measured,
    soft_interrupts: Duration,
    shares: Vec<Share>,
}

pub(crate) fn run(arguments: &ProfileArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let keyspace = arguments.replication.keyspace();
    let further: Vec<&str> = keyspace.iter().flat_map(|text| ["--keyspace", text]).collect();
    let mut profiles = Vec::new();
    let kinds = [
        (Engine::Memory, [("get", Work::Get), ("put", Work::Put)].as_slice()),
        (Engine::Durable, [("durable put", Work::Put)].as_slice()),
    ];
    for (engine, works) in kinds {
        let plan = LabPlan::new(SIZE, engine, arguments.network.network(), directory.path());
        let lab = Lab::up(&LabPlan { further: &further, ..plan })?;
        let mut roles = lab.processes()?;
        roles.push((LOAD.into(), std::process::id()));
        for &(name, work) in works {
            for callers in CALLERS {
                let profile = measure(arguments, (name, work, callers), &lab, &roles, &stop)?;
                profile.print();
                profiles.push(profile);
            }
        }
    }
    let lines: String = profiles.iter().map(Profile::json).collect();
    let panels: Vec<Panel> = profiles.iter().map(Profile::panel).collect();
    arguments.files.write("profile", &lines, &panels)
}

fn measure(
    arguments: &ProfileArguments,
    (name, work, callers): (&'static str, Work, usize),
    lab: &Lab,
    roles: &[(String, u32)],
    stop: &Stop,
) -> Result<Profile> {
    let duration = arguments.length.round_time();
    let limits = |duration| Limits { duration, stop };
    let keyspace = arguments.replication.known(SIZE)?;
    let bind = || NativeLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), keyspace);
    let mut load = lab.inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
    load.run(Sequence::new(Work::Preload, 0), Callers::single(64), limits(PRELOAD_TIMEOUT))?;
    load.run(Sequence::new(work, 0), Callers::single(callers), limits(WARM_UP))?;
    let counts = || roles.iter().map(|role| counts_of(role, roles)).collect::<Vec<_>>();
    let (before, machine) = (counts(), MachineTime::now());
    let measured = load.run(Sequence::new(work, 1), Callers::single(callers), limits(duration))?;
    let (after, machine) = (counts(), MachineTime::now().since(machine));
    let mut traced = |seed, events: &[&str]| -> Result<Vec<Option<Vec<f64>>>> {
        let tracers: Vec<_> = roles.iter().map(|(_, process)| Tracer::start(*process, events)).collect();
        std::thread::sleep(PERF_STARTS);
        let run = load.run(Sequence::new(work, seed), Callers::single(callers), limits(duration))?;
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
        forces: system_calls[index].as_ref().map(|counts| counts[1] + counts[2]),
        allocations: allocations[index].as_ref().map(|counts| counts.iter().sum()),
    });
    let shares = shares.collect();
    let replication = arguments.replication.name();
    Ok(Profile { name, replication, callers, measured, soft_interrupts: machine.soft_interrupts, shares })
}

/// This process' socket is in the client's network namespace, this process is not. An edge is in that of its host, whose datagrams are
/// not its own.
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

    /// What nobody of the cluster has taken.
    fn others(&self) -> Duration {
        let roles: Duration = self.shares.iter().map(|share| share.counts.busy).sum();
        self.measured.busy.saturating_sub(roles + self.soft_interrupts)
    }

    fn print(&self) {
        let Self { name, callers, measured, .. } = self;
        println!(
            "{name}, {callers} in flight: {:.0} op/s, {:.1} us of all processors per op, of these {:.1} in soft interrupts outside of processes, {:.1} others'",
            measured.throughput(),
            measured.cost_us(),
            self.cost_us(self.soft_interrupts),
            self.cost_us(self.others()),
        );
        let metrics = METRICS.map(|(_, _, title)| format!("{title:>8}"));
        println!("    {:10} {}", "per op", metrics.join(" "));
        for share in &self.shares {
            let known = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
            let figures = self.figures(share).map(|figure| format!("{:>8}", known(figure)));
            println!("    {:10} {}", share.role, figures.join(" "));
        }
    }

    /// Who takes the processors.
    fn panel(&self) -> Panel {
        let bar = |(role, busy): (&str, Duration)| Bar::ours(role, Summary::of([self.cost_us(busy)]));
        let roles = self.shares.iter().map(|share| (share.role.as_str(), share.counts.busy));
        let rest = [("soft interrupts", self.soft_interrupts), ("others", self.others())];
        let title = format!("{}, {} in flight, CPU us per op", self.name, self.callers);
        Panel { title, bars: roles.chain(rest).map(bar).collect() }
    }

    /// In the order of [`METRICS`].
    fn figures(&self, share: &Share) -> [Option<f64>; METRICS.len()] {
        let Share { counts, .. } = share;
        [
            Some(self.cost_us(counts.busy)),
            share.system_calls,
            Some(self.per_op(counts.wake_ups)),
            Some(self.per_op(counts.preemptions)),
            Some(self.per_op(counts.datagrams_in)),
            Some(self.per_op(counts.datagrams_out)),
            share.forces,
            share.allocations,
        ]
    }

    fn json(&self) -> String {
        let rows = self.shares.iter().flat_map(|share| {
            let parameters = self.parameters(&share.role);
            let metrics = METRICS.into_iter().zip(self.figures(share));
            metrics.filter_map(move |((metric, unit, _), figure)| {
                Some(report::row("profile", &parameters, (metric, unit), &[figure?], None))
            })
        });
        let machine = self.parameters("machine");
        let of_all = [
            (("throughput", "op/s"), self.measured.throughput()),
            (("cpu_per_op", "us"), self.measured.cost_us()),
            (("soft_interrupts_per_op", "us"), self.cost_us(self.soft_interrupts)),
            (("others_cpu_per_op", "us"), self.cost_us(self.others())),
        ];
        let of_all = of_all.map(|(metric, figure)| report::row("profile", &machine, metric, &[figure], None));
        of_all.into_iter().chain(rows).collect()
    }

    fn parameters(&self, role: &str) -> Value {
        json!({
            "work": self.name, "replication": self.replication, "callers": self.callers, "role": role,
            "nodes": SIZE.nodes, "replicas": SIZE.replicas, "value_bytes": VALUE_BYTES,
        })
    }
}
