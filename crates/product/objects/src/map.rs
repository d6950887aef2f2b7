//! Which chunk belongs to which group (P2), and to which one it belonged before while groups are changed (P13).
//!
//! ```text
//!   id ──first byte──▶ slot ──layout of version v──▶ group ──▶ up to twelve targets, each at a place of its own
//!
//!   version v      layout A              every chunk is where it belongs
//!   version v+1    layout B, before: A   a slot moves if its group by A has targets that its group by B lacks: these put
//!                                        what they hold to the group by B; readers that find nothing there ask them
//!   version v+2    layout B              all of them are done
//! ```
//!
//! A target keeps its place as long as it is in its group, so that a bit of a mask always means the same target in one
//! version. Adding a member to a group, or removing one, moves nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{ChunkId, MapVersion};
pub use nicekv_proto::placement::CHUNK_SLOTS as SLOTS;
use nicekv_proto::placement::{GROUP_MEMBERS_MAX, GROUPS_MAX};

/// The targets of a group, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    members: [Option<NodeId>; GROUP_MEMBERS_MAX],
}

impl Group {
    /// A group of these targets, at the places from 0 on.
    ///
    /// # Errors
    /// There are none or too many, or one occurs twice.
    pub fn new(nodes: &[NodeId]) -> Result<Self, MapError> {
        if nodes.len() > GROUP_MEMBERS_MAX {
            return Err(MapError::GroupSize { members: nodes.len() });
        }
        let mut places = [None; GROUP_MEMBERS_MAX];
        places.iter_mut().zip(nodes).for_each(|(place, node)| *place = Some(*node));
        Self::at_places(&places)
    }

    /// A group with these places, of which some may be free.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn at_places(places: &[Option<NodeId>]) -> Result<Self, MapError> {
        let nodes: Vec<NodeId> = places.iter().copied().flatten().collect();
        if nodes.is_empty() || places.len() > GROUP_MEMBERS_MAX {
            return Err(MapError::GroupSize { members: nodes.len() });
        }
        let mut group = Self::default();
        group.members[..places.len()].copy_from_slice(places);
        let is_twice = |node: &&NodeId| nodes.iter().filter(|other| other == node).count() > 1;
        nodes.iter().find(is_twice).map_or(Ok(group), |node| Err(MapError::Twice { node: *node }))
    }

    /// The group without a target.
    #[must_use]
    pub fn without(mut self, node: NodeId) -> Self {
        self.members.iter_mut().filter(|member| **member == Some(node)).for_each(|member| *member = None);
        self
    }

    /// The place of a target, if it is a member.
    pub fn place_of(&self, node: NodeId) -> Option<u8> {
        self.members.iter().position(|member| *member == Some(node)).map(|place| place as u8)
    }

    /// The target at a place.
    pub fn at(&self, place: u8) -> Option<NodeId> {
        self.members.get(usize::from(place)).copied().flatten()
    }

    /// A mask of the places that are taken.
    pub fn mask(&self) -> u16 {
        self.members().fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// The targets, with their places.
    pub fn members(&self) -> impl Iterator<Item = (u8, NodeId)> {
        self.members.iter().enumerate().filter_map(|(place, node)| Some((place as u8, (*node)?)))
    }
}

/// Groups of targets, and the group of each slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    groups: Vec<Group>,
    slots: [u8; SLOTS],
}

/// A version of the map: the layout, and the former one while slots move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    version: MapVersion,
    layout: Layout,
    /// The former layout, while slots move.
    before: Option<Layout>,
    /// Group and place of each target.
    places: BTreeMap<NodeId, (u8, u8)>,
}

/// Why a map is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A group has no members, or too many.
    #[error("group of {members} targets: it must have 1 to {GROUP_MEMBERS_MAX}")]
    GroupSize {
        /// Its members.
        members: usize,
    },
    /// A target is in the map twice.
    #[error("{node} is in two places")]
    Twice {
        /// The target.
        node: NodeId,
    },
    /// There are no groups, or too many.
    #[error("{groups} groups: there must be 1 to {GROUPS_MAX}")]
    Groups {
        /// Their number.
        groups: usize,
    },
    /// A slot belongs to a group that does not exist, or has no members.
    #[error("slot {slot} belongs to group {group}, which has no members")]
    Slot {
        /// The slot.
        slot: u8,
        /// Its group.
        group: u8,
    },
}

impl Layout {
    /// `slots` gives the group of each slot. A group without members keeps its number free.
    ///
    /// # Errors
    /// There are no groups or too many, a target is in two of them, or a slot has none.
    pub fn new(groups: Vec<Group>, slots: [u8; SLOTS]) -> Result<Self, MapError> {
        if groups.is_empty() || groups.len() > GROUPS_MAX {
            return Err(MapError::Groups { groups: groups.len() });
        }
        let mut nodes: Vec<NodeId> =
            groups.iter().flat_map(|group| group.members().map(|(_, node)| node)).collect();
        nodes.sort_unstable();
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(MapError::Twice { node: pair[0] });
        }
        let layout = Self { groups, slots };
        let leads_nowhere = |group: &u8| usize::from(*group) >= layout.groups.len();
        layout.slot_that(leads_nowhere).map_or(Ok(layout), Err)
    }

    /// Deals out slots evenly.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn dealt(groups: Vec<Group>) -> Result<Self, MapError> {
        let count = groups.len().max(1);
        Self::new(groups, core::array::from_fn(|slot| (slot % count) as u8))
    }

    /// The groups, by number.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The group of each slot.
    pub fn slots(&self) -> &[u8; SLOTS] {
        &self.slots
    }

    fn slot_that(&self, is_wrong: impl Fn(&u8) -> bool) -> Option<MapError> {
        let slot = self.slots.iter().position(is_wrong)?;
        Some(MapError::Slot { slot: slot as u8, group: self.slots[slot] })
    }

    fn group_of(&self, id: &ChunkId) -> (u8, &Group) {
        let number = self.slots[usize::from(id.0[0])];
        (number, &self.groups[usize::from(number)])
    }
}

impl Map {
    /// A map with evenly dealt slots, of which none moves.
    ///
    /// # Errors
    /// There are no groups or too many, one has no members, or a target is in two of them.
    pub fn new(version: MapVersion, groups: Vec<Group>) -> Result<Self, MapError> {
        Self::of(version, Layout::dealt(groups)?, None)
    }

    /// A map with this layout; `before` is the former one while slots move, whose groups may have lost all members.
    ///
    /// # Errors
    /// A slot belongs to a group without members.
    pub fn of(version: MapVersion, layout: Layout, before: Option<Layout>) -> Result<Self, MapError> {
        let is_empty = |group: &u8| layout.groups[usize::from(*group)].mask() == 0;
        if let Some(error) = layout.slot_that(is_empty) {
            return Err(error);
        }
        let groups = layout.groups.iter().enumerate();
        let places = groups.flat_map(|(number, group)| {
            group.members().map(move |(place, node)| (node, (number as u8, place)))
        });
        Ok(Self { version, places: places.collect(), layout, before })
    }

    /// Its version.
    pub fn version(&self) -> MapVersion {
        self.version
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The former layout, while slots move.
    pub fn before(&self) -> Option<&Layout> {
        self.before.as_ref()
    }

    /// The group with a number.
    pub fn group(&self, number: u8) -> Option<&Group> {
        self.layout.groups.get(usize::from(number))
    }

    /// Number and group of a chunk.
    pub fn group_of(&self, id: &ChunkId) -> (u8, &Group) {
        self.layout.group_of(id)
    }

    /// Group and place of a target; `None` if it was removed.
    pub fn place_of(&self, node: NodeId) -> Option<(u8, u8)> {
        self.places.get(&node).copied()
    }

    /// Former members of a chunk's group that are not in its present one, by their *present* groups and places. Targets that
    /// were removed are left out. The chunk's slot moves if there are any (P13).
    pub fn former(&self, id: &ChunkId) -> impl Iterator<Item = (u8, u8)> {
        let present = self.group_of(id).0;
        let before = self.before.as_ref().map(|before| before.group_of(id).1);
        let members = before.into_iter().flat_map(|group| group.members());
        members.filter_map(|(_, node)| self.place_of(node)).filter(move |(group, _)| *group != present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn nodes(range: core::ops::Range<u16>) -> Vec<NodeId> {
        range.map(NodeId).collect()
    }

    #[test]
    fn each_target_has_a_place_in_one_group() {
        let groups = vec![Group::new(&nodes(0..9)).unwrap(), Group::new(&nodes(9..15)).unwrap()];
        let map = Map::new(MapVersion(3), groups.clone()).unwrap();
        let of = |first: u8| map.group_of(&ChunkId([first; 32]));
        assert_eq!((of(4), of(5)), ((0, &groups[0]), (1, &groups[1])));
        assert_eq!((groups[1].place_of(NodeId(9)), groups[1].at(5)), (Some(0), Some(NodeId(14))));
        assert_eq!((groups[1].place_of(NodeId(8)), groups[1].at(6), groups[1].at(200)), (None, None, None));
        assert_eq!((groups[0].mask(), groups[1].mask()), (0x1ff, 0x3f));
    }

    #[test]
    fn invalid_maps_are_refused() {
        let group = |range| Group::new(&nodes(range)).unwrap();
        assert_eq!(Group::new(&[]), Err(MapError::GroupSize { members: 0 }));
        assert_eq!(Group::new(&nodes(0..13)), Err(MapError::GroupSize { members: 13 }));
        assert_eq!(Group::new(&[NodeId(1), NodeId(1)]), Err(MapError::Twice { node: NodeId(1) }));
        let twice = Map::new(MapVersion(1), vec![group(0..4), group(3..6)]);
        assert_eq!(twice, Err(MapError::Twice { node: NodeId(3) }));
        assert_eq!(Map::new(MapVersion(1), vec![]), Err(MapError::Groups { groups: 0 }));
        let many = (0..=GROUPS_MAX as u16).map(|node| group(node..node + 1)).collect();
        assert_eq!(Layout::dealt(many), Err(MapError::Groups { groups: GROUPS_MAX + 1 }));
        let mut slots = [0; SLOTS];
        slots[9] = 2;
        let error = MapError::Slot { slot: 9, group: 2 };
        assert_eq!(Layout::new(vec![group(0..4), group(4..6)], slots), Err(error));
        let empty = Layout::new(vec![group(0..4), group(4..6), Group::default()], slots).unwrap();
        assert_eq!(Map::of(MapVersion(1), empty.clone(), None), Err(error));
        let present = Layout::dealt(vec![group(0..4), group(4..6)]).unwrap();
        assert!(Map::of(MapVersion(1), present, Some(empty)).is_ok(), "former members may be gone");
    }

    const ID: ChunkId = ChunkId([5; 32]);

    fn layout(groups: &[core::ops::Range<u16>], of_five: u8) -> Layout {
        let groups = groups.iter().map(|range| Group::new(&nodes(range.clone())).unwrap());
        let mut slots = [0; SLOTS];
        slots[5] = of_five;
        Layout::new(groups.collect(), slots).unwrap()
    }

    fn former(before: Layout, now: Layout) -> Vec<(u8, u8)> {
        Map::of(MapVersion(2), now, Some(before)).unwrap().former(&ID).collect()
    }

    #[test]
    fn former_members_of_a_moved_slot_are_at_their_present_places() {
        let before = layout(&[0..4, 4..8], 1);
        assert_eq!(former(before.clone(), layout(&[0..4, 4..8], 0)), [(1, 0), (1, 1), (1, 2), (1, 3)]);
        assert_eq!(
            former(before.clone(), layout(&[0..7, 7..9], 0)),
            [(1, 0)],
            "the other former members are still members"
        );
        // A target that goes to another group is a former member of slots that stay, too.
        assert_eq!(former(before.clone(), layout(&[0..5, 5..9], 1)), [(0, 4)]);
        let map = Map::of(MapVersion(3), layout(&[0..4, 4..8], 0), None).unwrap();
        assert_eq!((map.former(&ID).count(), map.before()), (0, None));
    }

    #[test]
    fn nothing_moves_when_groups_grow_shrink_or_are_renumbered() {
        let before = layout(&[0..4, 4..8], 1);
        assert_eq!(former(before.clone(), layout(&[0..4, 4..9], 1)), [], "grown");
        assert_eq!(
            former(before.clone(), layout(&[0..4, 5..8], 1)),
            [],
            "a removed target is no former member"
        );
        assert_eq!(former(before.clone(), layout(&[4..8, 0..4], 0)), [], "another number");
        let places = [Some(NodeId(7)), None, Some(NodeId(5)), Some(NodeId(4)), Some(NodeId(6))];
        let other = Group::at_places(&places).unwrap();
        let groups = vec![Group::new(&nodes(0..4)).unwrap(), other];
        assert_eq!(former(before, Layout::new(groups, [1; SLOTS]).unwrap()), [], "other places");
    }

    #[test]
    fn removed_target_has_no_place() {
        let group = Group::new(&nodes(0..4)).unwrap().without(NodeId(1));
        assert_eq!((group.mask(), group.at(1), group.place_of(NodeId(3))), (0b1101, None, Some(3)));
        let map = Map::new(MapVersion(1), vec![group, Group::new(&nodes(7..9)).unwrap()]).unwrap();
        assert_eq!([1, 3, 8].map(|node| map.place_of(NodeId(node))), [None, Some((0, 3)), Some((1, 1))]);
    }
}
