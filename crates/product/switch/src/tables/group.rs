//! Entries of `multicast_vring` for the ring of groups (Replicast §III). There are two kinds, for switches that know of masks and for those that do not; in one switch both may be.
//!
//! ```text
//!   kind      destination                members          whom a datagram reaches
//!   masked    /20: a group               with places      those whose place is a bit of its address
//!   subset    /32: a group and a mask    without          all of the entry, whatever the mask says
//! ```
//!
//! The longest prefix wins, so subsets go before masks. Places outlive their members: who leaves a group leaves a gap, and nobody else's bit changes.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::placement::{GROUP_MASK_ALL, GROUP_MASK_BITS, GROUP_MEMBERS_MAX as PLACES, GroupRing};
use serde::{Deserialize, Serialize};

use super::{Entry as _, HostId, MemberSet, MulticastEntry, Table, TableError};
use crate::Prefix;

/// Bits of the prefix of a group.
pub const GROUP_LENGTH: u8 = 32 - GROUP_MASK_BITS as u8;
/// Most members of a subset that is worth an entry, but for the whole group: a chunk has no more copies.
const SUBSET_MEMBERS_MAX: u32 = 3;

/// The places of members in the mask of their group: of each one, in the order of the [`MemberSet`], the number of its bit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places(Vec<u8>);

impl Places {
    /// Members with the mask of each, in the order of `members`.
    pub fn masks<'a>(&'a self, members: &'a MemberSet) -> impl Iterator<Item = (HostId, u16)> + 'a {
        members.as_slice().iter().zip(&self.0).map(|(host, place)| (*host, 1 << place))
    }

    /// The places of those `members` of which `is_reached` is true.
    pub(super) fn reaching(&self, members: &MemberSet, is_reached: impl Fn(HostId) -> bool) -> Self {
        let placed = members.as_slice().iter().zip(&self.0);
        Self(placed.filter(|(host, _)| is_reached(**host)).map(|(_, place)| *place).collect())
    }
}

/// The entry of a group for switches that know of masks. `order`: who has which place; `None`: nobody has. Nothing if nobody has any.
///
/// # Panics
/// If the ring has no such group, or a group no so many places.
pub fn masked_entry(ring: &GroupRing, group: u8, order: &[Option<HostId>]) -> Option<MulticastEntry> {
    assert!(order.len() <= PLACES, "a group has {PLACES} places");
    let destination = Prefix::new(ring.address(group, 0).ip().octets(), GROUP_LENGTH);
    let there = order.iter().zip(0..).filter_map(|(host, place)| Some(((*host)?, place)));
    let mut placed: Vec<(HostId, u8)> = there.collect();
    placed.sort_unstable();
    let members = MemberSet::new(placed.iter().map(|(host, _)| *host));
    let places = Some(Places(placed.into_iter().map(|(_, place)| place).collect()));
    (!members.as_slice().is_empty()).then_some(MulticastEntry { destination, members, chain: None, places })
}

/// The entries of a group for switches that know of no masks: of every member, of all that are two or three, and of the whole group: of nine members 9 + 36 + 84 + 1 = 130.
/// A subset in which somebody is missing has an entry of those who are there.
///
/// # Panics
/// As [`masked_entry`].
pub fn subset_entries(ring: &GroupRing, group: u8, order: &[Option<HostId>]) -> Vec<MulticastEntry> {
    assert!(order.len() <= PLACES, "a group has {PLACES} places");
    let small = (1..1u16 << order.len()).filter(|mask| mask.count_ones() <= SUBSET_MEMBERS_MAX);
    // The mask of a whole group has more bits than any of these.
    let masks = small.chain([GROUP_MASK_ALL]);
    let entry = |mask: u16| {
        let meant = order.iter().zip(0..).filter(|(_, place)| mask >> place & 1 == 1);
        let members = MemberSet::new(meant.filter_map(|(host, _)| *host));
        let destination = Prefix::new(ring.address(group, mask).ip().octets(), 32);
        let is_any = !members.as_slice().is_empty();
        is_any.then_some(MulticastEntry { destination, members, chain: None, places: None })
    };
    masks.filter_map(entry).collect()
}

/// Checks what is particular to an entry of the ring of groups.
pub(super) fn validate(entry: &MulticastEntry) -> Result<(), TableError> {
    let matches = entry.matches();
    if entry.chain.is_some() {
        return Err(TableError::BadChain { table: Table::Multicast, matches });
    }
    match (&entry.places, entry.destination.length) {
        (None, 32) => Ok(()),
        (Some(Places(places)), GROUP_LENGTH) => {
            let distinct: BTreeSet<u8> = places.iter().copied().collect();
            let is_sound = distinct.len() == entry.members.as_slice().len()
                && places.len() == distinct.len()
                && places.iter().all(|place| usize::from(*place) < PLACES);
            if is_sound { Ok(()) } else { Err(TableError::BadPlaces { matches }) }
        }
        _ => Err(TableError::GroupPrefix { destination: entry.destination }),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::tables::{Host, TableSet};
    use crate::{VringConfig, VringSet};

    fn ring() -> GroupRing {
        GroupRing::on_network(7000)
    }

    fn vrings() -> VringSet {
        VringSet::new([VringConfig::DEFAULT]).unwrap().with_group(ring()).unwrap()
    }

    /// A group of hosts from `first` on.
    fn order(first: u16, members: u16) -> Vec<Option<HostId>> {
        (first..first + members).map(|id| Some(HostId(id))).collect()
    }

    fn tables(multicast: Vec<MulticastEntry>) -> TableSet {
        TableSet { hosts: (1..=100).map(Host::node).collect(), multicast, ..TableSet::default() }
    }

    fn validated(multicast: Vec<MulticastEntry>) -> Result<(), TableError> {
        tables(multicast).validate(&vrings())
    }

    #[test]
    fn a_group_of_nine_has_130_subsets_and_one_masked_entry() {
        let subsets = subset_entries(&ring(), 3, &order(1, 9));
        assert_eq!(subsets.len(), 9 + 36 + 84 + 1);
        let members = |mask| {
            let destination = Prefix::new(ring().address(3, mask).ip().octets(), 32);
            let found = subsets.iter().find(|entry| entry.destination == destination);
            found.map(|entry| entry.members.as_slice().to_vec())
        };
        assert_eq!(members(0b1_0000_0010), Some(vec![HostId(2), HostId(9)]));
        assert_eq!(members(GROUP_MASK_ALL).map(|all| all.len()), Some(9));
        assert_eq!((members(0), members(0b1111)), (None, None));
        let masked = masked_entry(&ring(), 3, &order(1, 9)).unwrap();
        assert_eq!(masked.destination, Prefix::new([10, 64, 0x30, 0], 20));
        assert_eq!(validated([subsets, vec![masked]].concat()), Ok(()));
    }

    #[test]
    fn who_leaves_leaves_a_gap() {
        let mut order = vec![Some(HostId(7)), Some(HostId(9)), Some(HostId(2))];
        let masks = |order: &[Option<HostId>]| {
            let entry = masked_entry(&ring(), 0, order).unwrap();
            entry.places.as_ref().unwrap().masks(&entry.members).collect::<Vec<_>>()
        };
        assert_eq!(masks(&order), [(HostId(2), 0b100), (HostId(7), 0b001), (HostId(9), 0b010)]);
        order[0] = None;
        assert_eq!(masks(&order), [(HostId(2), 0b100), (HostId(9), 0b010)]);
        let subsets = subset_entries(&ring(), 0, &order);
        assert_eq!(subsets.len(), 7, "all but that of the missing one alone");
        assert_eq!(validated(subsets), Ok(()));
        assert_eq!(masked_entry(&ring(), 0, &[None, None]), None);
        assert_eq!(subset_entries(&ring(), 0, &[None]), []);
    }

    #[test]
    fn what_is_neither_kind_is_refused() {
        let masked = masked_entry(&ring(), 1, &order(1, 3)).unwrap();
        let refused = |change: &dyn Fn(&mut MulticastEntry)| {
            let mut entry = masked.clone();
            change(&mut entry);
            validated(vec![entry]).expect_err("must be refused")
        };
        let places = |places: &[u8]| refused(&|entry| entry.places = Some(Places(places.into())));
        for wrong in [&[0, 1][..], &[0, 1, 1], &[0, 1, 12], &[0, 1, 2, 3]] {
            assert!(matches!(places(wrong), TableError::BadPlaces { .. }), "{wrong:?}");
        }
        let twice = masked_entry(&ring(), 1, &[Some(HostId(1)), Some(HostId(1))]).unwrap();
        assert!(matches!(validated(vec![twice]), Err(TableError::BadPlaces { .. })));
        assert!(matches!(refused(&|entry| entry.places = None), TableError::GroupPrefix { .. }));
        assert!(matches!(refused(&|entry| entry.destination.length = 32), TableError::GroupPrefix { .. }));
        assert!(matches!(
            refused(&|entry| entry.destination = Prefix::new([10, 64, 0, 0], 12)),
            TableError::GroupPrefix { .. }
        ));
        assert!(matches!(
            refused(&|entry| entry.destination.address = [10, 11, 0, 0]),
            TableError::BadPlaces { .. }
        ));
        assert!(matches!(refused(&|entry| entry.members = MemberSet::new([])), TableError::BadPlaces { .. }));
        assert!(matches!(
            tables(vec![masked.clone()]).validate(&VringConfig::DEFAULT.try_into().unwrap()),
            Err(TableError::OutsideVring { .. })
        ));
        let chain = crate::Chain::new(1, 1, [HostId(1)]);
        assert!(matches!(refused(&|entry| entry.chain = Some(chain)), TableError::BadChain { .. }));
    }

    #[test]
    fn groups_that_do_not_fit_are_refused_by_what_is_full() {
        let subsets = |groups: u8, distinct: u16| -> Vec<MulticastEntry> {
            let of_group =
                |group: u8| subset_entries(&ring(), group, &order(1 + u16::from(group) % distinct * 9, 9));
            (0..groups).flat_map(of_group).collect()
        };
        // Groups of the same members share their sets, so entries run out.
        assert_eq!(validated(subsets(31, 1)), Ok(()));
        assert_eq!(
            validated(subsets(32, 1)),
            Err(TableError::TableFull { table: Table::Multicast, entries: 32 * 130, capacity: 4096 })
        );
        // Of members of their own the sets run out first.
        assert_eq!(validated(subsets(7, 7)), Ok(()));
        assert_eq!(validated(subsets(8, 8)), Err(TableError::TooManyGroups { groups: 8 * 130 }));
        // With masks a group needs one of both.
        let masked = |group| masked_entry(&ring(), group, &order(1 + u16::from(group) % 88, 12));
        assert_eq!(validated((0..=255).filter_map(masked).collect()), Ok(()));
    }
}
