//! Who has not answered for long.
//!
//! A question or its answer may be lost, and a process that begins anew is back soon: chunks are not put again for that. Who is silent for longer counts as one that does not hold what it held, and
//! if it comes back there is a copy too many for a while.

use alloc::collections::BTreeMap;
use nicekv_proto::NodeId;

/// So many questions have to be in vain.
const QUESTIONS_MIN: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Quiet {
    since_ns: u64,
    questions: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Silence {
    patience_ns: u64,
    quiet: BTreeMap<NodeId, Quiet>,
}

impl Silence {
    pub(super) fn new(patience_ns: u64) -> Self {
        Self { patience_ns, quiet: BTreeMap::new() }
    }

    /// A question has ended.
    pub(super) fn note(&mut self, now_ns: u64, node: NodeId, is_silent: bool) {
        if is_silent {
            self.quiet.entry(node).or_insert(Quiet { since_ns: now_ns, questions: 0 }).questions += 1;
        } else {
            self.quiet.remove(&node);
        }
    }

    /// Whether it does not count any more.
    pub(super) fn is_gone(&self, now_ns: u64, node: NodeId) -> bool {
        self.quiet.get(&node).is_some_and(|quiet| {
            quiet.questions >= QUESTIONS_MIN && now_ns.saturating_sub(quiet.since_ns) >= self.patience_ns
        })
    }

    /// Groups are others: who is in none is not asked any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(NodeId) -> bool) {
        self.quiet.retain(|node, _| is_there(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_time_and_questions_and_ends_with_a_word() {
        let (mut silence, node) = (Silence::new(100), NodeId(3));
        silence.note(10, node, true);
        silence.note(500, node, true);
        assert!(!silence.is_gone(500, node), "two may have been lost");
        silence.note(600, node, true);
        assert!(silence.is_gone(600, node) && !silence.is_gone(600, NodeId(4)));
        silence.note(700, node, false);
        [710, 720, 730].iter().for_each(|now_ns| silence.note(*now_ns, node, true));
        assert!(!silence.is_gone(730, node) && silence.is_gone(810, node));
        silence.retain(|node| node != NodeId(3));
        assert!(!silence.is_gone(810, node));
    }
}
