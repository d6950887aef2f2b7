//! Values that nothing uses any more, and when each is removed.

use crate::types::Map;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nicekv_proto::OpId;

/// A value stays this long after its last use: a client that has just received its name may be
/// about to read it.
pub(crate) const UNREAD_NS: u64 = 2_000_000_000;

/// A value stays this long after it was read, because the client may read on. The same holds for a
/// value that was never used, or that a remembered result has named.
pub(crate) const LINGER_NS: u64 = 10_000_000_000;

/// Bound on the bytes of values that were used, and not read since. Beyond it the oldest are
/// removed early, once they are [`UNREAD_NS_MIN`] old.
const UNREAD_BYTES_MAX: u64 = 64 << 20;
/// Shortest time for which a value stays after its last use: time for a round trip and for a client
/// to get its turn.
const UNREAD_NS_MIN: u64 = 250_000_000;

/// When a value is removed, since when it is unused, and its bytes if they count towards
/// [`UNREAD_BYTES_MAX`] (0 otherwise).
#[derive(Clone, Copy)]
struct Time {
    due_ns: u64,
    since_ns: u64,
    bytes: u32,
}

#[derive(Clone, Default)]
pub(super) struct Dying {
    /// Values in order of removal.
    due: BTreeSet<(u64, OpId)>,
    times: Map<OpId, Time>,
    /// Sum of the bytes that count.
    bytes: u64,
    /// Values added since the last call of `begin`: how long each is kept, and how many of its
    /// bytes count towards [`UNREAD_BYTES_MAX`].
    fresh: Vec<(OpId, u64, u32)>,
}

impl Dying {
    /// Adds a value that was not used yet, or that a remembered result has named.
    pub(super) fn add(&mut self, name: OpId) {
        self.fresh.push((name, LINGER_NS, 0));
    }

    /// Adds a value whose last use has ended.
    pub(super) fn add_unread(&mut self, name: OpId, bytes: u32) {
        self.fresh.push((name, UNREAD_NS, bytes));
    }

    /// Starts the time until removal of all values added since the last call.
    pub(super) fn begin(&mut self, now_ns: u64) {
        for (name, for_ns, bytes) in core::mem::take(&mut self.fresh) {
            self.set(name, Time { due_ns: now_ns + for_ns, since_ns: now_ns, bytes });
        }
    }

    fn set(&mut self, name: OpId, time: Time) {
        if let Some(known) = self.times.insert(name, time) {
            self.due.remove(&(known.due_ns, name));
            self.bytes -= u64::from(known.bytes);
        }
        self.due.insert((time.due_ns, name));
        self.bytes += u64::from(time.bytes);
    }

    /// Keeps a value at least until `until_ns`, however many bytes there are.
    pub(super) fn keep(&mut self, name: OpId, until_ns: u64, since_ns: u64) {
        self.set(name, Time { due_ns: until_ns, since_ns, bytes: 0 });
    }

    /// A client reads the value.
    pub(super) fn touch(&mut self, now_ns: u64, name: OpId) {
        if let Some(Time { due_ns, since_ns, .. }) = self.times.get(&name).copied() {
            self.keep(name, due_ns.max(now_ns + LINGER_NS), since_ns);
        }
    }

    /// Takes a value that has to be removed; also returns since when it was unused.
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<(OpId, u64)> {
        let (due_ns, name) = self.due.first().copied()?;
        let Time { since_ns, bytes, .. } = self.times[&name];
        let is_too_much = bytes > 0 && self.bytes > UNREAD_BYTES_MAX && now_ns >= since_ns + UNREAD_NS_MIN;
        if due_ns > now_ns && !is_too_much {
            return None;
        }
        self.due.remove(&(due_ns, name));
        self.times.remove(&name);
        self.bytes -= u64::from(bytes);
        Some((name, since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;

    #[test]
    fn oldest_unread_values_go_early_and_read_ones_stay() {
        let name = |sequence| OpId { client: ClientId(1), sequence };
        let mut dying = Dying::default();
        (1..=5).for_each(|number| dying.add_unread(name(number), 20 << 20));
        dying.begin(0);
        dying.add(name(6));
        dying.begin(1);
        dying.touch(2, name(1));
        assert_eq!(dying.pop(UNREAD_NS_MIN - 1), None, "a client may be about to read it");
        assert_eq!(dying.pop(UNREAD_NS_MIN), Some((name(2), 0)));
        assert_eq!(dying.pop(UNREAD_NS_MIN), None, "60 MiB are no more than the bound");
        (3..=5).for_each(|number| assert_eq!(dying.pop(UNREAD_NS), Some((name(number), 0))));
        assert_eq!(dying.pop(UNREAD_NS), None);
        assert_eq!(dying.pop(1 + LINGER_NS), Some((name(6), 1)));
        assert_eq!(dying.pop(2 + LINGER_NS), Some((name(1), 0)));
        assert_eq!((dying.bytes, dying.due.len(), dying.times.len()), (0, 0, 0));
    }
}
