//! What happens when.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events in the order of their times, and those of one time in the order in which they were entered.
pub(crate) struct Calendar<E> {
    heap: BinaryHeap<Entry<E>>,
    entered: u64,
    passed: u64,
    now_ns: u64,
}

struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> Calendar<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0, passed: 0, now_ns: 0 }
    }

    /// Of the event that came last.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// How many have come.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        self.enter_behind(at_ns, event, 0);
    }

    /// As if that many others had been entered before: of those that will be for the same time, so many come first.
    pub(crate) fn enter_behind(&mut self, at_ns: u64, event: E, others: u64) {
        assert!(at_ns >= self.now_ns, "nothing happens before now");
        self.heap.push(Entry { at_ns, number: self.entered + others, event });
        self.entered += 1;
    }

    /// The next one, if it is not later than that.
    pub(crate) fn next(&mut self, until_ns: u64) -> Option<E> {
        if self.heap.peek()?.at_ns > until_ns {
            return None;
        }
        let Entry { at_ns, event, .. } = self.heap.pop()?;
        self.now_ns = at_ns;
        self.passed += 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_entered() {
        let mut calendar = Calendar::new();
        for (at_ns, event) in [(5, 'd'), (3, 'a'), (5, 'e'), (3, 'c'), (9, 'f')] {
            calendar.enter_behind(at_ns, event, if event == 'a' { 3 } else { 0 });
            if event == 'c' {
                calendar.enter(3, 'b');
            }
        }
        let come: String = std::iter::from_fn(|| calendar.next(8)).collect();
        assert_eq!((come.as_str(), calendar.now_ns(), calendar.passed()), ("cabde", 5, 5));
        assert_eq!(calendar.next(9), Some('f'));
    }
}
