//! Future events by time, and the simulated clock. Events of the same time happen in the order in
//! which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone)]
struct Scheduled<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<E> Eq for Scheduled<E> {}
impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// Events of a simulation, and its clock.
#[derive(Clone)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Scheduled<E>>>,
    now_ns: u64,
    scheduled: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), now_ns: 0, scheduled: 0 }
    }
}

impl<E> Queue<E> {
    /// The present time: that of the last event, or the end of the last search for one.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The next event, if its time is before `end_ns`.
    pub fn peek_before(&self, end_ns: u64) -> Option<&E> {
        self.heap.peek().filter(|Reverse(next)| next.at_ns < end_ns).map(|Reverse(next)| &next.event)
    }

    /// Schedules `event` at a time that is not in the past.
    pub fn at(&mut self, at_ns: u64, event: E) {
        self.scheduled += 1;
        let at_ns = at_ns.max(self.now_ns);
        self.heap.push(Reverse(Scheduled { at_ns, number: self.scheduled, event }));
    }

    /// Schedules `event` after `delay_ns`.
    pub fn after(&mut self, delay_ns: u64, event: E) {
        self.at(self.now_ns + delay_ns, event);
    }

    /// Takes the next event before `end_ns`. The clock advances to it, or to `end_ns` if there is
    /// none.
    pub fn next_before(&mut self, end_ns: u64) -> Option<E> {
        match self.heap.peek() {
            Some(Reverse(next)) if next.at_ns < end_ns => {
                let Reverse(next) = self.heap.pop().expect("peeked");
                self.now_ns = next.at_ns;
                Some(next.event)
            }
            _ => {
                self.now_ns = self.now_ns.max(end_ns);
                None
            }
        }
    }

    /// Like [`Self::next_before`], but also takes an event at `end_ns` itself.
    pub fn next_until(&mut self, end_ns: u64) -> Option<E> {
        let is_due = self.peek_before(end_ns.saturating_add(1)).is_some();
        self.next_before(if is_due { u64::MAX } else { end_ns })
    }
}
