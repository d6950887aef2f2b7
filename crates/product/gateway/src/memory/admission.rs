//! Admission to the memory for large values: the state of
//! [`MemoryGovernor`](super::MemoryGovernor), without clock and threads.
//!
//! ```text
//!   request ──▶ granted, if it fits and no request waits      bytes_max ├── plain ──────────┬── dependent ──┤
//!        └────▶ queued ── others return memory ──▶ granted              │ at most a half    │ at most a half │
//! ```
//!
//! Grants are of two kinds. A *plain* grant ends without further memory: replicas take the value,
//! or the peer sends or reads the rest (`peer_progress` makes sure of that). A *dependent* grant
//! may end only after its holder gets another grant: a reply behind others of its connection, or
//! the beginning of an argument. If dependent grants held all memory, no holder could continue. So
//! they get at most half of it; requests for them are never queued; and no single grant is larger
//! than the other half. Hence the first request in the queue finds room eventually.

use std::collections::VecDeque;

/// Where a request is queued if there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Before all others: for the rest of an argument that was interrupted.
    Front,
    Back,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    /// The number identifies the queued request.
    Queued(u64),
    /// It exceeds the largest possible grant.
    TooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queued {
    number: u64,
    thread: usize,
    bytes: usize,
}

/// A queued request that has been granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(crate) number: u64,
    pub(crate) bytes: usize,
}

/// The queue and the grants. A connection has at most two queued requests: one for its next
/// argument, one for its next reply.
#[derive(Debug, Default)]
pub(super) struct AdmissionQueue {
    bytes_max: usize,
    held: usize,
    /// The part of `held` that belongs to dependent grants.
    dependent: usize,
    queue: VecDeque<Queued>,
    /// For each thread: requests that were granted, but not taken yet.
    granted: Vec<Vec<Granted>>,
    last_number: u64,
}

impl AdmissionQueue {
    pub(super) fn new(bytes_max: usize, threads: usize) -> Self {
        let granted = (0..threads).map(|_| Vec::new()).collect();
        Self { bytes_max, granted, ..Self::default() }
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The size of the largest possible grant.
    pub(super) fn grant_max(&self) -> usize {
        self.bytes_max - self.dependent_max()
    }

    fn dependent_max(&self) -> usize {
        self.bytes_max / 2
    }

    fn fits(&self, bytes: usize) -> bool {
        self.held + bytes <= self.bytes_max
    }

    /// Requests a plain grant; queues the request if there is no room.
    pub(super) fn request(&mut self, bytes: usize, position: Position, thread: usize) -> Outcome {
        if bytes > self.grant_max() {
            return Outcome::TooLarge;
        }
        if self.fits(bytes) && (position == Position::Front || self.queue.is_empty()) {
            self.held += bytes;
            return Outcome::Granted;
        }
        self.last_number += 1;
        let queued = Queued { number: self.last_number, thread, bytes };
        match position {
            Position::Front => self.queue.push_front(queued),
            Position::Back => self.queue.push_back(queued),
        }
        Outcome::Queued(self.last_number)
    }

    /// Requests a plain grant without queueing. Returns whether it was granted.
    pub(super) fn try_grant(&mut self, bytes: usize) -> bool {
        let is_granted = bytes <= self.grant_max() && self.fits(bytes) && self.queue.is_empty();
        self.held += if is_granted { bytes } else { 0 };
        is_granted
    }

    /// Requests a dependent grant without queueing. Returns whether it was granted.
    pub(super) fn try_grant_dependent(&mut self, bytes: usize) -> bool {
        let is_granted = self.queue.is_empty() && self.fits(bytes) && self.make_dependent(bytes);
        self.held += if is_granted { bytes } else { 0 };
        is_granted
    }

    /// Turns bytes of a plain grant into dependent ones, if the limit of these allows.
    pub(super) fn make_dependent(&mut self, bytes: usize) -> bool {
        let has_room = self.dependent + bytes <= self.dependent_max();
        self.dependent += if has_room { bytes } else { 0 };
        has_room
    }

    /// Returns granted bytes, of which `dependent` were dependent.
    pub(super) fn release(&mut self, bytes: usize, dependent: usize) {
        self.held = self.held.checked_sub(bytes).expect("they were granted");
        self.dependent = self.dependent.checked_sub(dependent).expect("they were made dependent");
        self.admit();
    }

    /// Cancels a queued request, which may have been granted in the meantime.
    pub(super) fn cancel(&mut self, number: u64) {
        self.queue.retain(|queued| queued.number != number);
        for granted in &mut self.granted {
            if let Some(at) = granted.iter().position(|grant| grant.number == number) {
                self.held -= granted.remove(at).bytes;
            }
        }
        self.admit();
    }

    fn admit(&mut self) {
        while let Some(first) = self.queue.front().copied().filter(|first| self.fits(first.bytes)) {
            self.queue.pop_front();
            self.held += first.bytes;
            self.granted[first.thread].push(Granted { number: first.number, bytes: first.bytes });
        }
    }

    /// Threads that have granted requests to take.
    pub(super) fn granted_to(&self) -> impl Iterator<Item = usize> {
        (0..self.granted.len()).filter(|thread| !self.granted[*thread].is_empty())
    }

    /// Takes the granted requests of a thread.
    pub(super) fn take_granted(&mut self, thread: usize) -> Vec<Granted> {
        std::mem::take(&mut self.granted[thread])
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Queued, TooLarge};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_granted_in_order_even_if_later_ones_would_fit() {
        let mut queue = AdmissionQueue::new(100, 2);
        assert_eq!([50, 50].map(|bytes| queue.request(bytes, Position::Back, 0)), [Outcome::Granted; 2]);
        assert_eq!(queue.request(51, Position::Back, 0), TooLarge);
        assert_eq!(queue.request(50, Position::Back, 0), Queued(1));
        assert_eq!(queue.request(1, Position::Back, 1), Queued(2));
        assert!(!queue.try_grant(0) && !queue.try_grant_dependent(0), "no request overtakes");
        queue.release(10, 0);
        assert_eq!((queue.held(), queue.waiting()), (90, 2), "1 would fit, 50 would not");
        assert_eq!(
            queue.request(10, Position::Front, 1),
            Outcome::Granted,
            "the rest of an interrupted argument does"
        );
        assert_eq!(queue.request(10, Position::Front, 1), Queued(3));
        queue.release(55, 0);
        assert_eq!(
            queue.granted_to().collect::<Vec<_>>(),
            [1],
            "the request for 50 waits behind the one for 10"
        );
        queue.release(20, 0);
        assert_eq!(queue.granted_to().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(queue.take_granted(0), [Granted { number: 1, bytes: 50 }]);
        assert_eq!(
            queue.take_granted(1),
            [Granted { number: 3, bytes: 10 }, Granted { number: 2, bytes: 1 }]
        );
        assert_eq!((queue.held(), queue.waiting(), queue.granted_to().count()), (86, 0, 0));
    }

    #[test]
    fn a_cancelled_request_makes_room_whether_granted_or_not() {
        let mut queue = AdmissionQueue::new(100, 1);
        assert!(queue.try_grant(50) && queue.try_grant(50) && !queue.try_grant(1));
        assert_eq!(
            [50, 40, 30].map(|bytes| queue.request(bytes, Position::Back, 0)),
            [Queued(1), Queued(2), Queued(3)]
        );
        queue.cancel(1);
        assert_eq!((queue.held(), queue.waiting()), (100, 2));
        queue.release(60, 0);
        assert_eq!((queue.held(), queue.waiting()), (80, 1), "40 was granted");
        queue.cancel(2);
        assert_eq!(
            (queue.held(), queue.waiting()),
            (70, 0),
            "its memory is returned, so the request for 30 is granted"
        );
        assert_eq!(queue.take_granted(0), [Granted { number: 3, bytes: 30 }]);
        queue.cancel(3);
        assert_eq!(queue.held(), 70, "a grant that was taken stays with its holder");
    }

    #[test]
    fn dependent_grants_leave_room_for_the_largest_plain_one() {
        let mut queue = AdmissionQueue::new(101, 1);
        assert_eq!(queue.grant_max(), 51);
        assert!(queue.try_grant_dependent(50) && !queue.try_grant_dependent(1));
        assert_eq!(queue.request(51, Position::Back, 0), Outcome::Granted);
        assert!(!queue.make_dependent(1));
        queue.release(10, 10);
        assert!(queue.make_dependent(10) && !queue.make_dependent(1));
        queue.release(91, 50);
        assert_eq!((queue.held(), queue.dependent), (0, 0));
    }

    proptest! {
        /// All queued requests are granted eventually, even if only plain grants are ever returned.
        #[test]
        fn every_queued_request_is_granted_eventually(bytes_max in 2usize..200, asks in prop::collection::vec((0usize..200, any::<u8>()), 1..60)) {
            let mut queue = AdmissionQueue::new(bytes_max, 1);
            let (mut plain, mut dependent, mut waiting) = (Vec::new(), Vec::new(), 0);
            for (bytes, kind) in asks {
                match kind % 3 {
                    0 if queue.try_grant_dependent(bytes) => dependent.push(bytes),
                    0 => (),
                    _ => match queue.request(bytes, if kind % 3 == 1 { Position::Front } else { Position::Back }, 0) {
                        Outcome::Granted => plain.push(bytes),
                        Queued(_) => waiting += 1,
                        TooLarge => prop_assert!(bytes > queue.grant_max()),
                    },
                }
                prop_assert!(queue.held() <= bytes_max && queue.dependent <= bytes_max / 2);
            }
            while let Some(bytes) = plain.pop() {
                queue.release(bytes, 0);
                prop_assert!(queue.held() <= bytes_max);
                let granted = queue.take_granted(0);
                waiting -= granted.len();
                plain.extend(granted.iter().map(|grant| grant.bytes));
            }
            prop_assert_eq!((waiting, queue.waiting()), (0, 0));
            prop_assert_eq!(queue.held(), dependent.iter().sum::<usize>());
        }
    }
}
