//! Differences between the replication protocols of partitions; the rest of membership is the same
//! for all.
//!
//! | | multicast 2PC | chain (C1 to C10) | quorum (R14) |
//! | --- | --- | --- | --- |
//! | a silent member | is removed (R6) | the same (C9) | stays; nobody waits for it |
//! | a leaving member (NICE §4.4) | stays until all originals serve | the same (C10) | hands its part to one node, and leaves when that node counts |
//! | for an absent original | a handoff joins (R8) | a spare joins and copies everything (C8) | nobody: R is fixed |
//! | who may lead | a consistent original | the head of the chain | a consistent original; a primary has little to do |
//! | an epoch is in force | when every member has acknowledged it | the same, before it is activated (C7) | when every live member has |
//! | a joiner is consistent | when all have acknowledged its epoch and it has copied | the same | the same: k of the old members are merged |
//! | a member may request an epoch with the same members | no: a primary orders | no | yes, to invalidate older answers |
//! | gets go to | any consistent member, so they are spread | the tail | R − k + 1 members, through the multicast ring |
//! | puts go to | every member | the head | every member |
//! | puts need | R − 1 members, all of them live | the same | k to store, R − k + 1 to query |

use nicekv_proto::placement::{KeyspaceSpec, Protocol};

use crate::state::Member;

/// The treatment of a silent member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silent {
    /// It is removed. The next epoch waits only until it cannot answer gets any more (R6).
    Removed,
    /// It stays a member, and nobody waits for it.
    Counted,
}

/// The policy of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Number of replicas, R.
    pub(crate) replicas: usize,
    pub(crate) silent: Silent,
    /// Whether other nodes replace absent originals: handoffs or, in a chain, spares.
    pub(crate) has_handoffs: bool,
    /// Whether any one consistent member may answer a get, so that gets may be divided by client
    /// address.
    pub(crate) gets_are_spread: bool,
    /// Whether members may request an epoch with the same members.
    pub(crate) has_fences: bool,
    /// Whether the members form a chain, in their order.
    pub(crate) is_chain: bool,
    /// Minimum number of members for puts.
    pub(crate) members_needed: usize,
    /// Whether every acknowledged value is on more than one member.
    pub(crate) others_hold: bool,
}

impl Policy {
    pub(crate) fn multicast(replicas: usize) -> Self {
        let members_needed = replicas.saturating_sub(1).max(1);
        Self {
            replicas,
            silent: Silent::Removed,
            has_handoffs: true,
            gets_are_spread: true,
            has_fences: false,
            is_chain: false,
            members_needed,
            others_hold: replicas > 1,
        }
    }

    pub(crate) fn chain(replicas: usize) -> Self {
        Self { gets_are_spread: false, is_chain: true, ..Self::multicast(replicas) }
    }

    pub(crate) fn quorum(replicas: usize, write_set: usize) -> Self {
        let read_set = replicas + 1 - write_set;
        let members_needed = write_set.max(read_set);
        Self {
            replicas,
            silent: Silent::Counted,
            has_handoffs: false,
            gets_are_spread: false,
            has_fences: true,
            is_chain: false,
            members_needed,
            others_hold: write_set > 1,
        }
    }

    pub(crate) fn of(keyspace: &KeyspaceSpec) -> Self {
        match keyspace.protocol {
            Protocol::Multicast => Self::multicast(keyspace.replicas),
            Protocol::Chain => Self::chain(keyspace.replicas),
            Protocol::Quorum { write_set } => Self::quorum(keyspace.replicas, write_set.into()),
        }
    }

    /// Whether the member has all data, so that it may lead and may be the last one to remain.
    pub(crate) fn may_lead(self, member: &Member) -> bool {
        !member.handoff && member.standing.is_consistent()
    }

    /// Whether an epoch waits for this member's acknowledgement.
    pub(crate) fn awaits(self, is_live: bool) -> bool {
        is_live || self.silent == Silent::Removed
    }

    /// Whether a joiner that takes part in puts has all data (R7).
    pub(crate) fn is_consistent(self, has_copied: bool, all_acknowledged: bool) -> bool {
        has_copied && all_acknowledged
    }

    /// Whether puts continue when `there` of `members` members are live.
    pub(crate) fn takes_puts(self, members: usize, there: usize) -> bool {
        let enough = there >= self.members_needed;
        enough && (there == members || self.silent == Silent::Counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_continue_with_enough_members() {
        let multicast = Policy::multicast(3);
        let table = [(3, 3, true), (2, 2, true), (1, 1, false), (3, 2, false), (4, 4, true)];
        for (members, there, goes_on) in table {
            assert_eq!(multicast.takes_puts(members, there), goes_on, "{there} of {members}");
        }
        assert!(Policy::multicast(1).takes_puts(1, 1));
        // A value is stored by k of R members; before that, R - k + 1 members are queried for the
        // newest version.
        for (replicas, write_set, needed) in [(3, 2, 2), (5, 3, 3), (3, 1, 3), (3, 3, 3), (5, 4, 4)] {
            let quorum = Policy::quorum(replicas, write_set);
            for there in 0..=replicas {
                assert_eq!(quorum.takes_puts(replicas, there), there >= needed, "{replicas} {write_set}");
            }
        }
    }
}
