//! Routes requests to partitions, by keyspace and match value.

use alloc::vec::Vec;
use nicekv_proto::control::RESHAPED_MAX;
use nicekv_proto::{KeyspaceId, MatchRange};

#[derive(Clone, Copy)]
struct Route {
    keyspace: KeyspaceId,
    range: MatchRange,
    slot: usize,
}

/// How many routes may overlap at a match value: those of a partition and its children (R17).
const OVERLAPPING_MAX: usize = 1 + RESHAPED_MAX;

/// The ranges of the partitions of which this node is a member, in order. While one partition takes
/// over from another, their ranges overlap; the newest route then comes first.
#[derive(Clone, Default)]
pub(crate) struct Routes {
    sorted: Vec<Route>,
}

impl Routes {
    /// Routes requests for this range to the slot.
    pub(crate) fn set(&mut self, keyspace: KeyspaceId, range: MatchRange, slot: usize) {
        let known = self.sorted.iter().find(|route| route.slot == slot);
        if known.is_some_and(|route| (route.keyspace, route.range) == (keyspace, range)) {
            return;
        }
        self.sorted.retain(|route| route.slot != slot);
        let at = self
            .sorted
            .partition_point(|route| (route.keyspace, route.range.first()) <= (keyspace, range.first()));
        self.sorted.insert(at, Route { keyspace, range, slot });
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        self.sorted.retain(|route| route.slot != slot);
    }

    /// The slot of the partition that holds this match value.
    pub(crate) fn find(&self, keyspace: KeyspaceId, value: u128) -> Option<usize> {
        let end =
            self.sorted.partition_point(|route| (route.keyspace, route.range.first()) <= (keyspace, value));
        let holds = |route: &Route| route.keyspace == keyspace && route.range.contains(value);
        let (last, before) = self.sorted[..end].split_last()?;
        if holds(last) {
            return Some(last.slot);
        }
        before.iter().rev().take(OVERLAPPING_MAX - 1).find(|route| holds(route)).map(|route| route.slot)
    }

    /// The last match value up to which all values from `first` on belong to this slot; `None` if
    /// `first` does not.
    pub(crate) fn reach(&self, slot: usize, first: u128) -> Option<u128> {
        let own = self.sorted.iter().find(|route| route.slot == slot)?;
        if self.find(own.keyspace, first) != Some(slot) {
            return None;
        }
        let is_behind = |route: &&Route| {
            let begin = route.range.first();
            route.keyspace == own.keyspace && route.slot != slot && begin > first && own.range.contains(begin)
        };
        let next = self.sorted.iter().filter(is_behind).map(|route| route.range.first() - 1).min();
        Some(next.unwrap_or(own.range.last()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u128, last: u128) -> MatchRange {
        MatchRange::new(first, last).unwrap()
    }

    #[test]
    fn route_matches_keyspace_and_range() {
        let (one, two) = (KeyspaceId(1), KeyspaceId(2));
        let mut routes = Routes::default();
        routes.set(two, range(0, 9), 0);
        routes.set(one, range(5, 9), 1);
        routes.set(one, range(20, u128::MAX), 2);
        for (keyspace, value, found) in [
            (one, 4, None),
            (one, 5, Some(1)),
            (one, 9, Some(1)),
            (one, 10, None),
            (one, 20, Some(2)),
            (one, u128::MAX, Some(2)),
            (two, 5, Some(0)),
            (two, 10, None),
            (KeyspaceId(0), 5, None),
            (KeyspaceId(3), 5, None),
        ] {
            assert_eq!(routes.find(keyspace, value), found, "{keyspace:?} {value}");
        }
        routes.set(one, range(5, 7), 1);
        assert_eq!((routes.find(one, 7), routes.find(one, 8)), (Some(1), None));
        // One of two children exists here; the rest still belongs to the parent.
        routes.set(one, range(20, 29), 3);
        assert_eq!((routes.find(one, 20), routes.find(one, 30)), (Some(3), Some(2)));
        routes.set(one, range(40, u128::MAX), 4);
        assert_eq!((routes.find(one, 39), routes.find(one, 40)), (Some(2), Some(4)));
        assert_eq!(
            (routes.reach(3, 20), routes.reach(3, 25), routes.reach(3, 30)),
            (Some(29), Some(29), None)
        );
        assert_eq!((routes.reach(2, 20), routes.reach(2, 30), routes.reach(2, 40)), (None, Some(39), None));
        assert_eq!(
            (routes.reach(4, 40), routes.reach(0, 0), routes.reach(7, 0)),
            (Some(u128::MAX), Some(9), None)
        );
        routes.remove(1);
        assert_eq!((routes.find(one, 7), routes.find(one, 30)), (None, Some(2)));
    }
}
