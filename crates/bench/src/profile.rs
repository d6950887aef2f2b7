//! `nicekv bench profile`: where an op's time goes, by role.
//!
//! Counted from outside, by what the kernel keeps of each process anyway, so that what is measured is what is shipped: time on a processor
//! (`schedstat`), sleeps and preemptions (`status`), datagrams (of the host's network namespace). System calls and forces are counted by
//! `perf stat`, where there is one, in a second run of the same load: tracing costs a little.
//!
//! The client is the load generator, a thread of this process. The switch is the kernel: what soft interrupts cost outside of processes is its
//! share and the cables', and what they cost within a system call of a role is charged to that role.

use crate::arguments::{FileArguments, LengthArguments};
use crate::cost::{MachineTime, ProcessCounts};
use crate::error::{BenchError, Result};
use crate::lab::{Engine, Lab, Size, inside};
use crate::load::native::{Callers, NativeLoad};
use crate::load::{Limits, Measured};
use crate::workload::{Sequence, Work};
use nicekv_lab::Hook;
use nicekv_lab::topology::{Host, WIRE_PORT};
use nicekv_placement::Vrings;
use nicekv_runtime::Stop;
use serde_json::json;
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SIZE: Size = Size { nodes: 3, replicas: 3 };
const CLIENT: Host = Host::Client(0);
const CALLERS: [usize; 2] = [1, 64];
const WARM_UP: Duration = Duration::from_millis(300);
const PRELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// What `perf stat` counts: all system calls, and those that force.
const EVENTS: [&str; 3] =
    ["raw_syscalls:sys_enter", "syscalls:sys_enter_fdatasync", "syscalls:sys_enter_fsync"];
/// `perf` has opened its counters by then.
const PERF_STARTS: Duration = Duration::from_millis(200);

/// Arguments of `nicekv bench profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArguments {
    #[command(flatten)]
    length: LengthArguments,
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
}

/// One kind of op.
struct Profile {
    name: &'static str,
    callers: usize,
    measured: Measured,
    soft_interrupts: Duration,
    shares: Vec<Share>,
}

pub(crate) fn run(arguments: &ProfileArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let mut profiles = Vec::new();
    let kinds = [
        (Engine::Memory, [("get", Work::Get), ("put", Work::Put)].as_slice()),
        (Engine::Durable, [("durable put", Work::Put)].as_slice()),
    ];
    for (engine, works) in kinds {
        let lab = Lab::up(SIZE, engine, Hook::default(), &directory.path().join("lab"))?;
        let mut roles = lab.processes()?;
        roles.push(("client".into(), std::process::id()));
        for &(name, work) in works {
            for callers in CALLERS {
                let profile = measure(arguments, (name, work, callers), &roles, &stop)?;
                profile.print();
                profiles.push(profile);
            }
        }
    }
    let lines: String = profiles.iter().map(Profile::json).collect();
    arguments.files.write_json(&lines)
}

fn measure(
    arguments: &ProfileArguments,
    (name, work, callers): (&'static str, Work, usize),
    roles: &[(String, u32)],
    stop: &Stop,
) -> Result<Profile> {
    let duration = arguments.length.round_time();
    let limits = |duration| Limits { duration, stop };
    let bind = || NativeLoad::bind(SocketAddrV4::new(CLIENT.address(), 0), Vrings::on_network(WIRE_PORT));
    let mut load = inside(CLIENT, bind)?.map_err(BenchError::system("make a client's socket"))?;
    load.run(Sequence::new(Work::Preload, 0), Callers::single(64), limits(PRELOAD_TIMEOUT))?;
    load.run(Sequence::new(work, 0), Callers::single(callers), limits(WARM_UP))?;
    // This process' socket is in the client's network namespace, this process is not.
    let gateway = roles.iter().find(|(role, _)| *role == CLIENT.to_string()).map(|(_, process)| *process);
    let of = |(role, process): &(String, u32)| {
        let counts = ProcessCounts::of(*process);
        match gateway.filter(|_| role == "client").map(ProcessCounts::of) {
            Some(ProcessCounts { datagrams_in, datagrams_out, .. }) => {
                ProcessCounts { datagrams_in, datagrams_out, ..counts }
            }
            None => counts,
        }
    };
    let counts = || roles.iter().map(of).collect::<Vec<_>>();
    let (before, machine) = (counts(), MachineTime::now());
    let measured = load.run(Sequence::new(work, 1), Callers::single(callers), limits(duration))?;
    let (after, machine) = (counts(), MachineTime::now().since(machine));
    let tracers: Vec<Option<Tracer>> = roles.iter().map(|(_, process)| Tracer::start(*process)).collect();
    std::thread::sleep(PERF_STARTS);
    let traced = load.run(Sequence::new(work, 2), Callers::single(callers), limits(duration))?;
    let shares = roles.iter().zip(before.iter().zip(&after)).zip(tracers);
    let share = |(((role, _), (before, after)), tracer): ((&(String, u32), _), Option<Tracer>)| {
        let (before, after): (&ProcessCounts, &ProcessCounts) = (before, after);
        let counted = tracer.and_then(Tracer::finish);
        let per_op = |count: u64| count as f64 / traced.operations as f64;
        Share {
            role: role.clone(),
            counts: after.since(*before),
            system_calls: counted.map(|counted| per_op(counted[0])),
            forces: counted.map(|counted| per_op(counted[1] + counted[2])),
        }
    };
    let shares = shares.map(share).collect();
    Ok(Profile { name, callers, measured, soft_interrupts: machine.soft_interrupts, shares })
}

impl Profile {
    fn per_op(&self, count: u64) -> f64 {
        count as f64 / self.measured.operations as f64
    }

    fn cost_us(&self, busy: Duration) -> f64 {
        busy.as_secs_f64() * 1e6 / self.measured.operations as f64
    }

    fn print(&self) {
        let Self { name, callers, measured, .. } = self;
        println!(
            "{name}, {callers} in flight: {:.0} op/s, {:.1} us of all processors per op, of these {:.1} in soft interrupts outside of processes",
            measured.throughput(),
            measured.cost_us(),
            self.cost_us(self.soft_interrupts)
        );
        println!(
            "    {:12} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "per op", "CPU us", "syscalls", "sleeps", "preempt", "in", "out", "forces"
        );
        for Share { role, counts, system_calls, forces } in &self.shares {
            let known = |figure: &Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
            println!(
                "    {role:12} {:8.2} {:>8} {:8.2} {:8.3} {:8.2} {:8.2} {:>8}",
                self.cost_us(counts.busy),
                known(system_calls),
                self.per_op(counts.wake_ups),
                self.per_op(counts.preemptions),
                self.per_op(counts.datagrams_in),
                self.per_op(counts.datagrams_out),
                known(forces),
            );
        }
    }

    fn json(&self) -> String {
        let line = |share: &Share| {
            let Share { role, counts, system_calls, forces } = share;
            let row = json!({
                "bench": "profile", "system": "nicekv", "role": role,
                "parameters": { "work": self.name, "callers": self.callers, "nodes": SIZE.nodes, "replicas": SIZE.replicas },
                "throughput": self.measured.throughput(), "machine_cpu_us": self.measured.cost_us(),
                "soft_interrupts_us": self.cost_us(self.soft_interrupts),
                "cpu_us": self.cost_us(counts.busy), "system_calls": system_calls, "forces": forces,
                "sleeps": self.per_op(counts.wake_ups), "preemptions": self.per_op(counts.preemptions),
                "datagrams_in": self.per_op(counts.datagrams_in), "datagrams_out": self.per_op(counts.datagrams_out),
            });
            format!("{row}\n")
        };
        self.shares.iter().map(line).collect()
    }
}

/// `perf stat` on a process.
struct Tracer(Child);

impl Tracer {
    /// `None` without `perf`.
    fn start(process: u32) -> Option<Self> {
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", &EVENTS.join(","), "-p", &process.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok().map(Self)
    }

    /// How often each of the events happened.
    fn finish(self) -> Option<[u64; EVENTS.len()]> {
        let process = rustix::process::Pid::from_child(&self.0);
        // It prints what it has counted when it is interrupted.
        rustix::process::kill_process(process, rustix::process::Signal::INT).ok()?;
        let output = self.0.wait_with_output().ok()?;
        parse(&String::from_utf8_lossy(&output.stderr))
    }
}

/// Lines such as `1234,,raw_syscalls:sys_enter,…`.
fn parse(text: &str) -> Option<[u64; EVENTS.len()]> {
    let mut counts = [0; EVENTS.len()];
    for (count, event) in counts.iter_mut().zip(EVENTS) {
        let line = text.lines().find(|line| line.split(',').nth(2) == Some(event))?;
        *count = line.split(',').next()?.parse().ok()?;
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_perf_prints() {
        let text = "1234,,raw_syscalls:sys_enter,99,100.00,,\n7,,syscalls:sys_enter_fdatasync,1,1,,\n0,,syscalls:sys_enter_fsync,1,1,,\n";
        assert_eq!(parse(text), Some([1234, 7, 0]));
        assert_eq!(parse("<not supported>,,raw_syscalls:sys_enter,0,0,,"), None);
    }
}
