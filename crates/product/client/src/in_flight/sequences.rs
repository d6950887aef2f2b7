//! Op ids: sequence numbers from the oldest unfinished op to the newest, and the watermark.

use crate::SEQUENCE_SPAN_MAX;
use alloc::collections::VecDeque;

const FINISHED: u32 = u32::MAX;

/// The unfinished ops by sequence number. Finds the slot of an op, and the watermark, in constant
/// time.
#[derive(Clone, Debug)]
pub(super) struct Sequences {
    /// Sequence number of the front of `slots`: the oldest unfinished op, or the next op if there is none.
    first: u64,
    slots: VecDeque<u32>,
}

impl Sequences {
    pub(super) fn new() -> Self {
        Self { first: 1, slots: VecDeque::new() }
    }

    /// Every op with a smaller sequence number is finished. Gets count too: a get that waits only makes replicas remember
    /// results a little longer.
    pub(super) fn watermark(&self) -> u64 {
        self.first
    }

    pub(super) fn room(&self) -> usize {
        SEQUENCE_SPAN_MAX - self.slots.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// The sequence of the next op.
    pub(super) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Gives the next sequence number to the op in `slot`.
    pub(super) fn begin(&mut self, slot: u32) -> u64 {
        assert!(!self.is_full() && slot != FINISHED);
        self.slots.push_back(slot);
        self.next() - 1
    }

    /// The slot of an unfinished op.
    pub(super) fn slot(&self, sequence: u64) -> Option<u32> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        self.slots.get(at).copied().filter(|slot| *slot != FINISHED)
    }

    /// The op will never be sent again.
    pub(super) fn finish(&mut self, sequence: u64) {
        let at = (sequence - self.first) as usize;
        assert_ne!(self.slots[at], FINISHED, "op {sequence} finished twice");
        self.slots[at] = FINISHED;
        while self.slots.front() == Some(&FINISHED) {
            self.slots.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermark_is_the_oldest_unfinished_op() {
        let mut sequences = Sequences::new();
        assert_eq!((sequences.begin(7), sequences.begin(8), sequences.begin(9)), (1, 2, 3));
        sequences.finish(2);
        assert_eq!((sequences.watermark(), sequences.slot(2), sequences.slot(3)), (1, None, Some(9)));
        sequences.finish(1);
        assert_eq!((sequences.watermark(), sequences.slot(1)), (3, None));
        sequences.finish(3);
        assert_eq!((sequences.watermark(), sequences.begin(7)), (4, 4));
    }

    #[test]
    fn span_is_bounded() {
        let mut sequences = Sequences::new();
        sequences.begin(0);
        for sequence in 2..=SEQUENCE_SPAN_MAX as u64 {
            sequences.begin(1);
            sequences.finish(sequence);
        }
        assert!(sequences.is_full(), "the first op is still unfinished");
        sequences.finish(1);
        assert!(!sequences.is_full());
    }
}
