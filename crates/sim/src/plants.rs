//! Bugs that are planted on purpose, each of which breaks a rule (R1 to R18, C1 to C12, G1 to G8, H1 to H9, T1 to T6, M1 to M3) and must be found: else what finds nothing
//! proves nothing.
//!
//! A bug belongs to the core that it is in, which has a switch for it behind its `exploration` feature; a new one is a line here.

use crate::by_chain::{
    by_clients_of_paused_nodes, chains, chains_losing_answers, chains_reshaped, chains_that_move,
    chains_that_restart, chains_with_late_messages, chains_with_spares,
};
use crate::by_leaving::{late_with_handoffs, left_and_back, lossy_joins, nodes_come_and_go, with_handoffs};
use crate::by_metadata::{forgetful_metadata, shared_store};
use crate::by_migration::migrating;
use crate::by_quorum::{
    by_quorum, by_quorum_in_memory, damage_by_quorum, deletions_at_busy_nodes, deletions_by_quorum,
    places_change, places_change_and_deletions, sole_holders_leave,
};
use crate::by_reshaping::{
    reshaped, reshaped_with_crashes, reshaped_with_late_pages, reshaped_with_losses_of_power,
    reshaped_with_older_disks,
};
use crate::client::Workload;
use crate::cluster::{Scenario, Tally};
use crate::explore::parts::{FAILOVER, SUSPICION, increment_and_transaction, increments, set_and_get};
use crate::explore::{self, Bounds, Call, World};
use crate::faults::Faults;
use crate::judge;
use crate::keyspace::{Key, Shape};
use crate::network::Pace;
use crate::planted::{InStore, Planted};
use crate::scenarios::{self, MILLISECOND_NS};
use crate::{by_hashes, by_hot, by_kernel, by_large, by_messages, by_transactions};
use nicekv_client::{Plant as InClient, RetryPolicy};
use nicekv_dataplane::Plant as InSwitch;
use nicekv_kernel_gets::Plant as InKernel;
use nicekv_metadata::{Plant as InMetadata, Timing};
use nicekv_node::Plant as InReplica;
use nicekv_wire::{Duration, KeyOrder};

/// A bug that is not found within so many seeds is not found.
pub const SEEDS_MAX: u64 = 2_000;
/// More states than an exploration needs to find one.
const STATES_MAX: usize = 3_000_000;

/// A bug, and how it is looked for.
pub struct Plant {
    /// On the command line.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    planted: Planted,
    hunt: Hunt,
}

/// How a bug is looked for.
#[derive(Clone, Copy)]
enum Hunt {
    /// Random runs, shaped so that it matters.
    Seeds(fn(&mut Scenario)),
    /// A script.
    Script(&'static str),
    /// Every state of a tiny cluster.
    Explore(fn() -> Vec<Call>, Bounds),
    /// The same, of a chain.
    ExploreChain(fn() -> Vec<Call>, Bounds),
}

/// A bug that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// In which run; `None` by exploration.
    pub seed: Option<u64>,
    /// What was wrong.
    pub violation: String,
}

/// What a hunt came to.
#[derive(Clone, Debug, Default)]
pub struct Hunted {
    /// `None`: not found.
    pub found: Option<Found>,
    /// Seeds that were run.
    pub seeds: u64,
    /// What happened in them.
    pub tally: Tally,
}

/// The bug of that name.
pub fn find(name: &str) -> Option<&'static Plant> {
    PLANTS.iter().find(|plant| plant.name == name)
}

impl Plant {
    /// Looks for it in at most [`SEEDS_MAX`] seeds, or in one.
    pub fn hunt(&self, only: Option<u64>, print: Option<fn(&str)>) -> Hunted {
        let mut hunted = Hunted::default();
        let world: Option<fn(_, _, _) -> _> = match self.hunt {
            Hunt::Explore(..) => Some(World::new),
            Hunt::ExploreChain(..) => Some(World::of_chain),
            _ => None,
        };
        if let (Some(world), Hunt::Explore(script, bounds) | Hunt::ExploreChain(script, bounds)) =
            (world, self.hunt)
        {
            let world = world(script(), bounds, self.planted.replica());
            let seen = explore::explore(world, STATES_MAX);
            hunted.found = seen.violation.map(|(what, steps)| {
                let steps = steps.iter().map(|step| format!("\n  {step:?}"));
                Found { seed: None, violation: format!("{what}\nafter{}", steps.collect::<String>()) }
            });
            return hunted;
        }
        for seed in only.map_or(1..=SEEDS_MAX, |seed| seed..=seed) {
            hunted.seeds += 1;
            let report = match std::panic::catch_unwind(|| self.run(seed, print)) {
                Ok(report) => report,
                Err(panic) => {
                    let message = panic.downcast_ref::<String>().cloned();
                    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
                    let violation = format!("a core panicked: {}", message.unwrap_or_default());
                    hunted.found = Some(Found { seed: Some(seed), violation });
                    return hunted;
                }
            };
            hunted.tally.add(&report.tally);
            if let Some(violation) = report.violations.into_iter().next() {
                hunted.found = Some(Found { seed: Some(seed), violation });
                return hunted;
            }
        }
        hunted
    }

    fn run(&self, seed: u64, print: Option<fn(&str)>) -> judge::Report {
        match self.hunt {
            Hunt::Script(name) => script(name).run(seed, Some(self.planted), print).0,
            Hunt::Seeds(shape) => {
                let mut scenario = crate::coordination::by_switch(judge::draw_single(seed));
                scenario.workload.scans = (0, 0, 1);
                scenario.kernel_gets = false;
                shape(&mut scenario);
                scenario.plant = Some(self.planted);
                judge::run(scenario, seed, print)
            }
            Hunt::Explore(..) | Hunt::ExploreChain(..) => unreachable!("has no seeds"),
        }
    }
}

fn script(name: &str) -> &'static scenarios::Script {
    scenarios::find(name).expect("there is such a script")
}

const fn replica(name: &'static str, rule: &'static str, plant: InReplica, hunt: Hunt) -> Plant {
    Plant { name, rule, planted: Planted::Replica(plant), hunt }
}

const fn switch(name: &'static str, rule: &'static str, plant: InSwitch, hunt: Hunt) -> Plant {
    Plant { name, rule, planted: Planted::Switch(plant), hunt }
}

const fn metadata(name: &'static str, rule: &'static str, plant: InMetadata, hunt: Hunt) -> Plant {
    Plant { name, rule, planted: Planted::Metadata(plant), hunt }
}

const fn kernel(name: &'static str, rule: &'static str, plant: InKernel, shape: fn(&mut Scenario)) -> Plant {
    Plant { name, rule, planted: Planted::Kernel(plant), hunt: Hunt::Seeds(shape) }
}

const fn store(name: &'static str, rule: &'static str, plant: InStore, hunt: Hunt) -> Plant {
    Plant { name, rule, planted: Planted::Store(plant), hunt }
}

const fn client(name: &'static str, rule: &'static str, plant: InClient, hunt: Hunt) -> Plant {
    Plant { name, rule, planted: Planted::Client(plant), hunt }
}

/// All bugs.
#[rustfmt::skip]
pub const PLANTS: &[Plant] = &[
    replica("decide-before-all-acks", "R1", InReplica::DecideBeforeAllAcks, Hunt::Seeds(as_drawn)),
    replica("ack-before-force", "R1", InReplica::AckBeforeForce, Hunt::Seeds(as_drawn)),
    replica("count-older-acks", "R1", InReplica::CountOlderAcks, Hunt::Seeds(as_drawn)),
    replica("ignore-contention", "R2", InReplica::IgnoreContention, Hunt::Explore(increments, FAILOVER)),
    replica("show-contended-early", "R2", InReplica::ShowContendedEarly, Hunt::Seeds(as_drawn)),
    replica("contended-not-forced", "R2", InReplica::ContendedNotForced, Hunt::Script("power-loss-and-another-primary")),
    replica("stale-get-at-locked-secondary", "R2", InReplica::StaleGetAtLockedSecondary, Hunt::Seeds(as_drawn)),
    replica("lock-not-told", "R2", InReplica::LockNotTold, Hunt::Seeds(as_drawn)),
    replica("scan-at-secondary", "C11", InReplica::ScanAtSecondary, Hunt::Seeds(|scenario| scenario.workload.scans = (5, 0, 1))),
    replica("scan-during-recovery", "C11", InReplica::ScanDuringRecovery, Hunt::Seeds(|scenario| scenario.workload.scans = (5, 0, 1))),
    replica("scan-beyond-reach", "C11", InReplica::ScanBeyondReach, Hunt::Seeds(|scenario| { reshaped(scenario); scenario.workload.scans = (5, 0, 1); })),
    replica("scan-short", "C11", InReplica::ScanShort, Hunt::Seeds(|scenario| scenario.workload.scans = (5, 0, 1))),
    client("scan-holes-forgotten", "C11", InClient::ScanHolesForgotten, Hunt::Seeds(scans_that_are_split)),
    client("scan-limit-is-end", "C11", InClient::ScanLimitIsEnd, Hunt::Seeds(scans_that_are_split)),
    switch("pieces-cut-again", "C11", InSwitch::PiecesCutAgain, Hunt::Seeds(crate::by_tree::trees)),
    replica("recovery-aborts", "R3", InReplica::RecoveryAborts, Hunt::Seeds(as_drawn)),
    replica("adopt-nothing", "R3", InReplica::AdoptNothing, Hunt::Explore(set_and_get, FAILOVER)),
    replica("get-during-recovery", "R4", InReplica::GetDuringRecovery, Hunt::Explore(set_and_get, FAILOVER)),
    replica("version-is-timestamp", "R5", InReplica::VersionIsTimestamp, Hunt::Seeds(as_drawn)),
    replica("joiner-keeps-former-life", "R7", InReplica::JoinerKeepsFormerLife, Hunt::Script("primary-dies-with-its-decisions")),
    replica("early-decisions-kept", "R4", InReplica::EarlyDecisionsKept, Hunt::Seeds(late_messages)),
    replica("epoch-unchecked", "R4", InReplica::EpochUnchecked, Hunt::Seeds(late_messages)),
    replica("copy-during-recovery", "R7", InReplica::CopyDuringRecovery, Hunt::Seeds(lossy_joins)),
    replica("tombstone-dropped-early", "R7", InReplica::TombstoneDroppedEarly, Hunt::Seeds(as_drawn)),
    replica("overwrite-not-noted", "R7", InReplica::OverwriteNotNoted, Hunt::Seeds(as_drawn)),
    replica("former-move-kept", "R7", InReplica::FormerMoveKept, Hunt::Seeds(nodes_come_and_go)),
    replica("handoff-not-emptied", "R8", InReplica::HandoffNotEmptied, Hunt::Seeds(left_and_back)),
    replica("handoff-denies-missing", "R8", InReplica::HandoffDeniesMissing, Hunt::Seeds(with_handoffs)),
    replica("answer-after-leaving", "R8", InReplica::AnswerAfterLeaving, Hunt::Seeds(late_with_handoffs)),
    replica("restarted-answers-at-once", "R18", InReplica::RestartedAnswersAtOnce, Hunt::Script("disks-without-their-last-moments")),
    replica("open-ops-not-fetched", "R18", InReplica::OpenOpsNotFetched, Hunt::Script("disks-without-their-last-moments")),
    replica("unproven-takes-new-ops", "R18", InReplica::UnprovenTakesNewOps, Hunt::Script("disks-without-their-last-moments")),
    replica("forgetting-ignored", "R18", InReplica::ForgettingIgnored, Hunt::Script("older-disks")),
    replica("answer-unadmitted", "R9", InReplica::AnswerUnadmitted, Hunt::Script("restarted-but-reachable")),
    replica("dedupe-forgotten-at-failover", "R10", InReplica::DedupeForgottenAtFailover, Hunt::Seeds(as_drawn)),
    client("retry-takes-new-op", "R10", InClient::RetryIsNewOp, Hunt::Seeds(as_drawn)),
    client("timeout-is-failure", "R10", InClient::TimeoutIsFailure, Hunt::Seeds(as_drawn)),
    replica("no-room-told-undecided", "R10", InReplica::NoRoomToldUndecided, Hunt::Seeds(by_large::without_room)),
    client("sharers-forgotten", "", InClient::SharersForgotten, Hunt::Seeds(by_large::shared)),
    client("any-reply-answers", "R10", InClient::AnyReplyAnswers, Hunt::Seeds(as_drawn)),
    client("everything-sent-at-once", "", InClient::NoWindow, Hunt::Seeds(overloaded)),
    replica("expiry-by-local-clock", "R11", InReplica::ExpiryByLocalClock, Hunt::Seeds(as_drawn)),
    replica("lease-ignored", "R12", InReplica::LeaseIgnored, Hunt::Script("removed-but-reachable")),
    replica("orphans-ignored", "R15", InReplica::OrphansIgnored, Hunt::Seeds(as_drawn)),
    replica("scrub-blind", "R2", InReplica::ScrubBlind, Hunt::Seeds(replaced_entries)),
    metadata("removal-not-awaited", "R6", InMetadata::RemovalNotAwaited, Hunt::Script("removed-but-reachable")),
    metadata("absent-switch-counted", "R6", InMetadata::AbsentSwitchCounted, Hunt::Seeds(with_edges)),
    metadata("divided-too-early", "R7", InMetadata::DividedTooEarly, Hunt::Seeds(as_drawn)),
    metadata("removed-keeps-division", "R6", InMetadata::RemovedKeepsDivision, Hunt::Seeds(as_drawn)),
    metadata("promote-before-copied", "R7", InMetadata::PromoteBeforeCopied, Hunt::Seeds(as_drawn)),
    metadata("inconsistent-leads", "R7", InMetadata::InconsistentLeads, Hunt::Seeds(as_drawn)),
    metadata("handoff-leads", "R8", InMetadata::HandoffLeads, Hunt::Seeds(with_handoffs)),
    metadata("restart-unnoticed", "R9", InMetadata::RestartUnnoticed, Hunt::Seeds(as_drawn)),
    metadata("empty-storage-trusted", "R9", InMetadata::EmptyStorageTrusted, Hunt::Seeds(in_memory)),
    metadata("older-state-trusted", "R18", InMetadata::OlderStateTrusted, Hunt::Script("older-metadata-state")),
    metadata("strays-kept", "R16", InMetadata::StraysKept, Hunt::Seeds(reshaped_with_older_disks)),
    metadata("forgetting-trusted", "R18", InMetadata::ForgettingTrusted, Hunt::Script("older-disk-of-a-quorum")),
    replica("direct-lease-ignored", "R12", InReplica::DirectLeaseIgnored, Hunt::Seeds(by_clients_of_paused_nodes)),
    replica("torn-op-kept", "L2", InReplica::TornOpKept, Hunt::Seeds(by_large::killed)),
    replica("checksum-ignored", "R1", InReplica::ChecksumIgnored, Hunt::Seeds(by_large::garbled)),
    replica("prepared-without-value", "R1", InReplica::PreparedWithoutValue, Hunt::Seeds(by_large::killed)),
    replica("straggler-counted", "R14", InReplica::StragglerCounted, Hunt::Seeds(by_large::by_quorum)),
    replica("decide-before-made-held", "L8", InReplica::DecideBeforeMadeHeld, Hunt::Seeds(by_large::appended)),
    replica("values-unread", "L3", InReplica::ValuesUnread, Hunt::Seeds(by_large::damaged)),
    metadata("lease-to-removed", "R12", InMetadata::LeaseToRemoved, Hunt::Script("removed-but-reachable")),
    metadata("lease-not-awaited", "R12", InMetadata::LeaseNotAwaited, Hunt::Script("removed-but-reachable")),
    metadata("former-leases-forgotten", "R12", InMetadata::FormerLeasesForgotten, Hunt::Script("removed-but-reachable")),
    client("get-without-write-back", "R14", InClient::NoWriteBack, Hunt::Seeds(by_quorum)),
    client("one-replica-counts-twice", "R14", InClient::CountTwice, Hunt::Seeds(by_quorum)),
    client("timestamp-from-one-answer", "R14", InClient::AskOne, Hunt::Seeds(by_quorum)),
    replica("quorum-ack-before-force", "R14", InReplica::QuorumAckBeforeForce, Hunt::Seeds(by_quorum)),
    replica("newcomer-counts-at-once", "R14", InReplica::NewcomerCountsAtOnce, Hunt::Seeds(by_quorum_in_memory)),
    client("put-stored-again-unasked", "R14", InClient::StoreAgainUnasked, Hunt::Seeds(deletions_by_quorum)),
    replica("repair-from-too-few", "R14", InReplica::QuorumRepairFromOne, Hunt::Seeds(damage_by_quorum)),
    replica("deletion-forgotten-without-fence", "R14", InReplica::QuorumForgetUnfenced, Hunt::Seeds(deletions_by_quorum)),
    replica("deletion-forgotten-that-not-all-hold", "R14", InReplica::QuorumForgetUnheld, Hunt::Seeds(deletions_by_quorum)),
    replica("written-while-forgetting-is-read", "R14", InReplica::QuorumForgottenUnseen, Hunt::Seeds(deletions_at_busy_nodes)),
    replica("store-of-older-epoch-taken", "R14", InReplica::QuorumOlderEpochTaken, Hunt::Seeds(deletions_by_quorum)),
    replica("floor-not-told", "R14", InReplica::QuorumFloorNotTold, Hunt::Seeds(deletions_by_quorum)),
    replica("successor-not-awaited", "R14", InReplica::QuorumNotEntrusted, Hunt::Seeds(places_change)),
    replica("successor-answers-early", "R14", InReplica::QuorumSuccessorEarly, Hunt::Script("who-has-left-does-not-hear-of-it")),
    replica("successor-merges-a-part", "R14", InReplica::QuorumMergeCutShort, Hunt::Seeds(places_change)),
    replica("newcomer-by-quorum-not-emptied", "R14", InReplica::QuorumNewcomerNotEmptied, Hunt::Seeds(places_change_and_deletions)),
    metadata("succession-outlives-process", "R14", InMetadata::SuccessionOutlivesProcess, Hunt::Script("who-leaves-starts-again")),
    metadata("successor-untold", "R14", InMetadata::SuccessorUntold, Hunt::Script("successor-does-not-hear-that-it-is-none")),
    metadata("sole-holder-given-up", "R14", InMetadata::SoleHolderGivenUp, Hunt::Seeds(sole_holders_leave)),
    switch("tables-acknowledged-early", "R6", InSwitch::AckBeforeInstalled, Hunt::Seeds(as_drawn)),
    switch("older-term-obeyed", "R13", InSwitch::OlderTermObeyed, Hunt::Seeds(as_drawn)),
    switch("tables-survive-restart", "R12", InSwitch::TablesSurviveRestart, Hunt::Seeds(as_drawn)),
    switch("trunk-echoes", "", InSwitch::TrunkEchoes, Hunt::Seeds(in_a_chain)),
    switch("record-ends-early", "", InSwitch::RecordEndsEarly, Hunt::Seeds(by_range)),
    switch("record-of-the-address", "", InSwitch::RecordOfAddress, Hunt::Seeds(by_range)),
    store("step-written-unguarded", "R13", InStore::WrittenUnguarded, Hunt::Seeds(shared_store)),
    store("seat-taken-at-once", "R12", InStore::TakenAtOnce, Hunt::Seeds(shared_store)),
    store("hold-ignored", "R12", InStore::HoldIgnored, Hunt::Script("leader-outlives-its-seat")),
    replica("discard-not-broken-off", "R16", InReplica::DiscardNotBrokenOff, Hunt::Seeds(left_and_back)),
    metadata("drop-not-awaited", "R16", InMetadata::DropNotAwaited, Hunt::Seeds(keyspaces_come_and_go)),
    metadata("keyspace-number-reused", "R16", InMetadata::KeyspaceNumberReused, Hunt::Seeds(keyspaces_come_and_go)),
    replica("deletion-not-mirrored", "R17", InReplica::DeletionNotMirrored, Hunt::Seeds(reshaped)),
    replica("filled-over-newer", "R17", InReplica::FilledOverNewer, Hunt::Seeds(reshaped_with_late_pages)),
    replica("formed-not-cleared", "R17", InReplica::FormedNotCleared, Hunt::Seeds(reshaped_with_crashes)),
    replica("sealed-takes-ops", "R17", InReplica::SealedTakesOps, Hunt::Seeds(reshaped)),
    replica("drained-too-early", "R17", InReplica::DrainedTooEarly, Hunt::Seeds(reshaped)),
    replica("heir-forgets-clients", "R17", InReplica::HeirForgetsClients, Hunt::Seeds(reshaped)),
    replica("parent-answers-after-birth", "R17", InReplica::ParentAnswersAfterBirth, Hunt::Seeds(reshaped)),
    replica("ended-parent-revived", "R17", InReplica::EndedParentRevived, Hunt::Seeds(reshaped)),
    replica("end-not-logged", "R17", InReplica::EndNotLogged, Hunt::Seeds(reshaped_with_losses_of_power)),
    replica("birth-not-forced", "R17", InReplica::BirthNotForced, Hunt::Seeds(reshaped_with_losses_of_power)),
    metadata("birth-not-awaited", "R17", InMetadata::BirthNotAwaited, Hunt::Seeds(reshaped)),
    metadata("parent-not-kept", "R17", InMetadata::ParentNotKept, Hunt::Seeds(reshaped_with_crashes)),
    replica("chain-gap-skipped", "C1", InReplica::ChainGapSkipped, Hunt::Seeds(chains)),
    replica("forced-before-not-awaited", "C2", InReplica::ForcedBeforeNotAwaited, Hunt::Seeds(chains_that_restart)),
    replica("head-answers", "C3", InReplica::HeadAnswers, Hunt::Seeds(chains)),
    replica("results-stay-at-head", "C4", InReplica::ResultsStayAtHead, Hunt::Seeds(chains_losing_answers)),
    replica("chain-epoch-unchecked", "C5", InReplica::EpochUnchecked, Hunt::Seeds(chains_with_late_messages)),
    client("refusal-is-failure", "C5", InClient::RefusalIsFailure, Hunt::Seeds(crate::by_chain::by_clients)),
    replica("chain-header-unchecked", "C5", InReplica::ChainHeaderUnchecked, Hunt::Seeds(chains)),
    switch("chain-header-believed", "C5", InSwitch::ChainHeaderBelieved, Hunt::Seeds(chains)),
    replica("never-sent-again", "C6", InReplica::NeverSentAgain, Hunt::Seeds(chains)),
    replica("full-disk-not-told", "C6", InReplica::FullTailNotTold, Hunt::Script("chain-without-space-behind-the-head")),
    replica("tail-speaks-early", "C7", InReplica::TailSpeaksEarly, Hunt::ExploreChain(set_and_get, SUSPICION)),
    replica("spare-keeps-former-life", "C8", InReplica::FormerMoveKept, Hunt::Seeds(chains_with_spares)),
    metadata("spare-promoted-uncopied", "C8", InMetadata::PromoteBeforeCopied, Hunt::Seeds(chains_with_spares)),
    replica("joiner-not-awaited", "C8", InReplica::JoinerNotAwaited, Hunt::Seeds(chains)),
    replica("head-adopts-nothing", "C9", InReplica::AdoptNothing, Hunt::Seeds(chains_that_restart)),
    metadata("move-uncopied", "C10", InMetadata::PromoteBeforeCopied, Hunt::Seeds(chains_that_move)),
    replica("chain-split-before-level", "C10", InReplica::DrainedTooEarly, Hunt::Seeds(chains_reshaped)),
    replica("chain-split-takes-puts", "C10", InReplica::SealedTakesOps, Hunt::Seeds(chains_reshaped)),
    replica("chain-heir-forgets-clients", "C10", InReplica::HeirForgetsClients, Hunt::Seeds(chains_reshaped)),
    metadata("chain-born-tail-not-awaited", "C7", InMetadata::BirthNotAwaited, Hunt::Seeds(chains_reshaped)),
    metadata("moved-within-its-rest", "", InMetadata::RestIgnored, Hunt::Seeds(migrating)),
    metadata("split-at-the-first", "", InMetadata::SplitAtFirst, Hunt::Script("load-on-the-first-of-ordered-keys")),
    metadata("hot-key-moved-about", "", InMetadata::UnfittingGiven, Hunt::Script("one-key-is-too-hot")),
    metadata("hot-neighbours-merged", "", InMetadata::HotMerged, Hunt::Script("load-on-the-first-of-ordered-keys")),
    replica("stale-stamp-taken", "P8", InReplica::StaleStampTaken, Hunt::Seeds(crate::by_names::names)),
    metadata("round-adopted-unheard", "P8", InMetadata::AdoptedUnheard, Hunt::Seeds(crate::by_names::names)),
    metadata("full-partition-kept", "", InMetadata::FullKept, Hunt::Seeds(crate::by_fill::fills)),
    metadata("switches-above-learn-first", "", InMetadata::AboveBeforeBelow, Hunt::Script("a-chain-moves-from-rack-to-rack")),
    metadata("ports-trusted", "", InMetadata::PortsTrusted, Hunt::Script("port-missing")),
    metadata("racks-not-counted", "C12", InMetadata::RacksNotCounted, Hunt::Script("a-rack-is-cut-off-with-the-tail")),
    switch("rack-keeps-records", "C12", InSwitch::TablesSurviveRestart, Hunt::Script("a-rack-starts-again-without-records")),
    kernel("lock-ignored-by-kernel", "G1", InKernel::LockIgnored, by_kernel::shared),
    kernel("entry-evicted-open", "G1", InKernel::EvictedOpen, by_kernel::crowded),
    kernel("version-read-once", "G2", InKernel::VersionReadOnce, by_kernel::crowded),
    kernel("kernel-lease-unchecked", "G3", InKernel::LeaseUnchecked, by_kernel::removed),
    kernel("void-entries-kept", "G3", InKernel::VoidKept, by_kernel::removed),
    kernel("digest-for-key", "G4", InKernel::KeyUnchecked, by_kernel::alike),
    kernel("kernel-shows-expiring", "G5", InKernel::ExpiringShown, by_kernel::expiring),
    kernel("kernel-outlives-process", "G6", InKernel::OutlivesProcess, by_kernel::killed),
    kernel("kernel-gets-uncounted", "G7", InKernel::HitsUncounted, by_kernel::shared),
    kernel("kernel-answers-more", "G8", InKernel::RoomIgnored, by_kernel::shared),
    switch("hot-instance-reused", "H1", InSwitch::InstanceReused, Hunt::Seeds(by_hot::restless)),
    switch("hot-updates-not-counted", "H2", InSwitch::SeenNotCounted, Hunt::Seeds(by_hot::shared)),
    replica("hot-copy-undecided", "H3", InReplica::HotCopyUndecided, Hunt::Seeds(by_hot::shared)),
    replica("hot-evidence-ignored", "H4", InReplica::HotEvidenceIgnored, Hunt::Seeds(by_hot::lossy)),
    replica("hot-instance-unchecked", "H6", InReplica::HotInstanceUnchecked, Hunt::Seeds(by_hot::restless)),
    replica("hot-stamp-unchecked", "H6", InReplica::HotStampUnchecked, Hunt::Seeds(by_hot::shared)),
    kernel("hot-instance-unchecked-by-kernel", "H6", InKernel::InstanceUnchecked, by_hot::restless_in_kernels),
    kernel("hot-stamp-unchecked-by-kernel", "H6", InKernel::StampUnchecked, by_hot::in_kernels),
    switch("hot-instance-in-two-switches", "H8", InSwitch::InstanceReused, Hunt::Seeds(by_hot::among_switches)),
    switch("hot-value-stale", "H9", InSwitch::HotValueStaleShown, Hunt::Seeds(by_hot::shared)),
    switch("hot-value-of-another-key", "H9", InSwitch::HotValueKeyUnchecked, Hunt::Seeds(by_hot::alike)),
    replica("hot-member-past-its-fence", "R12", InReplica::HotMemberUnfenced, Hunt::Seeds(by_hot::removed_holders)),
    replica("transaction-half-taken", "T1", InReplica::TransactionHalfTaken, Hunt::Seeds(by_transactions::transactions)),
    replica("former-transaction-half-taken", "T1", InReplica::TransactionFormerForgotten, Hunt::Seeds(by_transactions::with_restarts)),
    replica("transaction-next-at-first-key", "T2", InReplica::TransactionNextAtFirst, Hunt::Seeds(by_transactions::with_failovers)),
    replica("transaction-contended-at-first-key", "T3", InReplica::TransactionContendedAtFirst, Hunt::Explore(increment_and_transaction, FAILOVER)),
    replica("transaction-releases-first-key", "T3", InReplica::TransactionReleasesFirst, Hunt::Seeds(by_transactions::with_restarts)),
    replica("transaction-requirement-unread", "T4", InReplica::TransactionRequirementUnread, Hunt::Seeds(by_transactions::transactions)),
    replica("hash-fields-alone", "", InReplica::HashFieldsAlone, Hunt::Seeds(by_hashes::hashes)),
    replica("hash-form-forgotten", "", InReplica::HashFormForgotten, Hunt::Seeds(by_hashes::hashes)),
    replica("script-keys-unread", "T5", InReplica::ScriptKeysUnread, Hunt::Seeds(by_transactions::scripts)),
    replica("script-clock-read", "T5", InReplica::ScriptClockRead, Hunt::Seeds(by_transactions::scripts)),
    client("message-heard-again", "M1", InClient::MessageHeardAgain, Hunt::Seeds(by_messages::messages)),
    replica("repeat-told", "M1", InReplica::RepeatTold, Hunt::Seeds(by_messages::messages)),
    replica("left-listener-kept", "M2", InReplica::LeftListenerKept, Hunt::Seeds(by_messages::messages)),
    replica("late-listen-taken", "M2", InReplica::LateListenTaken, Hunt::Seeds(by_messages::messages)),
    replica("pattern-is-channel", "M3", InReplica::PatternIsChannel, Hunt::Seeds(by_messages::messages)),
    replica("listeners-of-address-one", "M3", InReplica::ListenersOfAddressOne, Hunt::Seeds(by_messages::messages)),
    replica("op-marks-ignored", "T6", InReplica::OpMarksIgnored, Hunt::Seeds(by_transactions::deadly)),
    replica("script-failure-kept", "T5", InReplica::ScriptFailureKept, Hunt::Seeds(by_transactions::scripts)),
    metadata("speak-before-persisted", "R13", InMetadata::SpeakBeforePersisted, Hunt::Seeds(forgetful_metadata)),
];

fn as_drawn(_: &mut Scenario) {}

/// Switches with trunks between them.
fn in_a_chain(scenario: &mut Scenario) {
    (scenario.switches, scenario.trunks) = (3, crate::trunks::Trunks::Chain);
    (scenario.edges, scenario.hides_sources) = (false, false);
}

/// Agents of edges lose the metadata service often, and leases are longer than it takes to suspect a node.
fn with_edges(scenario: &mut Scenario) {
    (scenario.edges, scenario.hides_sources) = (true, false);
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys = Key::several(0, 20);
    (scenario.workload.large, scenario.workload.pause_ns_max) = (0, 10 * MILLISECOND_NS);
    scenario.timing.lease = Duration::from_millis(500);
    scenario.faults.agent_cut = 200_000;
    scenario.faults.downtime_max_ns = 1_000_000_000;
}

/// No faults, and far more requests than the nodes can do.
pub fn overloaded(scenario: &mut Scenario) {
    // Several instances share a store that does not always answer.
    (scenario.nodes, scenario.instances) = (3, 1);
    (scenario.clients, scenario.keyspaces) = (3, vec![Shape::multicast(3, 0)]);
    (scenario.pace, scenario.faults, scenario.retries_max) = (Pace::BUSY, Faults::NONE, Some(10));
    // Who is divided otherwise in between finds another queue.
    scenario.timing.divide_interval = Timing::default().divide_interval;
    scenario.workload = Workload {
        keys: Key::several(0, 2_000),
        skew: 1,
        calls: 4_000,
        window: 1_500,
        // When the first epoch has begun.
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

/// Keys in their order, in partitions of different nodes.
fn by_range(scenario: &mut Scenario) {
    (scenario.nodes, scenario.keyspaces) = (5, vec![Shape::multicast(3, 2).by_range()]);
    scenario.workload.keys = Key::of(0, KeyOrder::Range, 12);
}

/// The same scanned in more pieces than come, and fewer than there are partitions.
fn scans_that_are_split(scenario: &mut Scenario) {
    by_range(scenario);
    scenario.workload.scans = (5, 300, 3);
    scenario.faults.loss = scenario.faults.loss.max(50_000);
}

/// The operator creates keyspaces and drops them, while switches and nodes lose the metadata service.
fn keyspaces_come_and_go(scenario: &mut Scenario) {
    scenario.faults.keyspace_interval_ns = 150 * MILLISECOND_NS;
    scenario.faults.cut_interval_ns = 200 * MILLISECOND_NS;
    scenario.faults.agent_cut = 100_000;
}

/// At the end some entries are not what they should be.
fn replaced_entries(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys.iter_mut().for_each(|key| key.keyspace = 0);
    scenario.faults = Faults { replacement: 500_000, ..Faults::NONE };
}

/// Nodes come back with nothing, and messages from the epoch before arrive late.
fn late_messages(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 0)];
    scenario.workload.keys.iter_mut().for_each(|key| key.keyspace = 0);
    scenario.faults = Faults::LATE_MESSAGES;
}

/// Some nodes come back with nothing.
fn in_memory(scenario: &mut Scenario) {
    scenario.faults =
        Faults { crash: 2_000, memory: 500_000, downtime_max_ns: 100 * MILLISECOND_NS, ..Faults::NONE };
}
