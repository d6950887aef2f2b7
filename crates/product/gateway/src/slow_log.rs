//! The newest slow commands, for SLOWLOG.

use nicekv_redis::host::SlowEntry;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of entries, even if `slowlog-max-len` is larger.
const ENTRIES_MAX: u64 = 65_536;

/// The entries, newest first.
#[derive(Debug, Default)]
pub(crate) struct SlowLog(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    entries: VecDeque<SlowEntry>,
    next: u64,
}

impl SlowLog {
    /// The lock is held briefly, and only for slow commands and for SLOWLOG.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an entry the next number and adds it; drops the oldest beyond `kept_max`.
    pub(crate) fn add(&self, entry: SlowEntry, kept_max: u64) {
        let mut kept = self.kept();
        let number = kept.next;
        kept.next += 1;
        kept.entries.push_front(SlowEntry { number, ..entry });
        kept.entries.truncate(kept_max.min(ENTRIES_MAX) as usize);
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<SlowEntry> {
        self.kept().entries.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.kept().entries.len()
    }

    pub(crate) fn clear(&self) {
        self.kept().entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_entries_come_first_and_old_ones_are_dropped() {
        let log = SlowLog::default();
        let slow = |took_us| SlowEntry {
            number: 0,
            unix_s: 1,
            took_us,
            arguments: Vec::new(),
            address: String::new(),
            name: Vec::new(),
        };
        (0..5).for_each(|took_us| log.add(slow(took_us), 3));
        let kept: Vec<_> = log.newest(10).into_iter().map(|slow| (slow.number, slow.took_us)).collect();
        assert_eq!(kept, [(4, 4), (3, 3), (2, 2)]);
        log.add(slow(5), 0);
        assert!(log.len() == 0);
    }
}
