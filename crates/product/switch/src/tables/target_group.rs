//! Builds the entries of `multicast_vring` for groups of storage targets (Replicast §III). There
//! are two kinds of entries: for switches that evaluate masks and for switches that do not. A
//! switch may have both.
//!
//! ```text
//!   kind      destination                places    a datagram reaches
//!   masked    /20: a group               yes       the members whose places are set in its address
//!   subset    /32: a group and a mask    no        all members of the entry
//! ```
//!
//! The longest prefix wins, so subset entries override masked ones.

use alloc::vec::Vec;

use nicekv_proto::placement::{GROUP_MASK_ALL, GROUP_MEMBERS_MAX as PLACES, GroupRing};

use super::host::HostId;
use super::members::{GROUP_LENGTH, MemberSet, Places};
use super::multicast_vring::MulticastEntry;
use crate::Prefix;

/// Size of the largest subset that gets an entry, besides the whole group. A chunk has at most this
/// many copies.
const SUBSET_MEMBERS_MAX: u32 = 3;

/// The entry of a group for switches that evaluate masks. `order`: the host in each place; `None`
/// for an empty place. Returns `None` if all places are empty.
///
/// # Panics
/// If the ring has no group with this number, or `order` has more places than a group.
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

/// The entries of a group for switches that do not evaluate masks: one for every member, pair and
/// triple, and one for the whole group; 9 + 36 + 84 + 1 = 130 for nine members. If some places of a
/// subset are empty, its entry has only the members in the others.
///
/// # Panics
/// Like [`masked_entry`].
pub fn subset_entries(ring: &GroupRing, group: u8, order: &[Option<HostId>]) -> Vec<MulticastEntry> {
    assert!(order.len() <= PLACES, "a group has {PLACES} places");
    let small = (1..1u16 << order.len()).filter(|mask| mask.count_ones() <= SUBSET_MEMBERS_MAX);
    // The mask of the whole group has more bits set than any of these, so it does not occur twice.
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::tables::{Host, Table, TableError, TableSet};
    use crate::{VringConfig, VringSet};

    fn ring() -> GroupRing {
        GroupRing::on_network(7000)
    }

    fn vrings() -> VringSet {
        VringSet::new([VringConfig::DEFAULT]).unwrap().with_group(ring()).unwrap()
    }

    /// A group of hosts, numbered from `first`.
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
    fn group_of_nine_has_130_subsets_and_one_masked_entry() {
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
    fn member_that_leaves_leaves_a_gap() {
        let mut order = vec![Some(HostId(7)), Some(HostId(9)), Some(HostId(2))];
        let masks = |order: &[Option<HostId>]| {
            let entry = masked_entry(&ring(), 0, order).unwrap();
            entry.places.as_ref().unwrap().masks(&entry.members).collect::<Vec<_>>()
        };
        assert_eq!(masks(&order), [(HostId(2), 0b100), (HostId(7), 0b001), (HostId(9), 0b010)]);
        order[0] = None;
        assert_eq!(masks(&order), [(HostId(2), 0b100), (HostId(9), 0b010)]);
        let subsets = subset_entries(&ring(), 0, &order);
        assert_eq!(subsets.len(), 7, "no entry for a subset with only the empty place");
        assert_eq!(validated(subsets), Ok(()));
        assert_eq!(masked_entry(&ring(), 0, &[None, None]), None);
        assert_eq!(subset_entries(&ring(), 0, &[None]), []);
    }

    #[test]
    fn entry_of_neither_kind_is_refused() {
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
    fn groups_that_do_not_fit_are_refused() {
        let subsets = |groups: u8, distinct: u16| -> Vec<MulticastEntry> {
            let of_group =
                |group: u8| subset_entries(&ring(), group, &order(1 + u16::from(group) % distinct * 9, 9));
            (0..groups).flat_map(of_group).collect()
        };
        // Groups with the same members share their member sets, so the table fills up first.
        assert_eq!(validated(subsets(31, 1)), Ok(()));
        assert_eq!(
            validated(subsets(32, 1)),
            Err(TableError::TableFull { table: Table::Multicast, entries: 32 * 130, capacity: 4096 })
        );
        // Groups with different members run out of member sets first.
        assert_eq!(validated(subsets(7, 7)), Ok(()));
        assert_eq!(validated(subsets(8, 8)), Err(TableError::TooManyGroups { groups: 8 * 130 }));
        // With masks, a group needs only one entry and one member set.
        let masked = |group| masked_entry(&ring(), group, &order(1 + u16::from(group) % 88, 12));
        assert_eq!(validated((0..=255).filter_map(masked).collect()), Ok(()));
    }
}
