//! Targets that have not answered for long.
//!
//! A request or its answer may be lost, and a restarting process soon returns, so chunks are not
//! put again for a short silence. A target that is silent for longer no longer counts as a holder.
//! If it returns, there is one copy too many for a while.

use alloc::collections::BTreeMap;
use nicekv_proto::NodeId;

/// Unanswered requests before a target counts as gone.
const REQUESTS_MIN: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Silence {
    since_ns: u64,
    requests: u32,
}

/// The silent targets, and since when they are silent.
#[derive(Clone, Debug)]
pub(super) struct SilentTargets {
    timeout_ns: u64,
    targets: BTreeMap<NodeId, Silence>,
}

impl SilentTargets {
    pub(super) fn new(timeout_ns: u64) -> Self {
        Self { timeout_ns, targets: BTreeMap::new() }
    }

    /// Records how a request to a target has ended.
    pub(super) fn note(&mut self, now_ns: u64, node: NodeId, is_silent: bool) {
        if is_silent {
            self.targets.entry(node).or_insert(Silence { since_ns: now_ns, requests: 0 }).requests += 1;
        } else {
            self.targets.remove(&node);
        }
    }

    /// Whether a target no longer counts as a holder.
    pub(super) fn is_gone(&self, now_ns: u64, node: NodeId) -> bool {
        self.targets.get(&node).is_some_and(|silence| {
            silence.requests >= REQUESTS_MIN && now_ns.saturating_sub(silence.since_ns) >= self.timeout_ns
        })
    }

    /// After a change of the map: forgets targets that are no longer in any group.
    pub(super) fn retain(&mut self, is_there: impl Fn(NodeId) -> bool) {
        self.targets.retain(|node, _| is_there(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_gone_after_time_and_requests_until_it_answers() {
        let (mut silent, node) = (SilentTargets::new(100), NodeId(3));
        silent.note(10, node, true);
        silent.note(500, node, true);
        assert!(!silent.is_gone(500, node), "two requests may have been lost");
        silent.note(600, node, true);
        assert!(silent.is_gone(600, node) && !silent.is_gone(600, NodeId(4)));
        silent.note(700, node, false);
        [710, 720, 730].iter().for_each(|now_ns| silent.note(*now_ns, node, true));
        assert!(!silent.is_gone(730, node) && silent.is_gone(810, node));
        silent.retain(|node| node != NodeId(3));
        assert!(!silent.is_gone(810, node));
    }
}
