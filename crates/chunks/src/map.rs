//! Which chunk belongs to which group (P2).
//!
//! ```text
//!   id ──first byte──▶ slot ──map of version v──▶ group ──▶ up to twelve targets, each at a place of its own
//! ```
//!
//! A target keeps its place as long as it is in its group, so that a bit of a mask means the same target for as long as the version does.

use alloc::vec::Vec;
use nicekv_placement::{GROUP_MEMBERS_MAX, GROUPS_MAX};
use nicekv_wire::NodeId;
use nicekv_wire::chunk::{ChunkId, MapVersion};

/// Parts of all ids that move between groups as wholes.
pub const SLOTS: usize = 256;

/// The targets of a negotiating group, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    members: [Option<NodeId>; GROUP_MEMBERS_MAX],
}

impl Group {
    /// These targets, at the places from 0 on.
    ///
    /// # Errors
    /// If there are none or too many, or one comes twice.
    pub fn new(nodes: &[NodeId]) -> Result<Self, MapError> {
        if nodes.len() > GROUP_MEMBERS_MAX {
            return Err(MapError::GroupSize { members: nodes.len() });
        }
        let mut places = [None; GROUP_MEMBERS_MAX];
        places.iter_mut().zip(nodes).for_each(|(place, node)| *place = Some(*node));
        Self::at_places(&places)
    }

    /// The same, of which some places may be nobody's.
    ///
    /// # Errors
    /// Likewise.
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

    /// The place of a target.
    pub fn place_of(&self, node: NodeId) -> Option<u8> {
        self.members.iter().position(|member| *member == Some(node)).map(|place| place as u8)
    }

    /// The target at a place.
    pub fn at(&self, place: u8) -> Option<NodeId> {
        self.members.get(usize::from(place)).copied().flatten()
    }

    /// A bit for each place that is taken.
    pub fn mask(&self) -> u16 {
        self.members().fold(0, |mask, (place, _)| mask | 1 << place)
    }

    /// The targets, with their places.
    pub fn members(&self) -> impl Iterator<Item = (u8, NodeId)> {
        self.members.iter().enumerate().filter_map(|(place, node)| Some((place as u8, (*node)?)))
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    version: MapVersion,
    groups: Vec<Group>,
    /// Which group has a slot.
    slots: [u8; SLOTS],
}

/// What is no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A group has no member, or more than there are bits for.
    #[error("a group of {members} targets; it must have 1 to {GROUP_MEMBERS_MAX}")]
    GroupSize {
        /// How many it has.
        members: usize,
    },
    /// A target is in a map twice.
    #[error("{node} is in two places")]
    Twice {
        /// Which.
        node: NodeId,
    },
    /// No groups, or too many.
    #[error("{groups} groups; there must be 1 to {GROUPS_MAX}")]
    Groups {
        /// How many.
        groups: usize,
    },
}

impl Map {
    /// Slots are dealt out evenly.
    ///
    /// # Errors
    /// If there are no groups, or too many, or a target is in two of them.
    pub fn new(version: MapVersion, groups: Vec<Group>) -> Result<Self, MapError> {
        if groups.is_empty() || groups.len() > GROUPS_MAX {
            return Err(MapError::Groups { groups: groups.len() });
        }
        for (at, group) in groups.iter().enumerate() {
            let others = &groups[at + 1..];
            let mut nodes = group.members().map(|(_, node)| node);
            if let Some(node) = nodes.find(|node| others.iter().any(|other| other.place_of(*node).is_some()))
            {
                return Err(MapError::Twice { node });
            }
        }
        let slots = core::array::from_fn(|slot| (slot % groups.len()) as u8);
        Ok(Self { version, groups, slots })
    }

    /// Its version.
    pub fn version(&self) -> MapVersion {
        self.version
    }

    /// The group of that number.
    pub fn group(&self, number: u8) -> Option<&Group> {
        self.groups.get(usize::from(number))
    }

    /// The group of a chunk, with its number.
    pub fn group_of(&self, id: &ChunkId) -> (u8, &Group) {
        let number = self.slots[usize::from(id.0[0])];
        (number, &self.groups[usize::from(number)])
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
    fn what_is_no_map_is_refused() {
        let group = |range| Group::new(&nodes(range)).unwrap();
        assert_eq!(Group::new(&[]), Err(MapError::GroupSize { members: 0 }));
        assert_eq!(Group::new(&nodes(0..13)), Err(MapError::GroupSize { members: 13 }));
        assert_eq!(Group::new(&[NodeId(1), NodeId(1)]), Err(MapError::Twice { node: NodeId(1) }));
        let twice = Map::new(MapVersion(1), vec![group(0..4), group(3..6)]);
        assert_eq!(twice, Err(MapError::Twice { node: NodeId(3) }));
        assert_eq!(Map::new(MapVersion(1), vec![]), Err(MapError::Groups { groups: 0 }));
    }
}
