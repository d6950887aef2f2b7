//! Replicas that quorum puts (R14) found much slower than the k that they needed.
//!
//! A put learns from reports which replicas are slow. By then it has filled such a replica's link,
//! and heartbeats and the answer to the next put's query queue behind those chunks. So slow
//! replicas are remembered for a while, and the next puts leave them out from the first chunk on.

use alloc::vec::Vec;
use nicekv_proto::NodeId;
use nicekv_proto::limits::MEMBERS_MAX;

/// After this time, the next put tries a slow replica again.
const REMEMBERED_NS: u64 = 2_000_000_000;

/// A replica, and how many chunks a second it took.
pub(crate) type Slow = (NodeId, u32);

/// Maximum number of remembered replicas; enough for several partitions.
const SLOW_MAX: usize = 4 * MEMBERS_MAX;

/// The slow replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlowReplicas {
    /// When each was found slow, oldest first.
    noted: Vec<(u64, Slow)>,
}

impl SlowReplicas {
    /// Records replicas that were just found slow.
    pub(crate) fn note(&mut self, now_ns: u64, slow: impl Iterator<Item = Slow>) {
        for (node, chunks_per_second) in slow {
            self.noted.retain(|(_, (known, _))| *known != node);
            if self.noted.len() == SLOW_MAX {
                self.noted.remove(0);
            }
            self.noted.push((now_ns, (node, chunks_per_second)));
        }
    }

    /// The replicas found slow within the last [`REMEMBERED_NS`], newest first; at most `at_most`.
    pub(super) fn recent(&self, now_ns: u64, at_most: usize) -> Vec<Slow> {
        let is_late = |(since_ns, _): &&(u64, Slow)| since_ns + REMEMBERED_NS > now_ns;
        self.noted.iter().rev().take_while(is_late).take(at_most).map(|(_, slow)| *slow).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_replicas_are_remembered_for_a_while() {
        let mut slow = SlowReplicas::default();
        let [one, two, three] = [1, 2, 3].map(|node| (NodeId(node), 400));
        slow.note(0, [one, two].into_iter());
        slow.note(1_000, [three, one].into_iter());
        assert_eq!(slow.recent(1_000, 9), [one, three, two]);
        assert_eq!(slow.recent(1_000, 2), [one, three]);
        assert_eq!(slow.recent(REMEMBERED_NS, 9), [one, three]);
        assert_eq!(slow.recent(REMEMBERED_NS + 1_000, 9), []);
        slow.note(2_000, (0..200).map(|node| (NodeId(node), 1)));
        assert_eq!(slow.noted.len(), SLOW_MAX);
    }
}
