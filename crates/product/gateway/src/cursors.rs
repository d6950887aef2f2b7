//! Cursors of SCAN. A cursor is a number that stands for the part of a scan that is left.
//!
//! The gateway remembers the newest cursors of all clients; each may be used any number of times. A
//! cursor that is no longer remembered, or that another gateway issued, is refused as invalid.

use nicekv_client::Scan;
use nicekv_proto::KeyspaceId;
use nicekv_redis::key_scan::CursorStore;
use nicekv_runtime::now;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How many cursors are remembered.
const CURSORS_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// Oldest first. Their numbers are consecutive, beginning with `first`.
    scans: VecDeque<(KeyspaceId, Scan)>,
    /// Number of the oldest cursor; 0 before the first one, because clients begin a scan with 0.
    first: u64,
}

impl CursorStore for Cursors {
    fn remember(&self, keyspace: KeyspaceId, scan: Scan) -> u64 {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.first == 0 {
            // Numbers begin with the time, so that they differ from those of other gateways and of
            // earlier processes. They fit into a signed 64-bit integer, which some clients require.
            remembered.first = (now().unix_ms << 20) & (u64::MAX >> 1) | 1;
        }
        if remembered.scans.len() == CURSORS_MAX {
            remembered.scans.pop_front();
            remembered.first += 1;
        }
        remembered.scans.push_back((keyspace, scan));
        remembered.first + remembered.scans.len() as u64 - 1
    }

    fn find(&self, cursor: u64, keyspace: KeyspaceId) -> Option<Scan> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = usize::try_from(cursor.checked_sub(remembered.first)?).ok()?;
        let (of, scan) = remembered.scans.get(place)?;
        (*of == keyspace).then(|| scan.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::scan::ScanWants;

    #[test]
    fn a_cursor_belongs_to_its_keyspace_and_the_oldest_are_forgotten() {
        let cursors = Cursors::default();
        let scan = |after: &[u8]| Scan::new(ScanWants::Keys, Some(after));
        let (keyspace, other) = (KeyspaceId(0), KeyspaceId(1));
        let first = cursors.remember(keyspace, scan(b"a"));
        let second = cursors.remember(other, scan(b"b"));
        assert!(first > 0 && first < second && second < 1 << 63);
        assert_eq!(cursors.find(first, keyspace), Some(scan(b"a")));
        assert_eq!(cursors.find(first, keyspace), Some(scan(b"a")), "any number of times");
        assert_eq!((cursors.find(second, keyspace), cursors.find(second, other)), (None, Some(scan(b"b"))));
        assert_eq!((cursors.find(0, keyspace), cursors.find(second + 1, keyspace)), (None, None));
        for _ in 0..CURSORS_MAX - 1 {
            cursors.remember(keyspace, scan(b"c"));
        }
        assert_eq!((cursors.find(first, keyspace), cursors.find(second, other)), (None, Some(scan(b"b"))));
    }
}
