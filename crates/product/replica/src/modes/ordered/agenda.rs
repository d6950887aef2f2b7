//! The keys of a partition that expire next.
//!
//! ```text
//!   effects ──▶ agenda: what expires next ──▶ due ──▶ delete, if it is still that version ──▶ effect
//!   scrub's pages ─▲        │
//!                           └─▶ no room for the latest: `missed_from_ms`, and another pass of the scrub then
//! ```
//!
//! Every member keeps an agenda, so that a new primary can continue at once. When a process starts,
//! the agenda lacks the entries that are already in the engine; the scrub starts its first pass at
//! once and adds them.

use crate::Map;
use crate::modes::bounds::EXPIRING_KEYS_MAX;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use nicekv_proto::recovery::Entry;
use nicekv_proto::{Now, OpId};

/// After its delete was started, a key becomes due again after this time, in case it still exists
/// then.
const RETRY_MS: u64 = 5_000;

/// Holds the keys that expire first, at most [`EXPIRING_KEYS_MAX`].
#[derive(Clone)]
pub(crate) struct Agenda {
    /// For each key, when it is due, and the version that expires.
    by_key: Map<Box<[u8]>, (u64, OpId)>,
    by_time: BTreeSet<(u64, Box<[u8]>)>,
    /// Keys that expire at this time or later may be missing. `u64::MAX`: no key is missing.
    missed_from_ms: u64,
}

impl Agenda {
    /// An agenda for a partition whose entries are not known yet.
    pub(crate) fn new(by_key: Map<Box<[u8]>, (u64, OpId)>) -> Self {
        Self { by_key, by_time: BTreeSet::new(), missed_from_ms: 0 }
    }

    /// The partition has become empty.
    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
        self.by_time.clear();
        self.missed_from_ms = u64::MAX;
    }

    /// An entry was written: takes its expiry, in place of the key's earlier one.
    pub(crate) fn note(&mut self, key: &[u8], entry: &Entry<'_>) {
        self.remove(key);
        if entry.value.is_some() && entry.expiry_ms != 0 {
            self.insert(key.into(), entry.expiry_ms, entry.version);
        }
    }

    /// The scrub has found an entry in the engine: takes its expiry, unless the key is known.
    pub(crate) fn note_found(&mut self, key: &[u8], entry: &Entry<'_>) {
        if entry.value.is_some() && entry.expiry_ms != 0 && !self.by_key.contains_key(key) {
            self.insert(key.into(), entry.expiry_ms, entry.version);
        }
    }

    /// A pass over all entries begins. From now on only entries for which there is no room will be
    /// missing.
    pub(crate) fn begin_pass(&mut self) {
        self.missed_from_ms = u64::MAX;
    }

    /// The pass has missed entries, so any key may be missing.
    pub(crate) fn break_pass(&mut self) {
        self.missed_from_ms = 0;
    }

    /// Whether an overdue key may be missing from the agenda.
    pub(crate) fn needs_pass(&self, now: Now) -> bool {
        self.missed_from_ms <= now.unix_ms
    }

    /// Whether the agenda is full of keys that are due now or whose deletes were started.
    pub(crate) fn is_saturated(&self, now: Now) -> bool {
        let is_due = |(at_ms, _): &(u64, Box<[u8]>)| *at_ms <= now.unix_ms + RETRY_MS;
        self.by_key.len() == EXPIRING_KEYS_MAX && self.by_time.last().is_some_and(is_due)
    }

    fn insert(&mut self, key: Box<[u8]>, at_ms: u64, version: OpId) {
        self.by_key.insert(key.clone(), (at_ms, version));
        self.by_time.insert((at_ms, key));
        if self.by_key.len() > EXPIRING_KEYS_MAX {
            let (at_ms, key) = self.by_time.pop_last().expect("the agenda is full");
            self.by_key.remove(&key);
            self.missed_from_ms = self.missed_from_ms.min(at_ms);
        }
    }

    /// The key was deleted.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if self.by_key.is_empty() {
            return;
        }
        if let Some((key, (at_ms, _))) = self.by_key.remove_entry(key) {
            self.by_time.remove(&(at_ms, key));
        }
    }

    /// Takes the next overdue key and its version. It becomes due again after [`RETRY_MS`] unless
    /// it is written.
    pub(crate) fn take_due(&mut self, now: Now) -> Option<(Box<[u8]>, OpId)> {
        self.by_time.first().filter(|(at_ms, _)| *at_ms <= now.unix_ms)?;
        let (_, key) = self.by_time.pop_first().expect("just seen");
        let (_, version) = self.by_key[&key];
        self.insert(key.clone(), now.unix_ms + RETRY_MS, version);
        Some((key, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{ClientId, Form};

    fn agenda() -> Agenda {
        Agenda::new(Map::default())
    }

    fn entry(expiry_ms: u64, value: Option<&[u8]>) -> Entry<'_> {
        let version = OpId { client: ClientId(1), sequence: expiry_ms };
        Entry { index: 1, version, expiry_ms, form: Form::Plain, value }
    }

    fn at(unix_ms: u64) -> Now {
        Now { boot_ns: 0, unix_ms }
    }

    fn key(number: usize) -> [u8; 8] {
        (number as u64).to_be_bytes()
    }

    #[test]
    fn keys_are_due_at_their_newest_expiry_until_gone() {
        let mut agenda = agenda();
        agenda.note(b"a", &entry(10, Some(b"v")));
        agenda.note(b"b", &entry(5, Some(b"v")));
        agenda.note(b"b", &entry(20, Some(b"v")));
        agenda.note(b"c", &entry(0, Some(b"v")));
        agenda.note(b"d", &entry(7, Some(b"v")));
        agenda.note(b"d", &entry(7, None));
        assert_eq!(agenda.take_due(at(9)), None);
        let version = entry(10, None).version;
        assert_eq!(agenda.take_due(at(10)), Some((b"a".as_slice().into(), version)));
        assert_eq!(agenda.take_due(at(10)), None);
        agenda.note_found(b"a", &entry(10, Some(b"v")));
        assert_eq!(agenda.take_due(at(11)), None, "its delete is under way");
        agenda.note(b"b", &entry(0, Some(b"v")));
        assert_eq!(agenda.take_due(at(10 + RETRY_MS)), Some((b"a".as_slice().into(), version)));
        agenda.note(b"a", &entry(10, None));
        assert_eq!(agenda.take_due(at(u64::MAX / 2)), None);
    }

    #[test]
    fn overflowing_expiries_are_found_by_a_later_pass() {
        let mut agenda = agenda();
        assert!(agenda.needs_pass(at(0)), "nothing is known yet");
        agenda.begin_pass();
        for number in (0..EXPIRING_KEYS_MAX + 2).rev() {
            agenda.note(&key(number), &entry(1_000 + number as u64, Some(b"v")));
        }
        let missed = 1_000 + EXPIRING_KEYS_MAX as u64;
        assert!(!agenda.needs_pass(at(missed - 1)) && agenda.needs_pass(at(missed)));
        assert!(!agenda.is_saturated(at(0)) && agenda.is_saturated(at(missed)));
        for number in 0..EXPIRING_KEYS_MAX {
            assert_eq!(*agenda.take_due(at(missed)).unwrap().0, key(number));
            agenda.note(&key(number), &entry(1, None));
        }
        assert_eq!(agenda.take_due(at(missed)), None);
        assert!(!agenda.is_saturated(at(missed)));
        agenda.break_pass();
        assert!(agenda.needs_pass(at(0)));
        agenda.clear();
        assert!(!agenda.needs_pass(at(missed)));
    }
}
