//! Values that nobody speaks of any more, and when they go.

use crate::kinds::Map;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nicekv_proto::OpId;

/// So long a value is kept that was spoken of: who was told of it begins to read it.
pub(crate) const UNREAD_NS: u64 = 2_000_000_000;

/// So long after it was read, as somebody may read on; and one that nobody has spoken of yet, or that a result has named.
pub(crate) const LINGER_NS: u64 = 10_000_000_000;

/// As long as more bytes than these were spoken of and not read since, the oldest of them go …
const UNREAD_BYTES_MAX: u64 = 64 << 20;
/// … after so long: a round trip, and a wait for a client's turn.
const UNREAD_NS_MIN: u64 = 250_000_000;

/// When one goes, since when nobody has spoken of it, and its bytes, if they count.
#[derive(Clone, Copy)]
struct Time {
    due_ns: u64,
    since_ns: u64,
    bytes: u32,
}

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Dying {
    /// By when they go.
    due: BTreeSet<(u64, OpId)>,
    times: Map<OpId, Time>,
    /// Of all.
    bytes: u64,
    /// Since a moment ago, for how long they are kept, and bytes that count.
    fresh: Vec<(OpId, u64, u32)>,
}

impl Dying {
    /// Nobody has spoken of it yet, or a result has named it.
    pub(super) fn add(&mut self, name: OpId) {
        self.fresh.push((name, LINGER_NS, 0));
    }

    /// Nobody speaks of it any more.
    pub(super) fn add_unread(&mut self, name: OpId, bytes: u32) {
        self.fresh.push((name, UNREAD_NS, bytes));
    }

    /// The time of those that were added begins.
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

    /// It stays until then at least, whatever there is beside it.
    pub(super) fn keep(&mut self, name: OpId, until_ns: u64, since_ns: u64) {
        self.set(name, Time { due_ns: until_ns, since_ns, bytes: 0 });
    }

    /// Somebody reads it.
    pub(super) fn touch(&mut self, now_ns: u64, name: OpId) {
        if let Some(Time { due_ns, since_ns, .. }) = self.times.get(&name).copied() {
            self.keep(name, due_ns.max(now_ns + LINGER_NS), since_ns);
        }
    }

    /// One whose time is over, and since when nobody has spoken of it.
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
    fn of_more_than_there_is_room_for_the_oldest_go_early_and_what_is_read_stays() {
        let name = |sequence| OpId { client: ClientId(1), sequence };
        let mut dying = Dying::default();
        (1..=5).for_each(|number| dying.add_unread(name(number), 20 << 20));
        dying.begin(0);
        dying.add(name(6));
        dying.begin(1);
        dying.touch(2, name(1));
        assert_eq!(dying.pop(UNREAD_NS_MIN - 1), None, "somebody may be about to read it");
        assert_eq!(dying.pop(UNREAD_NS_MIN), Some((name(2), 0)));
        assert_eq!(dying.pop(UNREAD_NS_MIN), None, "60 MiB are no more than the bound");
        (3..=5).for_each(|number| assert_eq!(dying.pop(UNREAD_NS), Some((name(number), 0))));
        assert_eq!(dying.pop(UNREAD_NS), None);
        assert_eq!(dying.pop(1 + LINGER_NS), Some((name(6), 1)));
        assert_eq!(dying.pop(2 + LINGER_NS), Some((name(1), 0)));
        assert_eq!((dying.bytes, dying.due.len(), dying.times.len()), (0, 0, 0));
    }
}
