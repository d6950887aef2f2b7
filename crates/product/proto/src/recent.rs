//! The most recent ops with their outcomes: a bounded cache that recognises retransmissions.

use crate::OpId;
use alloc::collections::{BTreeMap, VecDeque};

#[derive(Clone, Debug)]
pub struct Recent {
    max: usize,
    by_op: BTreeMap<OpId, u32>,
    /// Oldest first.
    order: VecDeque<OpId>,
}

impl Recent {
    /// Room for `count` ops, at least one.
    pub fn new(max: usize) -> Self {
        Self { max: max.max(1), by_op: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Outcome of an op, if it is remembered.
    pub fn get(&self, op: OpId) -> Option<u32> {
        self.by_op.get(&op).copied()
    }

    /// Remembers an op, replacing the oldest if full; `false`, and no change, if it is already
    /// known.
    pub fn note(&mut self, op: OpId, result: u32) -> bool {
        if self.by_op.contains_key(&op) {
            return false;
        }
        if self.order.len() == self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_op.remove(&oldest);
        }
        self.order.push_back(op);
        self.by_op.insert(op, result);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientId;

    #[test]
    fn last_ops_are_remembered_up_to_the_bound() {
        let op = |sequence| OpId { client: ClientId(7), sequence };
        let mut recent = Recent::new(3);
        for sequence in 1..=4 {
            assert!(recent.note(op(sequence), sequence as u32 * 10));
        }
        assert_eq!(
            [1, 2, 3, 4].map(|sequence| recent.get(op(sequence))),
            [None, Some(20), Some(30), Some(40)]
        );
        assert!(!recent.note(op(3), 99), "a repeated op is not new");
        assert_eq!(recent.get(op(3)), Some(30));
        assert_eq!((recent.by_op.len(), recent.order.len()), (3, 3));
    }
}
