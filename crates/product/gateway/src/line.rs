//! Who may hold how many bytes of large values, and who waits for that: the state of [`Permits`](crate::permits::Permits), without clock and threads.
//!
//! ```text
//!   ask ──▶ granted, if it fits and nobody waits               bytes_max ├── plain ──────────┬── dependent ──┤
//!     └───▶ in the line ── what is held becomes less ──▶ granted          │ at most a half    │ at most a half │
//! ```
//!
//! What is held is of two kinds. A *plain* claim ends by itself: replicas take the value or the peer does its part, which its pace sees to (`pace`). A
//! *dependent* one may end only after its holder was granted another one: a reply behind others of its connection, the beginning of an argument. If these
//! held everything, nobody could go on. So they have at most a half; nobody waits in the line for one; and no single claim is larger than the other half, so that
//! the first in the line has room sooner or later.

use std::collections::VecDeque;

/// Where one who asks stands, if there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// As one that was interrupted, and holds a part.
    First,
    Last,
}

/// What becomes of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Granted,
    /// It is in the line by this number.
    Waits(u64),
    /// More than anybody may hold.
    TooMuch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    number: u64,
    thread: usize,
    bytes: usize,
}

/// A question that was granted while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) number: u64,
    pub(crate) bytes: usize,
}

/// See the module. Of each connection at most two wait: its next argument, and its next reply.
#[derive(Debug, Default)]
pub(crate) struct Line {
    bytes_max: usize,
    held: usize,
    /// Of these, those of dependent claims.
    dependent: usize,
    waiting: VecDeque<Waiting>,
    /// By thread, what was granted and has not been taken.
    granted: Vec<Vec<Grant>>,
    last_number: u64,
}

impl Line {
    pub(crate) fn new(bytes_max: usize, threads: usize) -> Self {
        let granted = (0..threads).map(|_| Vec::new()).collect();
        Self { bytes_max, granted, ..Self::default() }
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The largest claim.
    pub(crate) fn claim_max(&self) -> usize {
        self.bytes_max - self.dependent_max()
    }

    fn dependent_max(&self) -> usize {
        self.bytes_max / 2
    }

    fn fits(&self, bytes: usize) -> bool {
        self.held + bytes <= self.bytes_max
    }

    /// For a plain claim.
    pub(crate) fn ask(&mut self, bytes: usize, place: Place, thread: usize) -> Asked {
        if bytes > self.claim_max() {
            return Asked::TooMuch;
        }
        if self.fits(bytes) && (place == Place::First || self.waiting.is_empty()) {
            self.held += bytes;
            return Asked::Granted;
        }
        self.last_number += 1;
        let waiting = Waiting { number: self.last_number, thread, bytes };
        match place {
            Place::First => self.waiting.push_front(waiting),
            Place::Last => self.waiting.push_back(waiting),
        }
        Asked::Waits(self.last_number)
    }

    /// For a plain claim, or nothing: whether it is granted at once.
    pub(crate) fn ask_now(&mut self, bytes: usize) -> bool {
        let is_granted = bytes <= self.claim_max() && self.fits(bytes) && self.waiting.is_empty();
        self.held += if is_granted { bytes } else { 0 };
        is_granted
    }

    /// For a dependent claim, or nothing.
    pub(crate) fn ask_dependent(&mut self, bytes: usize) -> bool {
        let is_granted = self.waiting.is_empty() && self.fits(bytes) && self.make_dependent(bytes);
        self.held += if is_granted { bytes } else { 0 };
        is_granted
    }

    /// Makes bytes of a plain claim dependent ones, if there may be more of these.
    pub(crate) fn make_dependent(&mut self, bytes: usize) -> bool {
        let has_room = self.dependent + bytes <= self.dependent_max();
        self.dependent += if has_room { bytes } else { 0 };
        has_room
    }

    /// So many bytes are held no more, of which so many were dependent.
    pub(crate) fn give_back(&mut self, bytes: usize, dependent: usize) {
        self.held = self.held.checked_sub(bytes).expect("they were granted");
        self.dependent = self.dependent.checked_sub(dependent).expect("they were made dependent");
        self.serve();
    }

    /// One that waits does not want it any more. It may just have been granted.
    pub(crate) fn withdraw(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
        for granted in &mut self.granted {
            if let Some(at) = granted.iter().position(|grant| grant.number == number) {
                self.held -= granted.remove(at).bytes;
            }
        }
        self.serve();
    }

    fn serve(&mut self) {
        while let Some(first) = self.waiting.front().copied().filter(|first| self.fits(first.bytes)) {
            self.waiting.pop_front();
            self.held += first.bytes;
            self.granted[first.thread].push(Grant { number: first.number, bytes: first.bytes });
        }
    }

    /// Threads for which something was granted and not taken.
    pub(crate) fn granted_to(&self) -> impl Iterator<Item = usize> {
        (0..self.granted.len()).filter(|thread| !self.granted[*thread].is_empty())
    }

    /// What was granted to those of this thread that waited.
    pub(crate) fn take_granted(&mut self, thread: usize) -> Vec<Grant> {
        std::mem::take(&mut self.granted[thread])
    }
}

#[cfg(test)]
mod tests {
    use super::Asked::{Granted, TooMuch, Waits};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_comes_first_is_first_whatever_would_fit() {
        let mut line = Line::new(100, 2);
        assert_eq!([50, 50].map(|bytes| line.ask(bytes, Place::Last, 0)), [Granted; 2]);
        assert_eq!(line.ask(51, Place::Last, 0), TooMuch);
        assert_eq!(line.ask(50, Place::Last, 0), Waits(1));
        assert_eq!(line.ask(1, Place::Last, 1), Waits(2));
        assert!(!line.ask_now(0) && !line.ask_dependent(0), "nobody overtakes");
        line.give_back(10, 0);
        assert_eq!((line.held(), line.waiting()), (90, 2), "1 would fit, 50 would not");
        assert_eq!(line.ask(10, Place::First, 1), Granted, "who was interrupted does");
        assert_eq!(line.ask(10, Place::First, 1), Waits(3));
        line.give_back(55, 0);
        assert_eq!(line.granted_to().collect::<Vec<_>>(), [1], "50 waits again behind 10");
        line.give_back(20, 0);
        assert_eq!(line.granted_to().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(line.take_granted(0), [Grant { number: 1, bytes: 50 }]);
        assert_eq!(line.take_granted(1), [Grant { number: 3, bytes: 10 }, Grant { number: 2, bytes: 1 }]);
        assert_eq!((line.held(), line.waiting(), line.granted_to().count()), (86, 0, 0));
    }

    #[test]
    fn who_withdraws_lets_others_go_on_granted_or_not() {
        let mut line = Line::new(100, 1);
        assert!(line.ask_now(50) && line.ask_now(50) && !line.ask_now(1));
        assert_eq!([50, 40, 30].map(|bytes| line.ask(bytes, Place::Last, 0)), [Waits(1), Waits(2), Waits(3)]);
        line.withdraw(1);
        assert_eq!((line.held(), line.waiting()), (100, 2));
        line.give_back(60, 0);
        assert_eq!((line.held(), line.waiting()), (80, 1), "40 was granted");
        line.withdraw(2);
        assert_eq!((line.held(), line.waiting()), (70, 0), "and goes, so that 30 is");
        assert_eq!(line.take_granted(0), [Grant { number: 3, bytes: 30 }]);
        line.withdraw(3);
        assert_eq!(line.held(), 70, "what was taken is its holder's");
    }

    #[test]
    fn dependent_claims_leave_room_for_the_largest_that_may_wait() {
        let mut line = Line::new(101, 1);
        assert_eq!(line.claim_max(), 51);
        assert!(line.ask_dependent(50) && !line.ask_dependent(1));
        assert_eq!(line.ask(51, Place::Last, 0), Granted);
        assert!(!line.make_dependent(1));
        line.give_back(10, 10);
        assert!(line.make_dependent(10) && !line.make_dependent(1));
        line.give_back(91, 50);
        assert_eq!((line.held(), line.dependent), (0, 0));
    }

    proptest! {
        /// Holders that each need another claim before they end, and others: if only those that need nothing more end, all get what they wait for.
        #[test]
        fn nobody_waits_for_ever(bytes_max in 2usize..200, asks in prop::collection::vec((0usize..200, any::<u8>()), 1..60)) {
            let mut line = Line::new(bytes_max, 1);
            let (mut plain, mut dependent, mut waiting) = (Vec::new(), Vec::new(), 0);
            for (bytes, kind) in asks {
                match kind % 3 {
                    0 if line.ask_dependent(bytes) => dependent.push(bytes),
                    0 => (),
                    _ => match line.ask(bytes, if kind % 3 == 1 { Place::First } else { Place::Last }, 0) {
                        Granted => plain.push(bytes),
                        Waits(_) => waiting += 1,
                        TooMuch => prop_assert!(bytes > line.claim_max()),
                    },
                }
                prop_assert!(line.held() <= bytes_max && line.dependent <= bytes_max / 2);
            }
            while let Some(bytes) = plain.pop() {
                line.give_back(bytes, 0);
                prop_assert!(line.held() <= bytes_max);
                let granted = line.take_granted(0);
                waiting -= granted.len();
                plain.extend(granted.iter().map(|grant| grant.bytes));
            }
            prop_assert_eq!((waiting, line.waiting()), (0, 0));
            prop_assert_eq!(line.held(), dependent.iter().sum::<usize>());
        }
    }
}
