//! Multicast groups: their members, and the bit of each member in the mask of a group of storage
//! targets.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::placement::{GROUP_MASK_BITS, GROUP_MEMBERS_MAX as PLACES};
use serde::{Deserialize, Serialize};

use super::host::HostId;

/// Prefix length of a group of storage targets.
pub const GROUP_LENGTH: u8 = 32 - GROUP_MASK_BITS as u8;

/// The members of a multicast group, ascending and distinct. The member set identifies the group,
/// so groups survive a change of tables, and an entry cannot refer to a group that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberSet(Vec<HostId>);

impl MemberSet {
    /// Sorts `members` and drops duplicates.
    pub fn new(members: impl IntoIterator<Item = HostId>) -> Self {
        Self(members.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// The members, ascending.
    pub fn as_slice(&self) -> &[HostId] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn unchecked(members: &[u16]) -> Self {
        Self(members.iter().copied().map(HostId).collect())
    }
}

/// The place of each member in the mask of its group, as a bit number, in the order of the
/// [`MemberSet`].
///
/// Places are stable: when a member leaves, its place stays empty, and the bits of the others do
/// not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places(pub(super) Vec<u8>);

impl Places {
    /// The members with their masks, in the order of `members`.
    pub fn masks<'a>(&'a self, members: &'a MemberSet) -> impl Iterator<Item = (HostId, u16)> + 'a {
        members.as_slice().iter().zip(&self.0).map(|(host, place)| (*host, 1 << place))
    }

    /// The places of only those `members` for which `is_reached` is true.
    pub(super) fn reaching(&self, members: &MemberSet, is_reached: impl Fn(HostId) -> bool) -> Self {
        let placed = members.as_slice().iter().zip(&self.0);
        Self(placed.filter(|(host, _)| is_reached(**host)).map(|(_, place)| *place).collect())
    }

    /// Whether each of `members` has one place, and the places are distinct and within the mask.
    pub(super) fn fit(&self, members: &MemberSet) -> bool {
        let distinct: BTreeSet<u8> = self.0.iter().copied().collect();
        distinct.len() == members.as_slice().len()
            && self.0.len() == distinct.len()
            && self.0.iter().all(|place| usize::from(*place) < PLACES)
    }
}
