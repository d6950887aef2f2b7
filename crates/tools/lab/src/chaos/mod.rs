//! `nicekv lab chaos`: real clients, faults from a seed, and the simulator's judge.
//!
//! ```text
//!   phase   0 s ──── faults, overlapping ────▶ 12 s ── whole again? ──▶ clients stop ── read every key ──▶ judge
//!   native clients ── UDP ──▶ vrings  ┐
//!   Redis clients ── gateways ─────────┴─▶ history of each key ──▶ linearizable?
//! ```
//!
//! Beside the faults, one operator drains and adds nodes ([`changes`]), and another one has partitions split and merged ([`reshapings`]).
//!
//! Every keyspace of the lab is driven at the same time, by the same clients, and judged for itself: those with a primary and those by quorum
//! under the same faults. Every phase has keys of its own, so that histories stay short enough to be judged. The reads at the end belong to the history: an
//! acknowledged update that is missing then has no place in any order.
//!
//! What is drawn is the same for every run with a seed; when packets and processes meet is not, so a failure is found again at best
//! by patience. The history of the key is written down.

mod changes;
mod judge;
mod large;
mod objects;
mod reshapings;
mod schedule;
mod transfers;
mod workload;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicekv_history::Action;
use nicekv_proto::placement::{KeyspaceSpec, LoadBalancing, Protocol};
use nicekv_testkit::Random;

use crate::commands;
use crate::error::Result;
use crate::faults;
use crate::layout::Layout;
use crate::links;
use crate::own::{NODES, OwnLab, Wanted};
use crate::scope::Scope;
use crate::up::{interruption, stop_if};
use crate::{ChaosArguments, MetadataStore, NetworkArguments, Roles};

use changes::{Heard, SPARES, Trip};
use judge::Report;
use objects::{Objects, User};
use reshapings::Reshapings;
use schedule::{Deed, Done, Step, Victims};
use transfers::Mover;
use workload::{KeyCall, Keys};

/// For which faults are injected in a phase.
const PHASE: Duration = Duration::from_secs(12);
const NATIVE_CLIENTS: u64 = 5;
const RESP_CLIENTS: u64 = 5;
/// An interruption is looked at this often.
const NAP: Duration = Duration::from_millis(50);

/// Runs the phases; exit code 1 if one of them failed.
pub(crate) fn run(base: &Scope, arguments: &ChaosArguments, roles: Roles<'_>) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| nicekv_runtime::now().boot_ns % 1_000_000);
    let further = arguments.keyspaces.iter().map(|text| format!(" --keyspace {text}"));
    let &ChaosArguments { minutes, control, network, .. } = arguments;
    let NetworkArguments { fabric, .. } = network;
    let further = further.collect::<String>();
    println!("chaos --minutes {minutes} --seed {seed} {control} {network}{further}");
    let interrupted = interruption()?;
    let wanted = Wanted { further: &arguments.keyspaces, spares: SPARES, control, network };
    let lab = OwnLab::up(base, "chaos", wanted, roles, &interrupted)?;
    let victims = Victims {
        nodes: NODES + SPARES,
        fabric,
        instances: control.instances as u8,
        has_etcd: control.store == MetadataStore::Etcd,
        layout: Layout::new(network.topology, network.switches, usize::from(NODES + SPARES)),
    };
    let (named, driven) = lab.keyspaces.iter().cloned().partition::<Vec<_>, _>(|spec| spec.chunks.is_some());
    let chaos =
        Chaos { lab: &lab, driven, has_objects: !named.is_empty(), victims, seed, interrupted: &interrupted };
    let end = Instant::now() + Duration::from_secs_f64(60.0 * arguments.minutes);
    let mut total = Report::default();
    for phase in 1.. {
        let span = PHASE.min(end.saturating_duration_since(Instant::now()));
        if span.is_zero() {
            break;
        }
        let report = match chaos.phase(phase, span) {
            Ok(report) => report,
            // What the operator has ended is no failure of the cluster.
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

/// An interruption ends it.
fn sleep_until(at: Instant, interrupted: &AtomicBool) -> Result<()> {
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stop_if(interrupted)?;
        std::thread::sleep(left.min(NAP));
    }
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Chaos<'a> {
    lab: &'a OwnLab,
    /// Keyspaces that clients use as such.
    driven: Vec<KeyspaceSpec>,
    /// Whether another one has names of objects.
    has_objects: bool,
    victims: Victims,
    seed: u64,
    interrupted: &'a AtomicBool,
}

/// So that nobody waits for clients that nobody stops.
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
        let steps = schedule::draw(&mut random, self.victims, span_ms);
        let trip = Trip::draw(&mut random, span_ms);
        let reshapings = Reshapings::draw(&mut random, span_ms);
        let stopped = AtomicBool::new(false);
        let users = if self.has_objects { objects::USERS } else { 0 };
        let mut users: Vec<User<'_>> = (0..users).map(|number| User::new(self.lab, phase, number)).collect();
        let mut movers = self.movers(phase);
        let (calls, (done, whole_after), heard) = std::thread::scope(|scope| {
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
            let operator = scope.spawn(move || trip.make(self.lab, begun, self.interrupted));
            let reshaper = scope.spawn(move || reshapings.make(self.lab, begun, self.interrupted));
            let done = self.inject(&steps);
            let whole_after = done.and_then(|done| Ok((done, self.wait_until_whole()?)));
            let (heard, reshaped) = (joined(operator), joined(reshaper));
            let is_settled = reshapings::wait_until_done(self.lab, self.interrupted)
                .and_then(|()| changes::wait_until_moved(self.lab, self.interrupted));
            drop(stop);
            let calls: Result<Vec<Vec<KeyCall>>> = clients.into_iter().map(joined).collect();
            let used = users.into_iter().chain(movers).try_for_each(joined);
            let (whole_after, reshapings, ()) = (whole_after?, reshaped?, is_settled.and(used)?);
            Ok::<_, crate::LabError>((calls?.concat(), whole_after, Heard { reshapings, ..heard? }))
        })?;
        let read_back = self.read_back(phase)?;
        let mut report = judge::judge(done, calls, read_back, whole_after, self.keys(phase))?;
        report.objects = self.objects(&mut users)?;
        for mover in &mut movers {
            mover.read_back()?;
            report.transfers.add(&mover.seen);
        }
        report.heard = heard;
        Ok(report)
    }

    /// Those who move amounts, in each keyspace that has transactions.
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

    /// What users of objects have seen, and see now.
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

    /// Does what the schedule says when it says so; what was begun when.
    fn inject(&self, steps: &[Step]) -> Result<Vec<Done>> {
        let begun = Instant::now();
        let carry_out = |step: &Step| {
            sleep_until(begun + step.at, self.interrupted)?;
            let at_ns = nicekv_runtime::now().boot_ns;
            self.carry_out(step.deed)?;
            Ok(Done { at_ns, deed: step.deed })
        };
        steps.iter().map(carry_out).collect()
    }

    fn carry_out(&self, deed: Deed) -> Result<()> {
        let scope = &self.lab.scope;
        let all = |change: &dyn Fn(&mut faults::CableFaults)| faults::change(scope, None, change);
        let cut = |host: crate::topology::Host, inward, outward| {
            faults::change(scope, Some(&host.to_string()), |faults| {
                (faults.cut_in, faults.cut_out) = (inward, outward);
            })
        };
        match deed {
            Deed::Kill(host) => self.lab.kill(host),
            Deed::KillHost(host) => {
                self.lab.kill(host)?;
                host.edge().map_or(Ok(()), |edge| self.lab.kill(edge))
            }
            Deed::StartHost(host) => {
                host.edge().map_or(Ok(()), |edge| commands::start_unwatched(scope, edge))?;
                commands::start_unwatched(scope, host)
            }
            Deed::Start(host) => commands::start_unwatched(scope, host),
            Deed::Cut(host, inward, outward) => cut(host, inward, outward),
            Deed::Join(host) => cut(host, false, false),
            Deed::Pause(host) => commands::pause(scope, &host.to_string()),
            Deed::Resume(host) => commands::resume(scope, &host.to_string()),
            Deed::RestartSwitch(switch) => {
                self.lab.kill(switch)?;
                commands::start_unwatched(scope, switch)
            }
            Deed::Unplug(one, other) => links::change(scope, &one.to_string(), &other.to_string(), false),
            Deed::Plug(one, other) => links::change(scope, &one.to_string(), &other.to_string(), true),
            Deed::Loss(percent) => all(&|faults| faults.loss_percent = percent as f64),
            Deed::Duplicate(percent) => all(&|faults| faults.duplicate_percent = percent as f64),
        }
    }

    /// How long after the last fault the cluster was whole.
    fn wait_until_whole(&self) -> Result<Duration> {
        let begun = Instant::now();
        self.lab.heal()?;
        self.lab.wait_until_whole(self.interrupted)?;
        Ok(begun.elapsed())
    }

    /// Reads every key of the phase.
    fn read_back(&self, phase: u32) -> Result<Vec<KeyCall>> {
        let (mut client, keys) = (self.lab.native_client(0)?, self.keys(phase));
        keys.all().map(|key| Ok((key, keys.call(&mut client, key, Action::Get)?))).collect()
    }
}
