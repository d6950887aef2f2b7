//! A quorum keyspace (rule R14) in one thread, from one seed: the cores of production, as in [`cluster`](crate::cluster), and a world
//! of its own for what is different: clients in two rounds, disks that are lost for good, nodes that are a hundred times slower.
//!
//! ```text
//!   mishaps ─▶ machines (replica + disk) ◀─ datagrams ─▶ clients ─▶ history ─▶ checker
//!                     ▲   epochs, leases
//!                     └── metadata ─▶ switch
//! ```

pub mod client;
pub mod machine;
pub mod world;

use crate::checker::{Call, Verdict, check};
use crate::random::Random;
pub use client::KeyCall;
use nicekv_client::Plant as InClient;
use nicekv_node::Plant;
use nicekv_replication::Replica;
use nicekv_wire::quorum::Quorum;
pub use world::{Host, World};

const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MILLISECOND_NS;
/// After all faults are healed everything must be done within this (check V).
const PROGRESS_NS: u64 = 20 * SECOND_NS;
/// Longer than two forces on the slowest disk.
const DISKS_NS: u64 = 3 * SECOND_NS;

/// What clients do: gets, puts and deletes.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Number of keys.
    pub keys: usize,
    /// Calls per client.
    pub calls: usize,
    /// Calls of one client at a time.
    pub window: usize,
    /// Longest pause before the next call.
    pub pause_ns_max: u64,
    /// A call is given up after so long.
    pub timeout_ns: u64,
}

/// What goes wrong. Rates are per million datagrams.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as in `Faults` of a cluster")]
pub struct Faults {
    pub loss_per_million: u64,
    pub duplication_per_million: u64,
    pub delay_per_million: u64,
    pub delay_ns_max: u64,
    /// A force of the log takes up to so much longer.
    pub disk_ns_max: u64,
    /// Longest pause between two mishaps; 0: there are none.
    pub mishap_interval_ns: u64,
    /// A mishap may kill a node, for at most `downtime_ns_max`.
    pub kills: bool,
    pub downtime_ns_max: u64,
    /// A killed node may come back with an empty disk, while all others count.
    pub lost_disks: bool,
    /// A mishap may cut two hosts off from each other.
    pub cuts: bool,
    /// A mishap may make a node up to 100 times slower.
    pub slow_nodes: bool,
}

impl Faults {
    /// All is well.
    pub const NONE: Self = Self {
        loss_per_million: 0,
        duplication_per_million: 0,
        delay_per_million: 0,
        delay_ns_max: 1,
        disk_ns_max: 200_000,
        mishap_interval_ns: 0,
        kills: false,
        downtime_ns_max: 1,
        lost_disks: false,
        cuts: false,
        slow_nodes: false,
    };

    fn draw(random: &mut Random) -> Self {
        Self {
            loss_per_million: random.pick(&[0, 10_000, 150_000]),
            duplication_per_million: random.pick(&[0, 10_000, 300_000]),
            delay_per_million: random.pick(&[0, 10_000, 200_000]),
            delay_ns_max: random.pick(&[1, 20, 200]) * MILLISECOND_NS,
            disk_ns_max: random.pick(&[1, 5, 10]) * MILLISECOND_NS,
            mishap_interval_ns: random.pick(&[50, 200, 500]) * MILLISECOND_NS,
            kills: random.below(4) > 0,
            downtime_ns_max: random.pick(&[10, 100, 500]) * MILLISECOND_NS,
            lost_disks: random.below(2) == 0,
            cuts: random.below(2) == 0,
            slow_nodes: random.below(2) == 0,
        }
    }
}

/// Shape of a cluster and of what it goes through.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// R, which is also the number of nodes, and k.
    pub quorum: Quorum,
    /// Clients.
    pub clients: usize,
    /// What they do.
    pub workload: Workload,
    /// What goes wrong, for `faults_end_ns`.
    pub faults: Faults,
    /// When everything is healed.
    pub faults_end_ns: u64,
    /// A bug of the clients.
    pub client_plant: Option<InClient>,
    /// A bug of the replicas.
    pub replica_plant: Option<Plant>,
}

/// A random scenario.
pub fn draw(seed: u64) -> Scenario {
    let mut random = Random::new(!seed);
    let (replicas, write_set) =
        random.pick(&[(3, 2), (3, 2), (3, 1), (3, 3), (5, 3), (5, 2), (4, 2), (2, 1)]);
    let keys = random.pick(&[1, 2, 8]);
    Scenario {
        quorum: Quorum::new(replicas, write_set).expect("sound"),
        clients: random.between(2, 4) as usize,
        workload: Workload {
            keys,
            calls: if keys > 2 { 200 } else { 80 },
            window: random.pick(&[1, 2]),
            pause_ns_max: random.pick(&[20, 60]) * MILLISECOND_NS,
            timeout_ns: random.pick(&[SECOND_NS / 2, 2 * SECOND_NS]),
        },
        faults: Faults::draw(&mut random),
        faults_end_ns: 3 * SECOND_NS,
        client_plant: None,
        replica_plant: None,
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Empty if all is well.
    pub violations: Vec<String>,
    /// Histories with so many unknown outcomes at once that no verdict was reached.
    pub too_large: usize,
    /// Calls that were answered.
    pub answered: usize,
}

/// Runs a scenario to its end and judges it (SCENARIOS, checks L, D and V).
pub fn run(scenario: Scenario, seed: u64) -> Report {
    let mut world = World::new(scenario, seed);
    world.run_until(scenario.faults_end_ns, |_| false);
    world.heal();
    let is_whole = |world: &World| {
        world.clients.iter().all(client::Client::is_done)
            && world.machines.iter().all(machine::Machine::is_counted)
    };
    world.run_until(world.now_ns() + PROGRESS_NS, is_whole);
    let mut report = Report::default();
    if !is_whole(&world) {
        let standing = world.machines.iter().map(|machine| machine.core.as_ref().map(Replica::status));
        let (standing, partitions) = (standing.collect::<Vec<_>>(), world.status().partitions);
        report.violations.push(format!(
            "calls stay open, or a node does not count again (V): {standing:#?} {partitions:#?}"
        ));
    }
    // Disks that were slow have begun what they end later.
    world.run_for(DISKS_NS);
    for key in 0..scenario.workload.keys {
        for client in 0..scenario.clients {
            if world.finish_call(client, key, None).call.answered.is_none() {
                report.violations.push(format!("key {key} cannot be read though all is well (V)"));
            }
        }
    }
    judge_histories(&world, &mut report);
    report
}

/// The history of each key must be linearizable.
pub fn judge_histories(world: &World, report: &mut Report) {
    for key in 0..world.scenario.workload.keys {
        let histories = world.clients.iter().flat_map(|client| &client.history);
        let calls: Vec<Call> =
            histories.filter(|call| call.key == key && !call.is_void).map(|call| call.call.clone()).collect();
        report.answered += calls.iter().filter(|call| call.answered.is_some()).count();
        match check(&calls) {
            Verdict::Linearizable => {}
            Verdict::Violation => {
                report.violations.push(format!("the history of key {key} is not linearizable (L)"));
            }
            Verdict::TooLarge => report.too_large += 1,
        }
    }
}
