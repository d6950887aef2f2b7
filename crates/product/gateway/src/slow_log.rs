//! The last commands that were slow (SLOWLOG).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most entries, whatever `slowlog-max-len` says.
const ENTRIES_MAX: u64 = 65_536;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    /// Grows with each.
    pub(crate) number: u64,
    /// When it was answered.
    pub(crate) unix_s: u64,
    pub(crate) took_us: u64,
    /// Cut where they are long (`words`).
    pub(crate) words: Vec<Vec<u8>>,
    /// Of the connection.
    pub(crate) address: String,
    pub(crate) name: Vec<u8>,
}

/// Newest first.
#[derive(Debug, Default)]
pub(crate) struct SlowLog(Mutex<Kept>);

#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) entries: VecDeque<Slow>,
    next: u64,
}

impl SlowLog {
    /// Its lock is taken for a moment, and only for commands that were slow, or about the log.
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, of at most so many, and numbers it.
    pub(crate) fn add(&self, slow: Slow, kept_max: u64) {
        let mut kept = self.kept();
        let number = kept.next;
        kept.next += 1;
        kept.entries.push_front(Slow { number, ..slow });
        kept.entries.truncate(kept_max.min(ENTRIES_MAX) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let log = SlowLog::default();
        let slow = |took_us| Slow {
            number: 0,
            unix_s: 1,
            took_us,
            words: Vec::new(),
            address: String::new(),
            name: Vec::new(),
        };
        (0..5).for_each(|took_us| log.add(slow(took_us), 3));
        let kept: Vec<_> = log.kept().entries.iter().map(|slow| (slow.number, slow.took_us)).collect();
        assert_eq!(kept, [(4, 4), (3, 3), (2, 2)]);
        log.add(slow(5), 0);
        assert!(log.kept().entries.is_empty());
    }
}
