//! `nicekv lab chaos`: real clients, faults from a seed, and the simulator's checker.
//!
//! ```text
//!   phase   0 s ──── faults, overlapping ────▶ 12 s ── recovered? ──▶ clients stop ── read every key ──▶ judge
//!   native clients ── UDP ──▶ vrings  ┐
//!   Redis clients ── gateways ─────────┴─▶ history of each key ──▶ linearizable?
//! ```
//!
//! Meanwhile one operator drains and adds nodes ([`node_changes`]), and another one splits and
//! merges partitions ([`partition_changes`]).
//!
//! All keyspaces of the lab are used at the same time, by the same clients, and checked separately:
//! those with a primary and those by quorum under the same faults. Every phase has its own keys, so
//! that histories stay short enough to be checked. The reads at the end belong to the history: if
//! an acknowledged update is missing then, the history is not linearizable.
//!
//! A seed determines what is drawn, but not the timing of packets and processes, so a failure may
//! need several runs to appear again. The history of the failed key is written to a file.

mod judge;
mod long_values;
mod node_changes;
mod objects;
mod partition_changes;
mod schedule;
mod transfers;
mod workload;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicekv_history::Action;
use nicekv_proto::placement::{KeyspaceSpec, LoadBalancing, Protocol};
use nicekv_testkit::Random;

use crate::arguments::{ChaosArguments, MetadataStore, NetworkArguments};
use crate::commands;
use crate::data_plane::DataPlane;
use crate::error::{LabError, Result};
use crate::faults;
use crate::layout::Layout;
use crate::plan::Roles;
use crate::scope::Scope;
use crate::state::LinkFaults;
use crate::test_lab::{NODES, TestLab, TestLabOptions};
use crate::topology::Host;
use crate::wait::{interruption, sleep_until};

use judge::Report;
use node_changes::{NodeChange, Operations, SPARES};
use objects::{Objects, User};
use partition_changes::PartitionChanges;
use schedule::{FaultEvent, Injected, Scheduled, Targets};
use transfers::Mover;
use workload::{KeyCall, Keys};

/// Duration of the faults in a phase.
const PHASE: Duration = Duration::from_secs(12);
const NATIVE_CLIENTS: u64 = 5;
const RESP_CLIENTS: u64 = 5;

/// Runs the phases; exit code 1 if one of them failed.
pub(crate) fn run(base: &Scope, arguments: &ChaosArguments, roles: Roles<'_>) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| nicekv_runtime::now().boot_ns % 1_000_000);
    let further = arguments.keyspaces.iter().map(|text| format!(" --keyspace {text}"));
    let &ChaosArguments { minutes, control, network, .. } = arguments;
    let NetworkArguments { fabric, .. } = network;
    let further = further.collect::<String>();
    println!("chaos --minutes {minutes} --seed {seed} {control} {network}{further}");
    let interrupted = interruption()?;
    let options = TestLabOptions { further: &arguments.keyspaces, spares: SPARES, control, network };
    let lab = TestLab::up(base, "chaos", options, roles, &interrupted)?;
    let targets = Targets {
        nodes: NODES + SPARES,
        fabric,
        instances: control.instances as u8,
        has_etcd: control.store == MetadataStore::Etcd,
        has_open_vswitch: network.switch == DataPlane::OpenFlow,
        layout: Layout::new(network.topology, network.switches, usize::from(NODES + SPARES)),
    };
    let (named, driven) = lab.keyspaces.iter().cloned().partition::<Vec<_>, _>(|spec| spec.chunks.is_some());
    let chaos =
        Chaos { lab: &lab, driven, has_objects: !named.is_empty(), targets, seed, interrupted: &interrupted };
    let end = Instant::now() + Duration::from_secs_f64(60.0 * arguments.minutes);
    let mut total = Report::default();
    for phase in 1.. {
        let span = PHASE.min(end.saturating_duration_since(Instant::now()));
        if span.is_zero() {
            break;
        }
        let report = match chaos.phase(phase, span) {
            Ok(report) => report,
            // An interruption by the operator is not a failure of the cluster.
            Err(error) if interrupted.load(Ordering::Relaxed) => return Err(error),
            Err(error) => {
                eprintln!("nicekv: phase {phase} of seed {seed}: {error}");
                return Ok(lab.keep());
            }
        };
        println!("phase {phase}: {report}");
        report.long_gaps().for_each(|line| println!("  {line}"));
        total.add(&report);
        if report.is_failure() {
            return Ok(lab.keep());
        }
    }
    println!("seed {seed}: {total}");
    total.keyspaces().for_each(|line| println!("{line}"));
    Ok(ExitCode::SUCCESS)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Chaos<'a> {
    lab: &'a TestLab,
    /// Keyspaces in which clients put and get values.
    driven: Vec<KeyspaceSpec>,
    /// Whether there is also a keyspace of object names.
    has_objects: bool,
    targets: Targets,
    seed: u64,
    interrupted: &'a AtomicBool,
}

/// Stops the clients when it is dropped. Otherwise joining them after an error would not end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Chaos<'_> {
    fn phase(&self, phase: u32, span: Duration) -> Result<Report> {
        let mut random = Random::new(self.seed.wrapping_add(u64::from(phase) << 32));
        let span_ms = span.as_millis() as u64;
        let events = schedule::draw(&mut random, self.targets, span_ms);
        let node_change = NodeChange::draw(&mut random, span_ms);
        let partition_changes = PartitionChanges::draw(&mut random, span_ms);
        let stopped = AtomicBool::new(false);
        let users = if self.has_objects { objects::USERS } else { 0 };
        let mut users: Vec<User<'_>> = (0..users).map(|number| User::new(self.lab, phase, number)).collect();
        let mut movers = self.movers(phase);
        let (calls, (injected, whole_after), operations) = std::thread::scope(|scope| {
            let stop = StopOnDrop(&stopped);
            let clients: Vec<_> = (0..NATIVE_CLIENTS + RESP_CLIENTS)
                .map(|number| {
                    let (mut random, stopped) = (Random::new(random.bits()), &stopped);
                    scope.spawn(move || self.work(phase, number, &mut random, stopped))
                })
                .collect();
            let users: Vec<_> = users
                .iter_mut()
                .map(|user| {
                    let (mut random, stopped) = (Random::new(random.bits()), &stopped);
                    scope.spawn(move || user.work(&mut random, stopped))
                })
                .collect();
            let movers: Vec<_> = movers
                .iter_mut()
                .map(|mover| {
                    let (mut random, stopped) = (Random::new(random.bits()), &stopped);
                    scope.spawn(move || mover.work(&mut random, stopped))
                })
                .collect();
            let begun = Instant::now();
            let node_operator = scope.spawn(move || node_change.run(self.lab, begun, self.interrupted));
            let partition_operator =
                scope.spawn(move || partition_changes.run(self.lab, begun, self.interrupted));
            let injected = self.inject(&events);
            let whole_after = injected.and_then(|injected| Ok((injected, self.wait_until_whole()?)));
            let (operations, partition_changes) = (joined(node_operator), joined(partition_operator));
            let is_settled = partition_changes::wait_until_done(self.lab, self.interrupted)
                .and_then(|()| node_changes::wait_until_moved(self.lab, self.interrupted));
            drop(stop);
            let calls: Result<Vec<Vec<KeyCall>>> = clients.into_iter().map(joined).collect();
            let used = users.into_iter().chain(movers).try_for_each(joined);
            let (whole_after, partition_changes, ()) =
                (whole_after?, partition_changes?, is_settled.and(used)?);
            let operations = Operations { partition_changes, ..operations? };
            Ok::<_, LabError>((calls?.concat(), whole_after, operations))
        })?;
        let read_back = self.read_back(phase)?;
        let mut report = judge::judge(injected, calls, read_back, whole_after, self.keys(phase))?;
        report.objects = self.objects(&mut users)?;
        for mover in &mut movers {
            mover.read_back()?;
            report.transfers.add(&mover.seen);
        }
        report.operations = operations;
        Ok(report)
    }

    /// Users that transfer amounts, in each keyspace that supports transactions.
    fn movers(&self, phase: u32) -> Vec<Mover> {
        let has_transactions = |spec: &&KeyspaceSpec| {
            !matches!(spec.protocol, Protocol::Quorum { .. }) && spec.balancing != LoadBalancing::Hot
        };
        let keyspaces = self.driven.iter().filter(has_transactions);
        let tag = format!("chaos-{}-{phase}", self.seed);
        let each = keyspaces.flat_map(|spec| (0..transfers::MOVERS).map(move |number| (spec.id, number)));
        each.map(|(keyspace, number)| {
            let client = self.lab.redis(NATIVE_CLIENTS + RESP_CLIENTS + number);
            Mover::new(client, keyspace, &tag, number)
        })
        .collect()
    }

    /// Reads all objects. Returns the totals of all users.
    fn objects(&self, users: &mut [User<'_>]) -> Result<Option<Objects>> {
        if !self.has_objects {
            return Ok(None);
        }
        objects::wait_until_rebuilt(self.lab, self.interrupted)?;
        let mut seen = Objects::default();
        for user in users {
            user.read_back()?;
            seen.add(&user.seen);
        }
        Ok(Some(seen))
    }

    fn keys(&self, phase: u32) -> Keys<'_> {
        Keys { seed: self.seed, phase, keyspaces: &self.driven }
    }

    fn work(
        &self,
        phase: u32,
        number: u64,
        random: &mut Random,
        stopped: &AtomicBool,
    ) -> Result<Vec<KeyCall>> {
        let mut client = match number < NATIVE_CLIENTS {
            true => self.lab.native_client(number)?,
            false => self.lab.resp_client(number),
        };
        workload::run(&mut client, number, random, self.keys(phase), stopped)
    }

    /// Injects the events at their times.
    fn inject(&self, events: &[Scheduled]) -> Result<Vec<Injected>> {
        let begun = Instant::now();
        let inject = |&Scheduled { at, event }: &Scheduled| {
            sleep_until(begun + at, self.interrupted)?;
            let at_ns = nicekv_runtime::now().boot_ns;
            self.carry_out(event)?;
            Ok(Injected { at_ns, event })
        };
        events.iter().map(inject).collect()
    }

    fn carry_out(&self, event: FaultEvent) -> Result<()> {
        let scope = &self.lab.scope;
        let all = |change: &dyn Fn(&mut LinkFaults)| faults::change(scope, None, change);
        let cut = |host: Host, inward, outward| {
            faults::change(scope, Some(&host.to_string()), |faults| {
                (faults.cut_in, faults.cut_out) = (inward, outward);
            })
        };
        match event {
            FaultEvent::Kill(host) => self.lab.kill(host),
            FaultEvent::KillHost(host) => {
                self.lab.kill(host)?;
                host.edge().map_or(Ok(()), |edge| self.lab.kill(edge))
            }
            FaultEvent::StartHost(host) => {
                host.edge().map_or(Ok(()), |edge| commands::start_unwatched(scope, edge))?;
                commands::start_unwatched(scope, host)
            }
            FaultEvent::Start(host) => commands::start_unwatched(scope, host),
            FaultEvent::Cut(host, inward, outward) => cut(host, inward, outward),
            FaultEvent::Heal(host) => cut(host, false, false),
            FaultEvent::Pause(host) => commands::pause(scope, &host.to_string()),
            FaultEvent::Resume(host) => commands::resume(scope, &host.to_string()),
            FaultEvent::RestartSwitch(switch) => {
                self.lab.kill(switch)?;
                commands::start_unwatched(scope, switch)
            }
            FaultEvent::Unplug(one, other) => {
                faults::set_link(scope, &one.to_string(), &other.to_string(), false)
            }
            FaultEvent::Plug(one, other) => {
                faults::set_link(scope, &one.to_string(), &other.to_string(), true)
            }
            FaultEvent::Loss(percent) => all(&|faults| faults.loss_percent = percent as f64),
            FaultEvent::Duplicate(percent) => all(&|faults| faults.duplicate_percent = percent as f64),
        }
    }

    /// How long the cluster took to recover after the last fault.
    fn wait_until_whole(&self) -> Result<Duration> {
        let begun = Instant::now();
        self.lab.heal()?;
        self.lab.wait_until_whole(self.interrupted)?;
        Ok(begun.elapsed())
    }

    /// Reads every key of the phase.
    fn read_back(&self, phase: u32) -> Result<Vec<KeyCall>> {
        let (mut client, keys) = (self.lab.native_client(0)?, self.keys(phase));
        let read = |key| {
            let call = keys.call(&mut client, key, Action::Get)?;
            if call.answered.is_none() {
                // Tells a key that is lost to all from one that this client's socket does not reach.
                let again = keys.call(&mut self.lab.native_client(0)?, key, Action::Get)?;
                let by_another =
                    if again.answered.is_some() { "another client can" } else { "nor by another client" };
                eprintln!("nicekv: {} cannot be read; {by_another}", keys.full_name(key));
            }
            Ok((key, call))
        };
        keys.all().map(read).collect()
    }
}
