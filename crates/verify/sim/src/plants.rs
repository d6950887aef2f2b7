//! How planted bugs are hunted. Each must be found: a checker that has not been shown to find bugs
//! proves nothing.
//!
//! The bugs, and the rules that they break, are in `crates/verify/mutants/plants`. `.ci/plants`
//! weaves them into a copy of the sources. A new bug that the simulator must find also needs an
//! entry here.

use crate::client::Workload;
use crate::cluster::Scenario;
use crate::explore::parts::{
    FAILOVER, RESTART, SUSPICION, increment_and_transaction, increments, set_and_get,
};
use crate::explore::{self, Bounds, Call, World};
use crate::faults::Faults;
use crate::features;
use crate::features::chains::{
    by_clients_of_paused_nodes, chains, chains_losing_answers, chains_reshaped, chains_that_move,
    chains_that_restart, chains_with_late_messages, chains_with_spares,
};
use crate::features::membership::{late_with_handoffs, left_and_back, nodes_come_and_go, with_handoffs};
use crate::features::metadata_faults::{forgetful_metadata, shared_store};
use crate::features::migration::migrating;
use crate::features::quorum::{
    by_quorum, by_quorum_in_memory, damage_by_quorum, deletions_at_busy_nodes, deletions_by_quorum,
    places_change, places_change_and_deletions, sole_holders_leave,
};
use crate::features::reshaping::{
    reshaped, reshaped_with_crashes, reshaped_with_late_pages, reshaped_with_losses_of_power,
    reshaped_with_older_disks,
};
use crate::judge;
use crate::keyspace::{Key, Shape};
use crate::network::Pace;
use crate::scenarios::{self, MILLISECOND_NS};
use nicekv_client::RetryPolicy;
use nicekv_metadata::Timing;
use nicekv_proto::{Duration, KeyOrder};

/// A hunt gives up after this number of seeds.
pub const SEEDS_MAX: u64 = 2_000;
/// Upper bound of the states of an exploration.
const STATES_MAX: usize = 3_000_000;

/// A planted bug, and how it is hunted.
pub struct Plant {
    pub name: &'static str,
    hunt: Hunt,
}

/// How a bug is hunted.
#[derive(Clone, Copy)]
enum Hunt {
    /// Random runs, in scenarios shaped to reveal the bug.
    Seeds(fn(&mut Scenario)),
    /// A script of faults, by name.
    Script(&'static str),
    /// Every state of a tiny cluster.
    Explore(fn() -> Vec<Call>, Bounds),
    /// Every state of a tiny cluster with chain replication.
    ExploreChain(fn() -> Vec<Call>, Bounds),
}

/// How a bug was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The seed of the run; `None`: by exploration.
    pub seed: Option<u64>,
    pub violation: String,
}

/// The result of a hunt.
#[derive(Clone, Debug, Default)]
pub struct Hunted {
    /// `None`: not found.
    pub found: Option<Found>,
    /// Number of seeds that were run.
    pub seeds: u64,
}

pub fn find(name: &str) -> Option<&'static Plant> {
    PLANTS.iter().find(|plant| plant.name == name)
}

impl Plant {
    /// Hunts the bug in at most [`SEEDS_MAX`] seeds, or in one. `begin` is called with each seed
    /// before its run, in which a core may panic.
    pub fn hunt(&self, only: Option<u64>, print: Option<fn(&str)>, begin: impl Fn(u64)) -> Hunted {
        let mut hunted = Hunted::default();
        let world: Option<fn(_, _) -> _> = match self.hunt {
            Hunt::Explore(..) => Some(World::new),
            Hunt::ExploreChain(..) => Some(World::of_chain),
            _ => None,
        };
        if let (Some(world), Hunt::Explore(script, bounds) | Hunt::ExploreChain(script, bounds)) =
            (world, self.hunt)
        {
            let seen = explore::explore(world(script(), bounds), STATES_MAX);
            hunted.found = seen.violation.map(|(what, steps)| {
                let steps = steps.iter().map(|step| format!("\n  {step:?}"));
                Found { seed: None, violation: format!("{what}\nafter{}", steps.collect::<String>()) }
            });
            return hunted;
        }
        for seed in only.map_or(1..=SEEDS_MAX, |seed| seed..=seed) {
            hunted.seeds += 1;
            begin(seed);
            let report = self.run(seed, print);
            if let Some(violation) = report.violations.into_iter().next() {
                hunted.found = Some(Found { seed: Some(seed), violation });
                return hunted;
            }
        }
        hunted
    }

    fn run(&self, seed: u64, print: Option<fn(&str)>) -> judge::Report {
        match self.hunt {
            Hunt::Script(name) => script(name).run(seed, print).0,
            Hunt::Seeds(shape) => {
                let mut scenario = crate::features::coordination::by_switch(judge::draw_single(seed));
                scenario.workload.scans = (0, 0, 1);
                scenario.kernel_gets = false;
                shape(&mut scenario);
                judge::run(scenario, seed, print)
            }
            Hunt::Explore(..) | Hunt::ExploreChain(..) => unreachable!("has no seeds"),
        }
    }
}

fn script(name: &str) -> &'static scenarios::Script {
    scenarios::find(name).expect("there is such a script")
}

const fn plant(name: &'static str, hunt: Hunt) -> Plant {
    Plant { name, hunt }
}

#[rustfmt::skip]
pub const PLANTS: &[Plant] = &[
    plant("decide-before-all-acks", Hunt::Seeds(as_drawn)),
    plant("decide-before-all-acks-explored", Hunt::Explore(set_and_get, FAILOVER)),
    plant("ack-before-force", Hunt::Seeds(as_drawn)),
    plant("ack-before-force-explored", Hunt::Explore(set_and_get, RESTART)),
    plant("count-older-acks", Hunt::Seeds(as_drawn)),
    plant("ignore-contention", Hunt::Explore(increments, FAILOVER)),
    plant("show-contended-early", Hunt::Seeds(as_drawn)),
    plant("show-contended-early-explored", Hunt::Explore(increments, FAILOVER)),
    plant("contended-not-forced", Hunt::Script("power-loss-and-another-primary")),
    plant("stale-get-at-locked-secondary", Hunt::Seeds(as_drawn)),
    plant("stale-get-at-locked-secondary-explored", Hunt::Explore(set_and_get, FAILOVER)),
    plant("lock-not-told", Hunt::Seeds(as_drawn)),
    plant("scan-at-secondary", Hunt::Seeds(|scenario| scenario.workload.scans = (5, 0, 1))),
    plant("scan-during-recovery", Hunt::Seeds(|scenario| scenario.workload.scans = (5, 0, 1))),
    plant("scan-beyond-reach", Hunt::Seeds(|scenario| { reshaped(scenario); scenario.workload.scans = (5, 0, 1); })),
    plant("scan-short", Hunt::Seeds(|scenario| scenario.workload.scans = (5, 0, 1))),
    plant("scan-holes-forgotten", Hunt::Seeds(scans_that_are_split)),
    plant("scan-limit-is-end", Hunt::Seeds(scans_that_are_split)),
    plant("pieces-cut-again", Hunt::Seeds(crate::features::switch_trees::trees)),
    plant("recovery-aborts", Hunt::Seeds(as_drawn)),
    plant("recovery-aborts-explored", Hunt::Explore(set_and_get, FAILOVER)),
    plant("adopt-nothing", Hunt::Explore(set_and_get, FAILOVER)),
    plant("get-during-recovery", Hunt::Explore(set_and_get, FAILOVER)),
    plant("version-is-timestamp", Hunt::Seeds(as_drawn)),
    plant("work-is-silence", Hunt::Script("append-takes-seconds")),
    plant("receiving-is-silence", Hunt::Script("append-takes-seconds")),
    plant("joiner-keeps-former-life", Hunt::Script("primary-dies-with-its-decisions")),
    plant("epoch-unchecked", Hunt::Seeds(late_messages)),
    plant("tombstone-dropped-early", Hunt::Seeds(as_drawn)),
    plant("overwrite-not-noted", Hunt::Seeds(as_drawn)),
    plant("former-move-kept", Hunt::Seeds(nodes_come_and_go)),
    plant("handoff-not-emptied", Hunt::Seeds(left_and_back)),
    plant("handoff-denies-missing", Hunt::Seeds(with_handoffs)),
    plant("answer-after-leaving", Hunt::Seeds(late_with_handoffs)),
    plant("restarted-answers-at-once", Hunt::Script("disks-without-their-last-moments")),
    plant("open-ops-not-fetched", Hunt::Script("disks-without-their-last-moments")),
    plant("unproven-takes-new-ops", Hunt::Script("disks-without-their-last-moments")),
    plant("forgetting-ignored", Hunt::Script("older-disks")),
    plant("answer-unadmitted", Hunt::Script("restarted-but-reachable")),
    plant("dedupe-forgotten-at-failover", Hunt::Seeds(as_drawn)),
    plant("retry-takes-new-op", Hunt::Seeds(as_drawn)),
    plant("timeout-is-failure", Hunt::Seeds(as_drawn)),
    plant("no-room-told-undecided", Hunt::Seeds(features::large_values::without_room)),
    plant("sharers-forgotten", Hunt::Seeds(features::large_values::shared)),
    plant("any-reply-answers", Hunt::Seeds(as_drawn)),
    plant("everything-sent-at-once", Hunt::Seeds(overloaded)),
    plant("expiry-by-local-clock", Hunt::Seeds(as_drawn)),
    plant("lease-ignored", Hunt::Script("removed-but-reachable")),
    plant("orphans-ignored", Hunt::Seeds(as_drawn)),
    plant("scrub-blind", Hunt::Seeds(replaced_entries)),
    plant("removal-not-awaited", Hunt::Script("removed-but-reachable")),
    plant("absent-switch-counted", Hunt::Seeds(with_edges)),
    plant("divided-too-early", Hunt::Seeds(as_drawn)),
    plant("removed-keeps-division", Hunt::Seeds(as_drawn)),
    plant("promote-before-copied", Hunt::Seeds(as_drawn)),
    plant("inconsistent-leads", Hunt::Seeds(as_drawn)),
    plant("handoff-leads", Hunt::Seeds(with_handoffs)),
    plant("restart-unnoticed", Hunt::Seeds(as_drawn)),
    plant("empty-storage-trusted", Hunt::Seeds(in_memory)),
    plant("older-state-trusted", Hunt::Script("older-metadata-state")),
    plant("strays-kept", Hunt::Seeds(reshaped_with_older_disks)),
    plant("forgetting-trusted", Hunt::Script("older-disk-of-a-quorum")),
    plant("direct-lease-ignored", Hunt::Seeds(by_clients_of_paused_nodes)),
    plant("torn-op-kept", Hunt::Seeds(features::large_values::killed)),
    plant("checksum-ignored", Hunt::Seeds(features::large_values::garbled)),
    plant("prepared-without-value", Hunt::Seeds(features::large_values::killed)),
    plant("straggler-counted", Hunt::Seeds(features::large_values::by_quorum)),
    plant("decide-before-made-held", Hunt::Seeds(features::large_values::appended)),
    plant("values-unread", Hunt::Seeds(features::large_values::damaged)),
    plant("lease-to-removed", Hunt::Script("removed-but-reachable")),
    plant("lease-not-awaited", Hunt::Script("removed-but-reachable")),
    plant("old-flows-forgotten", Hunt::Script("removed-but-reachable-by-old-flows")),
    plant("former-leases-forgotten", Hunt::Script("removed-but-reachable")),
    plant("get-without-write-back", Hunt::Seeds(by_quorum)),
    plant("one-replica-counts-twice", Hunt::Seeds(by_quorum)),
    plant("timestamp-from-one-answer", Hunt::Seeds(by_quorum)),
    plant("quorum-ack-before-force", Hunt::Seeds(by_quorum)),
    plant("newcomer-counts-at-once", Hunt::Seeds(by_quorum_in_memory)),
    plant("put-stored-again-unasked", Hunt::Seeds(deletions_by_quorum)),
    plant("repair-from-too-few", Hunt::Seeds(damage_by_quorum)),
    plant("deletion-forgotten-without-fence", Hunt::Seeds(deletions_by_quorum)),
    plant("deletion-forgotten-that-not-all-hold", Hunt::Seeds(deletions_by_quorum)),
    plant("written-while-forgetting-is-read", Hunt::Seeds(deletions_at_busy_nodes)),
    plant("store-of-older-epoch-taken", Hunt::Seeds(deletions_by_quorum)),
    plant("floor-not-told", Hunt::Seeds(deletions_by_quorum)),
    plant("successor-not-awaited", Hunt::Seeds(places_change)),
    plant("successor-answers-early", Hunt::Script("who-has-left-does-not-hear-of-it")),
    plant("successor-merges-a-part", Hunt::Seeds(places_change)),
    plant("newcomer-by-quorum-not-emptied", Hunt::Seeds(places_change_and_deletions)),
    plant("succession-outlives-process", Hunt::Script("who-leaves-starts-again")),
    plant("successor-untold", Hunt::Script("successor-does-not-hear-that-it-is-none")),
    plant("sole-holder-given-up", Hunt::Seeds(sole_holders_leave)),
    plant("tables-acknowledged-early", Hunt::Seeds(as_drawn)),
    plant("older-term-obeyed", Hunt::Seeds(as_drawn)),
    plant("tables-survive-restart", Hunt::Seeds(as_drawn)),
    plant("trunk-echoes", Hunt::Seeds(in_a_chain)),
    plant("record-ends-early", Hunt::Seeds(by_range)),
    plant("record-of-the-address", Hunt::Seeds(by_range)),
    plant("step-written-unguarded", Hunt::Seeds(shared_store)),
    plant("lease-taken-at-once", Hunt::Seeds(shared_store)),
    plant("hold-ignored", Hunt::Script("leader-outlives-its-lease")),
    plant("discard-not-broken-off", Hunt::Seeds(left_and_back)),
    plant("drop-not-awaited", Hunt::Seeds(keyspaces_come_and_go)),
    plant("keyspace-number-reused", Hunt::Seeds(keyspaces_come_and_go)),
    plant("deletion-not-mirrored", Hunt::Seeds(reshaped)),
    plant("filled-over-newer", Hunt::Seeds(reshaped_with_late_pages)),
    plant("formed-not-cleared", Hunt::Seeds(reshaped_with_crashes)),
    plant("sealed-takes-ops", Hunt::Seeds(reshaped)),
    plant("drained-too-early", Hunt::Seeds(reshaped)),
    plant("heir-forgets-clients", Hunt::Seeds(reshaped)),
    plant("parent-answers-after-birth", Hunt::Seeds(reshaped)),
    plant("ended-parent-revived", Hunt::Seeds(reshaped)),
    plant("end-not-logged", Hunt::Seeds(reshaped_with_losses_of_power)),
    plant("birth-not-forced", Hunt::Seeds(reshaped_with_losses_of_power)),
    plant("birth-not-awaited", Hunt::Seeds(reshaped)),
    plant("parent-not-kept", Hunt::Seeds(reshaped_with_crashes)),
    plant("chain-gap-skipped", Hunt::Seeds(chains)),
    plant("forced-before-not-awaited", Hunt::Seeds(chains_that_restart)),
    plant("head-answers", Hunt::Seeds(chains)),
    plant("results-stay-at-head", Hunt::Seeds(chains_losing_answers)),
    plant("chain-epoch-unchecked", Hunt::Seeds(chains_with_late_messages)),
    plant("refusal-is-failure", Hunt::Seeds(crate::features::chains::by_clients)),
    plant("chain-header-unchecked", Hunt::Seeds(chains)),
    plant("chain-header-believed", Hunt::Seeds(chains)),
    plant("never-sent-again", Hunt::Seeds(chains)),
    plant("full-disk-not-told", Hunt::Script("chain-without-space-behind-the-head")),
    plant("tail-speaks-early", Hunt::ExploreChain(set_and_get, SUSPICION)),
    plant("spare-keeps-former-life", Hunt::Seeds(chains_with_spares)),
    plant("spare-promoted-uncopied", Hunt::Seeds(chains_with_spares)),
    plant("joiner-not-awaited", Hunt::Seeds(chains)),
    plant("head-adopts-nothing", Hunt::Seeds(chains_that_restart)),
    plant("move-uncopied", Hunt::Seeds(chains_that_move)),
    plant("chain-split-before-level", Hunt::Seeds(chains_reshaped)),
    plant("chain-split-takes-puts", Hunt::Seeds(chains_reshaped)),
    plant("chain-heir-forgets-clients", Hunt::Seeds(chains_reshaped)),
    plant("chain-born-tail-not-awaited", Hunt::Seeds(chains_reshaped)),
    plant("moved-within-its-rest", Hunt::Seeds(migrating)),
    plant("split-at-the-first", Hunt::Script("load-on-the-first-of-ordered-keys")),
    plant("hot-key-moved-about", Hunt::Script("one-key-is-too-hot")),
    plant("hot-neighbours-merged", Hunt::Script("load-on-the-first-of-ordered-keys")),
    plant("stale-stamp-taken", Hunt::Seeds(crate::features::object_names::names)),
    plant("round-adopted-unheard", Hunt::Seeds(crate::features::object_names::names)),
    plant("full-partition-kept", Hunt::Seeds(crate::features::full_partitions::fills)),
    plant("switches-above-learn-first", Hunt::Script("a-chain-moves-from-rack-to-rack")),
    plant("ports-trusted", Hunt::Script("port-missing")),
    plant("racks-not-counted", Hunt::Script("a-rack-is-cut-off-with-the-tail")),
    plant("rack-keeps-records", Hunt::Script("a-rack-starts-again-without-records")),
    plant("lock-ignored-by-kernel", Hunt::Seeds(features::kernel_gets::shared)),
    plant("entry-evicted-open", Hunt::Seeds(features::kernel_gets::crowded)),
    plant("version-read-once", Hunt::Seeds(features::kernel_gets::crowded)),
    plant("kernel-lease-unchecked", Hunt::Seeds(features::kernel_gets::removed)),
    plant("void-entries-kept", Hunt::Seeds(features::kernel_gets::removed)),
    plant("digest-for-key", Hunt::Seeds(features::kernel_gets::alike)),
    plant("kernel-shows-expiring", Hunt::Seeds(features::kernel_gets::expiring)),
    plant("kernel-outlives-process", Hunt::Seeds(features::kernel_gets::killed)),
    plant("kernel-gets-uncounted", Hunt::Seeds(features::kernel_gets::shared)),
    plant("kernel-answers-more", Hunt::Seeds(features::kernel_gets::shared)),
    plant("hot-instance-reused", Hunt::Seeds(features::hot_keys::restless)),
    plant("hot-updates-not-counted", Hunt::Seeds(features::hot_keys::shared)),
    plant("hot-copy-undecided", Hunt::Seeds(features::hot_keys::shared)),
    plant("hot-evidence-ignored", Hunt::Seeds(features::hot_keys::lossy)),
    plant("hot-instance-unchecked", Hunt::Seeds(features::hot_keys::restless)),
    plant("hot-stamp-unchecked", Hunt::Seeds(features::hot_keys::shared)),
    plant("hot-instance-unchecked-by-kernel", Hunt::Seeds(features::hot_keys::restless_in_kernels)),
    plant("hot-stamp-unchecked-by-kernel", Hunt::Seeds(features::hot_keys::in_kernels)),
    plant("hot-instance-in-two-switches", Hunt::Seeds(features::hot_keys::among_switches)),
    plant("hot-value-stale", Hunt::Seeds(features::hot_keys::shared)),
    plant("hot-value-of-another-key", Hunt::Seeds(features::hot_keys::alike)),
    plant("hot-member-past-its-fence", Hunt::Seeds(features::hot_keys::removed_holders)),
    plant("transaction-half-taken", Hunt::Seeds(features::transactions::transactions)),
    plant("former-transaction-half-taken", Hunt::Seeds(features::transactions::with_restarts)),
    plant("transaction-next-at-first-key", Hunt::Seeds(features::transactions::with_failovers)),
    plant("transaction-contended-at-first-key", Hunt::Explore(increment_and_transaction, FAILOVER)),
    plant("transaction-releases-first-key", Hunt::Seeds(features::transactions::with_restarts)),
    plant("transaction-requirement-unread", Hunt::Seeds(features::transactions::transactions)),
    plant("hash-fields-alone", Hunt::Seeds(features::hashes::hashes)),
    plant("hash-form-forgotten", Hunt::Seeds(features::hashes::hashes)),
    plant("script-keys-unread", Hunt::Seeds(features::transactions::scripts)),
    plant("script-clock-read", Hunt::Seeds(features::transactions::scripts)),
    plant("message-heard-again", Hunt::Seeds(features::pubsub::messages)),
    plant("repeat-told", Hunt::Seeds(features::pubsub::messages)),
    plant("left-listener-kept", Hunt::Seeds(features::pubsub::messages)),
    plant("late-listen-taken", Hunt::Seeds(features::pubsub::messages)),
    plant("pattern-is-channel", Hunt::Seeds(features::pubsub::messages)),
    plant("listeners-of-address-one", Hunt::Seeds(features::pubsub::messages)),
    plant("op-marks-ignored", Hunt::Seeds(features::transactions::deadly)),
    plant("script-failure-kept", Hunt::Seeds(features::transactions::scripts)),
    plant("speak-before-persisted", Hunt::Seeds(forgetful_metadata)),
];

fn as_drawn(_: &mut Scenario) {}

/// Three switches in a row, with trunks between them.
fn in_a_chain(scenario: &mut Scenario) {
    (scenario.switches, scenario.trunks) = (3, crate::trunks::Trunks::Chain);
    (scenario.edges, scenario.hides_sources) = (false, false);
}

/// Every host has a switch of its own. Agents often lose the metadata service, and leases are
/// longer than it takes to suspect a node.
fn with_edges(scenario: &mut Scenario) {
    (scenario.edges, scenario.hides_sources) = (true, false);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 20);
    (scenario.workload.large, scenario.workload.pause_ns_max) = (0, 10 * MILLISECOND_NS);
    scenario.timing.lease = Duration::from_millis(500);
    scenario.faults.agent_cut = 200_000;
    scenario.faults.downtime_max_ns = 1_000_000_000;
}

/// No faults, and far more requests than the nodes can handle.
pub fn overloaded(scenario: &mut Scenario) {
    // A single metadata instance: several would share a store that does not always answer.
    (scenario.nodes, scenario.instances) = (3, 1);
    (scenario.clients, scenario.keyspaces) = (3, vec![Shape::multicast(3, 0)]);
    (scenario.pace, scenario.faults, scenario.retries_max) = (Pace::BUSY, Faults::NONE, Some(10));
    // If gets were divided anew, a client would change over to another node's queue.
    scenario.timing.divide_interval = Timing::default().divide_interval;
    scenario.workload = Workload {
        keys: Key::several(0, 2_000),
        skew: 1,
        calls: 4_000,
        window: 1_500,
        // The first epoch has begun by then.
        begins_ns: 500 * MILLISECOND_NS,
        retry_min: RetryPolicy::default().min,
        pause_ns_max: 2_000,
        timeout_ns: 5_000 * MILLISECOND_NS,
        expiring: 0,
        large: 0,
        whole_bytes_max: 0,
        appends: 0,
        reads_at_once: 0,
        gets: 0,
        transactions: 0,
        hashes: 0,
        scripts: 0,
        messages: 0,
        scans: (0, 0, 1),
        shift_ns: 0,
    };
}

/// Ordered keys, in partitions on different nodes.
fn by_range(scenario: &mut Scenario) {
    (scenario.nodes, scenario.keyspaces) = (5, vec![Shape::multicast(3, 2).by_range()]);
    scenario.workload.keys = Key::of(0, KeyOrder::Range, 12);
}

/// The same, with scans that want at most three pieces, fewer than there are partitions. Some
/// pieces are lost.
fn scans_that_are_split(scenario: &mut Scenario) {
    by_range(scenario);
    scenario.workload.scans = (5, 300, 3);
    scenario.faults.loss = scenario.faults.loss.max(50_000);
}

/// The operator creates and drops keyspaces, while switches and nodes lose the metadata service.
fn keyspaces_come_and_go(scenario: &mut Scenario) {
    scenario.faults.keyspace_interval_ns = 150 * MILLISECOND_NS;
    scenario.faults.cut_interval_ns = 200 * MILLISECOND_NS;
    scenario.faults.agent_cut = 100_000;
}

/// At the end some entries are replaced by wrong ones.
fn replaced_entries(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, scenario.workload.keys.len());
    scenario.faults = Faults { replacement: 500_000, ..Faults::NONE };
}

/// Nodes restart with empty disks, and messages of earlier epochs arrive late.
fn late_messages(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, scenario.workload.keys.len());
    scenario.faults = Faults::LATE_MESSAGES;
}

/// Some nodes store in memory, and restart empty.
fn in_memory(scenario: &mut Scenario) {
    scenario.faults =
        Faults { crash: 2_000, memory: 500_000, downtime_max_ns: 100 * MILLISECOND_NS, ..Faults::NONE };
}
