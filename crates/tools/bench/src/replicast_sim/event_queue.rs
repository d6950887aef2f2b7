//! The events of a simulation, by time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events in order of their times; those of the same time in the order of insertion.
pub(crate) struct EventQueue<E> {
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
    /// Reversed, so that the heap's greatest entry is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), entered: 0, passed: 0, now_ns: 0 }
    }

    /// Time of the last event.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Number of events so far.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        self.enter_behind(at_ns, event, 0);
    }

    /// Inserts an event as if `others` more events had been inserted before it: of events at the
    /// same time, the next `others` that are inserted come first.
    pub(crate) fn enter_behind(&mut self, at_ns: u64, event: E, others: u64) {
        assert!(at_ns >= self.now_ns, "an event is not in the past");
        self.heap.push(Entry { at_ns, number: self.entered + others, event });
        self.entered += 1;
    }

    /// The next event, unless it is later than `until_ns`.
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
    fn events_are_ordered_by_time_and_then_by_insertion() {
        let mut events = EventQueue::new();
        for (at_ns, event) in [(5, 'd'), (3, 'a'), (5, 'e'), (3, 'c'), (9, 'f')] {
            events.enter_behind(at_ns, event, if event == 'a' { 3 } else { 0 });
            if event == 'c' {
                events.enter(3, 'b');
            }
        }
        let come: String = std::iter::from_fn(|| events.next(8)).collect();
        assert_eq!((come.as_str(), events.now_ns(), events.passed()), ("cabde", 5, 5));
        assert_eq!(events.next(9), Some('f'));
    }
}
