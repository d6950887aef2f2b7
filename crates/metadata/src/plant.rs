//! Bugs that tests plant, to see that they are found. Outside of tests there are none.

use alloc::vec::Vec;

use crate::state::{Partition, Standing};
use crate::view::Observed;

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "exploration")),
    allow(dead_code, unreachable_pub, reason = "only tests plant")
)]
pub enum Plant {
    /// R6: the epoch that removes a member is activated at once.
    RemovalNotAwaited,
    /// R7: a joiner is declared consistent before its copy is complete.
    PromoteBeforeCopied,
    /// R7: a member that is not consistent becomes primary when no other is left.
    InconsistentLeads,
    /// R8: a handoff becomes primary.
    HandoffLeads,
    /// R7: gets are divided among members that are not consistent yet, too.
    DividedTooEarly,
    /// R6: who is removed keeps its division.
    RemovedKeepsDivision,
    /// R6: a switch that cannot be talked to is taken for one that has acknowledged.
    AbsentSwitchCounted,
    /// Switches above learn new ways first.
    AboveBeforeBelow,
    /// C12: of several switches those at which servers hang are not waited for.
    RacksNotCounted,
    /// R9: a process that took the place of another stays in its epoch.
    RestartUnnoticed,
    /// R9: a member that comes back with empty storage is still taken for consistent.
    EmptyStorageTrusted,
    /// R18: a storage that lacks what was confirmed is trusted.
    ForgettingTrusted,
    /// R18: a state that is older than what nodes have seen is gone on with.
    OlderStateTrusted,
    /// R16: what a node has found on its disk and nobody needs is not discarded.
    StraysKept,
    /// R14: a succession goes on although who leaves was started again.
    SuccessionOutlivesProcess,
    /// R14: a succession begins although the newcomer may believe that it is in the one before.
    SuccessorUntold,
    /// R14: with k = 1, who is gone is replaced all the same.
    SoleHolderGivenUp,
    /// R12: a process gets leases although it is suspected, or does not know that it was removed.
    LeaseToRemoved,
    /// R12: nobody waits for the lease of a removed member to run out.
    LeaseNotAwaited,
    /// R12: a new leader takes it that no lease was granted before it.
    FormerLeasesForgotten,
    /// R13: the messages of a step leave before it is persisted.
    SpeakBeforePersisted,
    /// R16: a keyspace is taken for gone before its members and the switches are waited for.
    DropNotAwaited,
    /// R16: the number of a keyspace that was dropped is given again.
    KeyspaceNumberReused,
    /// R17: a partition that takes another one's place is in force before all its members have taken over.
    BirthNotAwaited,
    /// R17: who is none of a partition that has taken another one's place goes on as a member of that one.
    OutsideUntold,
    /// R17: what a partition that was split or merged has left is discarded before its children are whole.
    ParentNotKept,
    /// Balancing: what was moved a moment ago is moved again.
    RestIgnored,
    /// Balancing: what is too hot is split behind its first value, wherever its load lies.
    SplitAtFirst,
    /// Balancing: the hottest partition is given away, whether that helps or not.
    UnfittingGiven,
    /// Balancing: neighbours are merged however much they are asked, and however new they are.
    HotMerged,
    /// Balancing: what is full stays as it is.
    FullKept,
    /// P8: names are said to have adopted a round before anybody has heard of it.
    AdoptedUnheard,
    /// Row 25: nodes are believed to be on ports that switches have: unchecked, left in the tables, and not taken back.
    PortsTrusted,
    /// P13: a move of chunks is over before anybody has said so.
    MoveNotAwaited,
}

#[cfg(any(test, feature = "exploration"))]
impl Plant {
    /// Every one.
    pub const ALL: [Self; 34] = [
        Self::RemovalNotAwaited,
        Self::PromoteBeforeCopied,
        Self::InconsistentLeads,
        Self::HandoffLeads,
        Self::DividedTooEarly,
        Self::RemovedKeepsDivision,
        Self::AbsentSwitchCounted,
        Self::AboveBeforeBelow,
        Self::RacksNotCounted,
        Self::RestartUnnoticed,
        Self::EmptyStorageTrusted,
        Self::ForgettingTrusted,
        Self::OlderStateTrusted,
        Self::StraysKept,
        Self::SuccessionOutlivesProcess,
        Self::SuccessorUntold,
        Self::SoleHolderGivenUp,
        Self::LeaseToRemoved,
        Self::LeaseNotAwaited,
        Self::FormerLeasesForgotten,
        Self::SpeakBeforePersisted,
        Self::DropNotAwaited,
        Self::KeyspaceNumberReused,
        Self::BirthNotAwaited,
        Self::OutsideUntold,
        Self::ParentNotKept,
        Self::RestIgnored,
        Self::SplitAtFirst,
        Self::UnfittingGiven,
        Self::HotMerged,
        Self::FullKept,
        Self::AdoptedUnheard,
        Self::PortsTrusted,
        Self::MoveNotAwaited,
    ];
}

/// Puts those bugs into the epoch after `before` that show in the state alone.
pub(crate) fn spoil(next: &mut Partition, before: &Partition, observed: &impl Observed) {
    let roles = |partition: &Partition| {
        let roles = partition.members.iter().map(|member| (member.node, member.standing.is_consistent()));
        roles.collect::<Vec<_>>()
    };
    if observed.has(Plant::RestartUnnoticed) && roles(before) == roles(next) {
        next.epoch = before.epoch;
    }
    if observed.has(Plant::InconsistentLeads) {
        for member in next.members.iter_mut().filter(|member| member.node == next.primary) {
            member.standing = member.standing.max(Standing::Promoted);
        }
    }
}
