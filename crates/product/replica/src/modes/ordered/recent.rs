//! The keys that the latest decisions have written. A returning member is sent the entries of these
//! keys, so the whole partition need not be read (R7).
//!
//! ```text
//!   decision   … 41 | 42  43  44  45  46        a member that holds 42 is sent c (44) and a (46):
//!   key           ? |  b   a   c   –   a        45 wrote nothing, and 43 was overwritten
//! ```
//!
//! Invariant: for every entry in the engine whose decision is not forgotten here, its key is
//! recorded under that decision. Earlier decisions of a key stay recorded; the index in the
//! engine's entry tells which one is current.
//!
//! The list is bounded and in memory only; a restart fills it from the log. A member that missed
//! more decisions is served by a scan.

use alloc::collections::VecDeque;
use smallvec::SmallVec;

/// Bytes of keys that are too long to be stored inline. Beyond the bound the oldest are forgotten.
const LONG_KEYS_BYTES_MAX: usize = 2 << 20;

/// A key; keys up to 24 bytes are stored inline.
pub(crate) type RecentKey = SmallVec<[u8; 24]>;

#[derive(Clone)]
pub(crate) struct Recent {
    /// Index of the oldest decision in `keys`.
    first: u64,
    /// The key that each decision wrote, without gaps. `None`: it wrote nothing.
    keys: VecDeque<Option<RecentKey>>,
    decisions_max: usize,
    long_keys_bytes: usize,
}

impl Recent {
    /// For an empty partition: nothing is recorded yet.
    pub(crate) fn new(decisions_max: usize) -> Self {
        Self { first: 1, keys: VecDeque::new(), decisions_max, long_keys_bytes: 0 }
    }

    /// Whether nothing was recorded or forgotten yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.first == 1 && self.keys.is_empty()
    }

    /// Starts over: the keys of decisions up to `through` are unknown, and no later decision has
    /// written anything yet.
    pub(crate) fn begin_after(&mut self, through: u64) {
        self.keys.clear();
        (self.first, self.long_keys_bytes) = (through + 1, 0);
    }

    /// The decisions after `since` are void. Their keys will be written and recorded again.
    pub(crate) fn forget_after(&mut self, since: u64) {
        if !self.reaches(since) {
            return self.begin_after(since);
        }
        self.keys.truncate((since + 1 - self.first) as usize);
        self.long_keys_bytes = self.keys.iter().flatten().map(bytes_of_long).sum();
    }

    /// Forgets the keys of all decisions up to `through`.
    pub(crate) fn forget_through(&mut self, through: u64) {
        while self.first <= through {
            let Some(key) = self.keys.pop_front() else {
                self.first = through + 1;
                return;
            };
            self.long_keys_bytes -= key.as_ref().map_or(0, bytes_of_long);
            self.first += 1;
        }
    }

    /// Records that decision `index` has written this key.
    pub(crate) fn note(&mut self, index: u64, key: &[u8]) {
        let decisions_max = self.decisions_max as u64;
        if index >= self.first + decisions_max {
            self.forget_through(index - decisions_max);
        }
        let Some(place) = index.checked_sub(self.first) else { return };
        match self.keys.get_mut(place as usize) {
            None => {
                if place > self.keys.len() as u64 {
                    self.keys.resize(place as usize, None);
                }
                self.keys.push_back(Some(RecentKey::from_slice(key)));
            }
            Some(noted @ None) => *noted = Some(RecentKey::from_slice(key)),
            Some(Some(noted)) if **noted == *key => return,
            // There is room for one key per decision. If a decision writes a second one (as a
            // transaction does, or a forged entry claims), forget everything up to it.
            Some(_) => return self.forget_through(index),
        }
        self.long_keys_bytes += self.keys[place as usize].as_ref().map_or(0, bytes_of_long);
        while self.long_keys_bytes > LONG_KEYS_BYTES_MAX {
            self.forget_through(self.first);
        }
    }

    /// Whether all keys written after decision `since` are known.
    pub(crate) fn reaches(&self, since: u64) -> bool {
        self.first <= since + 1
    }

    /// The keys written by decisions after `since` and up to `through`, with these decisions.
    pub(crate) fn written(&self, since: u64, through: u64) -> impl Iterator<Item = (u64, &RecentKey)> {
        let skipped = (since + 1).saturating_sub(self.first) as usize;
        let places = (self.first..=through).zip(&self.keys).skip(skipped);
        places.filter_map(|(index, key)| Some((index, key.as_ref()?)))
    }

    /// Whether this key is recorded for decision `index`.
    pub(crate) fn is_of(&self, index: u64, key: &[u8]) -> bool {
        let place = index.checked_sub(self.first).and_then(|place| self.keys.get(place as usize));
        place.is_some_and(|noted| noted.as_deref() == Some(key))
    }
}

fn bytes_of_long(key: &RecentKey) -> usize {
    if key.spilled() { key.capacity() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(recent: &Recent, since: u64, through: u64) -> Vec<(u64, &str)> {
        recent
            .written(since, through)
            .map(|(index, key)| (index, std::str::from_utf8(key).unwrap()))
            .collect()
    }

    fn noted(decisions_max: usize, decisions: &[(u64, &str)]) -> Recent {
        let mut recent = Recent::new(decisions_max);
        for (index, key) in decisions {
            recent.note(*index, key.as_bytes());
        }
        recent
    }

    #[test]
    fn keys_written_since_are_listed_in_decision_order() {
        // Decision 3 is contended, so it takes effect after decision 5.
        let recent = noted(9, &[(1, "b"), (2, "a"), (5, "a"), (3, "c")]);
        assert_eq!(written(&recent, 0, 9), [(1, "b"), (2, "a"), (3, "c"), (5, "a")]);
        assert_eq!(written(&recent, 2, 4), [(3, "c")]);
        assert_eq!(written(&recent, 5, 9), []);
        assert!(recent.is_of(5, b"a") && !recent.is_of(4, b"a") && !recent.is_of(6, b"a"));
    }

    #[test]
    fn recent_reaches_back_to_its_bound() {
        let recent = noted(3, &[(1, "a"), (2, "b"), (3, "c"), (4, "d"), (1, "e")]);
        assert_eq!([0, 1, 4, 9].map(|since| recent.reaches(since)), [false, true, true, true]);
        assert_eq!(written(&recent, 1, 9), [(2, "b"), (3, "c"), (4, "d")]);
    }

    #[test]
    fn after_a_gap_only_the_newest_is_known() {
        let recent = noted(3, &[(1, "a"), (100, "b")]);
        assert!(recent.reaches(97) && !recent.reaches(96));
        assert_eq!(written(&recent, 97, 200), [(100, "b")]);
    }

    #[test]
    fn long_keys_are_bounded_by_bytes() {
        let mut recent = Recent::new(1 << 20);
        let count = LONG_KEYS_BYTES_MAX as u64 / 256 + 10;
        for index in 1..=count {
            recent.note(index, &[1; 256]);
        }
        assert!(!recent.reaches(9) && recent.reaches(10));
        recent.forget_through(count);
        assert_eq!((recent.long_keys_bytes, recent.reaches(count)), (0, true));
    }

    #[test]
    fn void_decisions_are_forgotten_and_noted_again() {
        let mut recent = noted(9, &[(1, "a"), (2, "b"), (3, "c")]);
        recent.forget_after(2);
        recent.note(4, b"d");
        assert_eq!(written(&recent, 0, 9), [(1, "a"), (2, "b"), (4, "d")]);
        recent.begin_after(7);
        recent.note(7, b"e");
        assert!(!recent.reaches(6));
        recent.note(8, b"f");
        recent.forget_after(4);
        assert!(recent.reaches(4) && written(&recent, 4, 9).is_empty());
    }

    #[test]
    fn second_key_of_a_decision_is_not_remembered() {
        let recent = noted(9, &[(1, "a"), (2, "b"), (2, "b"), (3, "c"), (2, "d")]);
        assert!(!recent.reaches(1) && recent.reaches(2));
        assert_eq!(written(&recent, 2, 9), [(3, "c")]);
    }
}
