//! Replicas that puts to any k (R14) found much slower than those that they needed.
//!
//! A put learns only from reports who is slow, and what it has sent by then fills the link of that replica, with its heartbeats and its answers to the next put's question behind it. So
//! it is remembered for a while: the next puts do without those replicas from their first chunk on.

use alloc::vec::Vec;
use nicekv_proto::NodeId;
use nicekv_proto::limits::MEMBERS_MAX;

/// So long; then the next put finds it out anew.
const REMEMBERED_NS: u64 = 2_000_000_000;

/// A replica, and how many chunks a second it has taken.
pub(super) type Slow = (NodeId, u32);

/// Those of several partitions' at most.
const SLOW_MAX: usize = 4 * MEMBERS_MAX;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowReplicas {
    /// Since when, oldest first.
    noted: Vec<(u64, Slow)>,
}

impl SlowReplicas {
    /// These were slow just now.
    pub(super) fn note(&mut self, now_ns: u64, slow: impl Iterator<Item = Slow>) {
        for (node, chunks_per_second) in slow {
            self.noted.retain(|(_, (known, _))| *known != node);
            if self.noted.len() == SLOW_MAX {
                self.noted.remove(0);
            }
            self.noted.push((now_ns, (node, chunks_per_second)));
        }
    }

    /// As many as a put can do without, the last ones that were found.
    pub(super) fn of_late(&self, now_ns: u64, at_most: usize) -> Vec<Slow> {
        let is_late = |(since_ns, _): &&(u64, Slow)| since_ns + REMEMBERED_NS > now_ns;
        self.noted.iter().rev().take_while(is_late).take(at_most).map(|(_, slow)| *slow).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_a_put_can_do_without_are_remembered_for_a_while() {
        let mut slow = SlowReplicas::default();
        let [one, two, three] = [1, 2, 3].map(|node| (NodeId(node), 400));
        slow.note(0, [one, two].into_iter());
        slow.note(1_000, [three, one].into_iter());
        assert_eq!(slow.of_late(1_000, 9), [one, three, two]);
        assert_eq!(slow.of_late(1_000, 2), [one, three]);
        assert_eq!(slow.of_late(REMEMBERED_NS, 9), [one, three]);
        assert_eq!(slow.of_late(REMEMBERED_NS + 1_000, 9), []);
        slow.note(2_000, (0..200).map(|node| (NodeId(node), 1)));
        assert_eq!(slow.noted.len(), SLOW_MAX);
    }
}
