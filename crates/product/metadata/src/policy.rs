//! What differs by the protocol of a partition: everything else about membership is one for all.
//!
//! | | multicast 2PC | chain (C1 to C10) | quorum (R14) |
//! | --- | --- | --- | --- |
//! | a silent member | is removed (R6) | the same (C9) | stays, and is not waited for |
//! | who leaves (NICE §4.4) | stays until all originals serve | the same (C10) | hands its part over to one node, and goes when that counts |
//! | for an original that is away | a handoff stands in (R8) | a spare, which is to hold everything (C8) | nobody: R is fixed |
//! | who may lead | a consistent original | the first of the chain | as with multicast, though a primary has little to do |
//! | an epoch is taken up | by every member | by every member, before it is activated (C7) | by every live one |
//! | a joiner is consistent | when all have taken up its epoch, and it has copied | the same | the same: k of the old members are merged |
//! | a member may ask for an epoch of the same members | no: a primary orders | no | yes, to have older answers not count any more |
//! | a get asks | any consistent member, so gets are spread | the tail | R − k + 1 members, through the multicast ring |
//! | a put goes to | every member | the head | every member |
//! | puts need | R − 1 members, all of them there | the same | k to hold it, R − k + 1 to be asked |

use nicekv_proto::placement::{KeyspaceSpec, Protocol};

use crate::state::Member;

/// What becomes of a member that is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silent {
    /// An epoch without it follows, and it is waited for only until it can answer no get (R6).
    Removed,
    /// It stays a member, and nobody waits for it.
    Counted,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// R.
    pub(crate) replicas: usize,
    pub(crate) silent: Silent,
    /// Whether other nodes stand in for originals that are away: handoffs, in a chain spares.
    pub(crate) has_handoffs: bool,
    /// Whether any consistent member may answer a get alone, so that gets may be spread by the clients' addresses.
    pub(crate) gets_are_spread: bool,
    /// Whether members may ask for an epoch of the same members.
    pub(crate) has_fences: bool,
    /// Whether the members are a chain, in their order.
    pub(crate) is_chain: bool,
    /// With fewer members there are no puts.
    pub(crate) members_needed: usize,
    /// Whether nothing that was acknowledged is held by one member alone.
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

    /// Whether the member holds everything, and so may lead, and may be the last to stay.
    pub(crate) fn may_lead(self, member: &Member) -> bool {
        !member.handoff && member.standing.is_consistent()
    }

    /// Whether an epoch is taken up only when this member has acknowledged it.
    pub(crate) fn awaits(self, is_live: bool) -> bool {
        is_live || self.silent == Silent::Removed
    }

    /// Whether a joiner that takes part in puts holds everything (R7).
    pub(crate) fn is_consistent(self, has_copied: bool, all_acknowledged: bool) -> bool {
        has_copied && all_acknowledged
    }

    /// Whether puts go on with `there` of `members` members.
    pub(crate) fn takes_puts(self, members: usize, there: usize) -> bool {
        let enough = there >= self.members_needed;
        enough && (there == members || self.silent == Silent::Counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_go_on_with_enough_members() {
        let multicast = Policy::multicast(3);
        let table = [(3, 3, true), (2, 2, true), (1, 1, false), (3, 2, false), (4, 4, true)];
        for (members, there, goes_on) in table {
            assert_eq!(multicast.takes_puts(members, there), goes_on, "{there} of {members}");
        }
        assert!(Policy::multicast(1).takes_puts(1, 1));
        // k of R hold it, and R - k + 1 are asked first for what is newest.
        for (replicas, write_set, needed) in [(3, 2, 2), (5, 3, 3), (3, 1, 3), (3, 3, 3), (5, 4, 4)] {
            let quorum = Policy::quorum(replicas, write_set);
            for there in 0..=replicas {
                assert_eq!(quorum.takes_puts(replicas, there), there >= needed, "{replicas} {write_set}");
            }
        }
    }
}
