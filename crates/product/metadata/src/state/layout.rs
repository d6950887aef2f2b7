//! Layout of storage targets: groups with their members, slots with their groups, and how both
//! follow the set of nodes (P13).
//!
//! ```text
//!   slots   0 1 2 … 255      each belongs to a serving group
//!   groups  0: a b c d e f g h i      serving: six to twelve members, if there are that many
//!           1: j k l m n o p q r      serving
//!           2: x                      without slots: a leaving target stays here until it holds nothing, so that it can be read
//! ```
//!
//! A target keeps its place while it is in its group, so a bit of an address always refers to the
//! same target.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::placement::{CHUNK_SLOTS as SLOTS, GROUP_MEMBERS_MAX, GROUPS_MAX};
use serde::{Deserialize, Serialize};

/// Usual number of members of a group: three times the default number of copies of a chunk. That is
/// enough to choose the best three, and a request does not have too many receivers.
const GROUP_MEMBERS: usize = 9;
/// A group with fewer members gets members from other groups.
const GROUP_MEMBERS_MIN: usize = 6;
/// Groups are levelled if their sizes differ by more than this. Smaller differences are not worth
/// the moves.
const DIFFERENCE_MAX: usize = 3;

/// Groups of targets, and the group of each slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) groups: Vec<Vec<Option<u16>>>,
    /// The group of each slot; the slot is the first byte of an id.
    pub(crate) slots: Vec<u8>,
}

/// The number of groups for this many targets.
fn usual_count(targets: usize) -> usize {
    let least = targets.div_ceil(GROUP_MEMBERS_MAX);
    ((targets + GROUP_MEMBERS / 2) / GROUP_MEMBERS).max(least).max(1)
}

impl Layout {
    /// The first layout: all nodes in groups of about nine, with slots in proportion.
    pub(crate) fn form(nodes: &[NodeId]) -> Self {
        let count = usual_count(nodes.len());
        let mut groups = Vec::new();
        groups.resize_with(count, Vec::new);
        for (at, node) in nodes.iter().enumerate() {
            groups[at % count].push(Some(node.0));
        }
        Self { groups, slots: (0..SLOTS).map(|slot| (slot % count) as u8).collect() }
    }

    /// All targets.
    pub(crate) fn targets(&self) -> impl Iterator<Item = NodeId> {
        self.groups.iter().flatten().flatten().map(|node| NodeId(*node))
    }

    /// Whether a node is a target.
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.group_of(node).is_some()
    }

    /// The group of a node.
    pub(crate) fn group_of(&self, node: NodeId) -> Option<usize> {
        self.groups.iter().position(|group| group.contains(&Some(node.0)))
    }

    /// The members of a group.
    pub(crate) fn members(&self, group: usize) -> impl Iterator<Item = NodeId> {
        self.groups[group].iter().flatten().map(|node| NodeId(*node))
    }

    /// Whether a group has slots.
    pub(crate) fn serves(&self, group: usize) -> bool {
        self.slots.iter().any(|slot| usize::from(*slot) == group)
    }

    fn serving(&self) -> Vec<usize> {
        (0..self.groups.len()).filter(|group| self.serves(*group)).collect()
    }

    fn size(&self, group: usize) -> usize {
        self.members(group).count()
    }

    fn slots_of(&self, group: usize) -> usize {
        self.slots.iter().filter(|slot| usize::from(**slot) == group).count()
    }

    /// Removes a node. The last member of a serving group keeps its place, although requests to it
    /// fail.
    pub(crate) fn take_out(&mut self, node: NodeId) {
        let Some(group) = self.group_of(node) else { return };
        if self.size(group) > 1 || !self.serves(group) {
            self.groups[group]
                .iter_mut()
                .filter(|place| **place == Some(node.0))
                .for_each(|place| *place = None);
        }
    }

    fn put_in(&mut self, node: NodeId, group: usize) {
        match self.groups[group].iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(node.0),
            None => self.groups[group].push(Some(node.0)),
        }
    }

    /// Whether chunks must move if `next` replaces this layout.
    pub(crate) fn moves_to(&self, next: &Self) -> bool {
        let is_elsewhere = |node: NodeId| {
            let (old, new) = (self.group_of(node), next.group_of(node));
            old != new && old.is_some_and(|old| self.serves(old))
        };
        self.slots != next.slots || next.targets().any(is_elsewhere)
    }

    /// The next layout, in which these nodes serve and all others leave. Equal to this layout if it
    /// already satisfies that.
    pub(crate) fn followed(&self, wanted: &BTreeSet<NodeId>) -> Self {
        let mut next = self.clone();
        let leaving: Vec<NodeId> = self.targets().filter(|target| !wanted.contains(target)).collect();
        leaving.into_iter().for_each(|node| next.set_aside(node));
        let has_count = next.find_count(wanted.len());
        let is_placed =
            |next: &Self, node: NodeId| next.group_of(node).is_some_and(|group| next.serves(group));
        for node in wanted {
            if !is_placed(&next, *node) {
                next.take_out(*node);
                let smallest = next.smallest();
                next.put_in(*node, smallest);
            }
        }
        next.level(if has_count { DIFFERENCE_MAX } else { 1 });
        next.tidy();
        next
    }

    /// Removes empty places at the ends of groups, and empty groups at the end.
    pub(crate) fn tidy(&mut self) {
        for group in &mut self.groups {
            let kept = group.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
            group.truncate(kept);
        }
        while self.groups.last().is_some_and(Vec::is_empty) {
            self.groups.pop();
        }
    }

    /// Moves a leaving target to a group without slots, unless it is the last member of its group.
    fn set_aside(&mut self, node: NodeId) {
        let Some(group) = self.group_of(node).filter(|group| self.serves(*group)) else { return };
        if self.size(group) == 1 {
            return;
        }
        let has_room = |group: &usize| !self.serves(*group) && self.size(*group) < GROUP_MEMBERS_MAX;
        let aside = (0..self.groups.len()).find(has_room).filter(|aside| *aside != group);
        if aside.is_none() && self.groups.len() == GROUPS_MAX {
            return;
        }
        self.take_out(node);
        let aside = aside.unwrap_or_else(|| {
            self.groups.push(Vec::new());
            self.groups.len() - 1
        });
        self.put_in(node, aside);
    }

    /// Adjusts the number of serving groups to the number of targets. Returns whether the number
    /// was already right.
    fn find_count(&mut self, targets: usize) -> bool {
        let count = self.serving().len();
        let fits = (count * GROUP_MEMBERS_MIN..=count * GROUP_MEMBERS_MAX).contains(&targets);
        if fits || (count == 1 && targets <= GROUP_MEMBERS_MAX) {
            return true;
        }
        let wanted = usual_count(targets).min(GROUPS_MAX);
        for _ in count..wanted {
            let number = (0..self.groups.len()).find(|group| self.groups[*group].is_empty());
            let number = number.unwrap_or_else(|| {
                self.groups.push(Vec::new());
                self.groups.len() - 1
            });
            // With one slot the group serves; `level` gives it more slots.
            let most = self.serving().into_iter().max_by_key(|group| self.slots_of(*group)).unwrap_or(0);
            self.give_slot(most, number);
        }
        for _ in wanted..count {
            let smallest = self.smallest();
            let members: Vec<NodeId> = self.members(smallest).collect();
            self.groups[smallest].clear();
            while self.serves(smallest) {
                let others = self.serving().into_iter().filter(|group| *group != smallest);
                let least = others.min_by_key(|group| self.slots_of(*group)).unwrap_or(0);
                self.give_slot(smallest, least);
            }
            for node in members {
                let smallest = self.smallest();
                self.put_in(node, smallest);
            }
        }
        false
    }

    fn smallest(&self) -> usize {
        self.serving().into_iter().min_by_key(|group| self.size(*group)).unwrap_or(0)
    }

    fn give_slot(&mut self, from: usize, to: usize) {
        if let Some(slot) = self.slots.iter_mut().rfind(|slot| usize::from(**slot) == from) {
            *slot = to as u8;
        }
    }

    /// Evens out the numbers of members and slots of serving groups.
    fn level(&mut self, difference_max: usize) {
        loop {
            let sizes: Vec<(usize, usize)> =
                self.serving().into_iter().map(|group| (self.size(group), group)).collect();
            let (Some((least, to)), Some((most, from))) = (sizes.iter().min(), sizes.iter().max()) else {
                return;
            };
            let is_uneven = most - least > difference_max || (*least < GROUP_MEMBERS_MIN && most - least > 1);
            let Some(last) = self.members(*from).last().filter(|_| is_uneven || *most > GROUP_MEMBERS_MAX)
            else {
                break;
            };
            self.take_out(last);
            self.put_in(last, *to);
        }
        loop {
            let slots: Vec<(usize, usize)> =
                self.serving().into_iter().map(|group| (self.slots_of(group), group)).collect();
            let (Some((least, to)), Some((most, from))) = (slots.iter().min(), slots.iter().max()) else {
                return;
            };
            if most - least <= 1 {
                return;
            }
            self.give_slot(*from, *to);
        }
    }

    /// Whether the bits of addresses can refer to all places.
    pub(crate) fn has_sound_places(&self) -> bool {
        let fits = |group: &Vec<Option<u16>>| group.len() <= GROUP_MEMBERS_MAX;
        let mut targets: Vec<NodeId> = self.targets().collect();
        let count = targets.len();
        targets.sort_unstable();
        targets.dedup();
        let leads_somewhere = |slot: &u8| usize::from(*slot) < self.groups.len();
        targets.len() == count
            && (1..=GROUPS_MAX).contains(&self.groups.len())
            && self.groups.iter().all(fits)
            && self.slots.len() == SLOTS
            && self.slots.iter().all(leads_somewhere)
    }

    /// Whether the places are valid, and every slot has targets.
    pub(crate) fn is_sound(&self) -> bool {
        self.has_sound_places() && self.slots.iter().all(|slot| self.size(usize::from(*slot)) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn nodes(range: core::ops::Range<u16>) -> Vec<NodeId> {
        range.map(NodeId).collect()
    }

    fn sizes(layout: &Layout) -> Vec<usize> {
        layout.groups.iter().map(|group| group.iter().flatten().count()).collect()
    }

    #[test]
    fn groups_have_about_nine_members_and_never_more_than_twelve() {
        for (count, expected) in [
            (1, &[1][..]),
            (3, &[3]),
            (9, &[9]),
            (12, &[12]),
            (13, &[7, 6]),
            (18, &[9, 9]),
            (20, &[10, 10]),
            (27, &[9, 9, 9]),
            (40, &[10, 10, 10, 10]),
        ] {
            let all = nodes(0..count);
            let formed = Layout::form(&all);
            assert_eq!(sizes(&formed), expected, "{count}");
            assert!(all.iter().all(|node| formed.has(*node)) && !formed.has(NodeId(count)));
            assert!(formed.is_sound());
            assert_eq!(
                formed.followed(&all.into_iter().collect()),
                formed,
                "the first layout needs no change"
            );
        }
    }

    #[test]
    fn new_target_joins_the_smallest_group_without_moves() {
        let layout = Layout::form(&nodes(0..17));
        assert_eq!(sizes(&layout), [9, 8]);
        let next = layout.followed(&nodes(0..20).into_iter().collect());
        assert_eq!(sizes(&next), [10, 10]);
        assert!(!layout.moves_to(&next));
        assert!(nodes(0..17).iter().all(|node| next.group_of(*node) == layout.group_of(*node)));
    }

    #[test]
    fn leaving_target_can_be_read_until_it_is_removed() {
        let layout = Layout::form(&nodes(0..9));
        let stay = nodes(1..9).into_iter().collect();
        let next = layout.followed(&stay);
        assert_eq!((sizes(&next), next.group_of(NodeId(0))), (vec![8, 1], Some(1)));
        assert!(layout.moves_to(&next) && !next.serves(1));
        let mut gone = next.clone();
        gone.take_out(NodeId(0));
        let end = gone.followed(&stay);
        assert_eq!((sizes(&end), end.groups[0][0]), (vec![8], None), "others keep their places");
        assert!(!gone.moves_to(&end));
        let back = end.followed(&nodes(0..9).into_iter().collect());
        assert_eq!(back, layout);
    }

    #[test]
    fn full_group_is_split_and_small_groups_are_merged() {
        let layout = Layout::form(&nodes(0..12));
        let next = layout.followed(&nodes(0..13).into_iter().collect());
        assert_eq!(sizes(&next), [7, 6]);
        assert_eq!((next.slots_of(0), next.slots_of(1)), (128, 128));
        assert!(layout.moves_to(&next));
        let fewer: BTreeSet<NodeId> = nodes(0..11).into_iter().collect();
        let mut shrunk = next.clone();
        nodes(11..13).into_iter().for_each(|node| shrunk.take_out(node));
        let one = shrunk.followed(&fewer);
        assert_eq!(sizes(&one).iter().sum::<usize>(), 11);
        assert_eq!(one.serving().len(), 1);
        assert!(one.is_sound());
    }

    proptest! {
        #[test]
        fn layout_is_sound_for_random_node_changes(
            first in 1u16..40,
            steps in prop::collection::vec((0u16..60, any::<bool>()), 0..60),
        ) {
            let mut wanted: BTreeSet<NodeId> = nodes(0..first).into_iter().collect();
            let mut layout = Layout::form(&nodes(0..first));
            for (node, comes) in steps {
                if comes {
                    wanted.insert(NodeId(node));
                } else if wanted.len() > 1 {
                    wanted.remove(&NodeId(node));
                }
                layout = layout.followed(&wanted);
                prop_assert!(layout.is_sound(), "{layout:?}");
                let serves = |node: &NodeId| layout.group_of(*node).is_some_and(|group| layout.serves(group));
                prop_assert!(wanted.iter().all(serves));
                // All other targets leave, except the last members of groups.
                prop_assert_eq!(&layout.followed(&wanted), &layout, "a second application changes nothing");
                let aside: Vec<NodeId> = layout.targets().filter(|node| !wanted.contains(node)).collect();
                aside.into_iter().for_each(|node| layout.take_out(node));
                layout = layout.followed(&wanted);
                let serving = layout.serving();
                let sizes: Vec<usize> = serving.iter().map(|group| layout.size(*group)).collect();
                prop_assert!(sizes.iter().all(|size| *size <= GROUP_MEMBERS_MAX));
                prop_assert!(sizes.len() == 1 || sizes.iter().all(|size| *size >= GROUP_MEMBERS_MIN), "{sizes:?}");
                let slots: Vec<usize> = serving.iter().map(|group| layout.slots_of(*group)).collect();
                prop_assert!(slots.iter().max().unwrap() - slots.iter().min().unwrap() <= 1);
            }
        }
    }
}
