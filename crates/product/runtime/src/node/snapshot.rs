//! Snapshot of a partition, read while writes continue: for backups.
//!
//! ```text
//!   keys      a b c d e f g h              a page has the next keys in order. Before a key that no page has had is written,
//!             ▓▓▓▓▓ read                   its old entry is sent ahead, and later pages leave that key out
//!                     ▲ written: sent ahead
//! ```
//!
//! A large value is read after the entry that refers to it (`snapshot_values`).
//!
//! Memory is bounded: if a partition is written faster than it is read, the snapshot fails and must
//! be restarted.

use super::snapshot_values::SnapshotValues;
use super::spaces::Spaces;
use super::values::{Done, Found, LargeValues};
use nicekv_proto::recovery::put_keyed_entry;
use nicekv_proto::{OpId, PartitionId};
use nicekv_replica::StorageRequest;
use nicekv_store::StoreError;
use std::collections::{BTreeSet, VecDeque};

/// Approximate bytes of keys and entries in a page.
const PAGE_BYTES: usize = 64 << 10;
/// Most keys that are remembered because they were sent ahead of the pages.
const AHEAD_KEYS_MAX: usize = 1 << 17;
/// Most pages that wait to be sent.
const PAGES_MAX: usize = 128;

/// A snapshot being read; see the module documentation.
pub(super) struct Snapshot {
    partition: PartitionId,
    /// Last key that was read; `None` at the start.
    read: Option<Vec<u8>>,
    is_complete: bool,
    /// Keys after `read` that were written since the start: their old entries were sent ahead, or
    /// they did not exist.
    ahead: BTreeSet<Box<[u8]>>,
    /// Keyed entries that wait to be sent.
    pages: VecDeque<Vec<u8>>,
    large: SnapshotValues,
    broken: Option<&'static str>,
}

/// The next part of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Entries with their keys.
    Page(Vec<u8>),
    /// A part of a large value: that of the first returned entry whose value is not complete.
    Part { name: OpId, offset: u32, bytes: Vec<u8> },
    /// The snapshot has failed, because the disk cannot read this large value.
    Damaged(OpId, &'static str),
    /// The snapshot is complete.
    End,
    /// The snapshot has failed, for this reason.
    Broken(&'static str),
}

impl Snapshot {
    /// Starts a snapshot of the current state.
    pub(super) fn new(partition: PartitionId) -> Self {
        let (ahead, pages) = (BTreeSet::new(), VecDeque::new());
        let large = SnapshotValues::default();
        Self { partition, read: None, is_complete: false, ahead, pages, large, broken: None }
    }

    /// Call before a key is written or removed.
    pub(super) fn before_write(
        &mut self,
        engine: &Spaces,
        partition: PartitionId,
        key: &[u8],
    ) -> Result<(), StoreError> {
        let is_read = self.is_complete || self.read.as_deref().is_some_and(|read| key <= read);
        if partition != self.partition || is_read || self.broken.is_some() || self.ahead.contains(key) {
            return Ok(());
        }
        let mut entry = Vec::new();
        match engine.get_into(partition, key, &mut entry) {
            Ok(true) => self.put(key, &entry),
            Ok(false) => {}
            Err(StoreError::Corrupt { .. }) => self.broken = Some(DAMAGED),
            Err(error) => return Err(error),
        }
        self.ahead.insert(key.into());
        if self.ahead.len() > AHEAD_KEYS_MAX || self.pages.len() > PAGES_MAX {
            self.broken = Some(TOO_FAST);
        }
        Ok(())
    }

    /// Call before a large value is changed. Returns whether the change must wait until the
    /// snapshot has ended or has read the value.
    pub(super) fn before_value(
        &mut self,
        values: &mut LargeValues,
        request: &StorageRequest<'_>,
    ) -> Result<bool, StoreError> {
        match *request {
            StorageRequest::RemoveValue { name } => {
                let is_kept = self.large.keep(name);
                if self.large.is_too_much() {
                    self.broken = Some(TOO_FAST);
                }
                return Ok(is_kept);
            }
            // The value is written again because its current bytes may be damaged.
            StorageRequest::WriteValue { name, .. } if self.large.forget(name) => values.remove(name)?,
            _ => {}
        }
        Ok(false)
    }

    /// Ends the snapshot: removes the values that were kept for it.
    pub(super) fn end(self, values: &mut LargeValues) -> Result<(), StoreError> {
        self.large.into_kept().try_for_each(|name| values.remove(name))
    }

    /// Call before a partition is cleared.
    pub(super) fn before_clear(&mut self, partition: PartitionId) {
        if partition == self.partition && !self.is_complete {
            self.broken = Some("the node is copying the partition again");
        }
    }

    /// Returns the next part: of a large value, else waiting entries, else a page of the engine.
    pub(super) fn next(&mut self, engine: &Spaces, values: &mut LargeValues) -> Result<Next, StoreError> {
        if let (None, Some((name, offset, bytes))) = (self.broken, self.large.next()) {
            return self.read_part(values, name, offset, bytes);
        }
        if self.pages.is_empty() && !self.is_complete && self.broken.is_none() {
            self.read_page(engine)?;
        }
        Ok(match (self.broken, self.pages.pop_front()) {
            (Some(why), _) => Next::Broken(why),
            (None, Some(page)) => {
                self.large.send(&page);
                Next::Page(page)
            }
            (None, None) if self.is_complete => Next::End,
            (None, None) => Next::Page(Vec::new()),
        })
    }

    fn read_part(
        &mut self,
        values: &mut LargeValues,
        name: OpId,
        offset: u32,
        bytes: usize,
    ) -> Result<Next, StoreError> {
        let mut part = vec![0; bytes];
        match values.read(name, offset, &mut part)? {
            Found::Here => {
                if let Some(name) = self.large.advance(bytes) {
                    values.remove(name)?;
                }
                Ok(Next::Part { name, offset, bytes: part })
            }
            Found::Nothing => {
                self.broken = Some(LACKING);
                Ok(Next::Broken(LACKING))
            }
            Found::Damaged => {
                self.broken = Some(DAMAGED);
                Ok(Next::Damaged(name, DAMAGED))
            }
        }
    }

    fn read_page(&mut self, engine: &Spaces) -> Result<(), StoreError> {
        let page = engine.scan(self.partition, self.read.as_deref(), PAGE_BYTES)?;
        if !page.corrupt.is_empty() {
            self.broken = Some(DAMAGED);
            return Ok(());
        }
        for (key, entry) in &page.entries {
            if !self.ahead.contains(key.as_slice()) {
                self.put(key, entry);
            }
        }
        self.is_complete = !page.more;
        if let Some(last) = page.last_key() {
            self.ahead.retain(|key| &**key > last);
            self.read = Some(last.to_vec());
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], entry: &[u8]) {
        if self.pages.back().is_none_or(|page| page.len() >= PAGE_BYTES) {
            self.pages.push_back(Vec::new());
        }
        self.large.need(entry);
        put_keyed_entry(self.pages.back_mut().expect("one was pushed"), key, entry);
    }
}

/// Executes requests for large values, except removals that a snapshot delays.
pub(super) fn carry_out(
    snapshot: &mut Option<Snapshot>,
    values: &mut LargeValues,
    request: &StorageRequest<'_>,
    out: &mut Vec<u8>,
) -> Result<Done, StoreError> {
    if let Some(snapshot) = snapshot
        && snapshot.before_value(values, request)?
    {
        return Ok(Done::Written);
    }
    values.carry_out(request, out)
}

const DAMAGED: &str = "a value is damaged and not repaired yet";
const LACKING: &str = "a large value is missing at this node, and is being fetched";
const TOO_FAST: &str = "the partition is written faster than it is read";

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::large::Reference;
    use nicekv_proto::recovery::Entry;
    use nicekv_proto::{ClientId, Form};
    use nicekv_replica::stored_entries;
    use nicekv_store::MemoryEngine;
    use nicekv_transport::checksum;
    use std::collections::BTreeMap;

    const PARTITION: PartitionId = PartitionId(3);

    fn key(number: usize) -> Vec<u8> {
        format!("key-{number:06}").into_bytes()
    }

    fn filled(keys: usize) -> Spaces {
        let mut engine = Spaces::new(Box::new(MemoryEngine::new()));
        for number in 0..keys {
            engine.put(PARTITION, &key(number), &[b'0'; 100]).unwrap();
        }
        engine
    }

    /// Writes an entry as a node does during a snapshot.
    fn write(snapshot: &mut Snapshot, engine: &mut Spaces, key: &[u8], value: Option<&[u8]>) {
        snapshot.before_write(engine, PARTITION, key).unwrap();
        match value {
            Some(value) => engine.put(PARTITION, key, value).unwrap(),
            None => engine.remove(PARTITION, key).unwrap(),
        }
    }

    #[test]
    fn snapshot_is_consistent_despite_concurrent_writes() {
        let mut engine = filled(5000);
        let mut expected = BTreeMap::new();
        let page = engine.scan(PARTITION, None, usize::MAX).unwrap();
        expected.extend(page.entries);
        let (mut snapshot, mut found, mut turn) = (Snapshot::new(PARTITION), BTreeMap::new(), 0);
        loop {
            // Writes, overwrites, removals and new keys, before, at and after the current position.
            turn += 1;
            for number in [turn * 37 % 5000, turn * 911 % 5000, 4999 - turn % 5000] {
                write(&mut snapshot, &mut engine, &key(number), Some(b"later"));
                write(&mut snapshot, &mut engine, &key(number + 1), None);
                write(&mut snapshot, &mut engine, &key(number + 7000), Some(b"new"));
            }
            match snapshot.next(&engine, &mut LargeValues::in_memory()).unwrap() {
                Next::Page(page) => {
                    for (key, entry) in stored_entries(&page) {
                        let again = found.insert(key.to_vec(), entry.to_vec());
                        assert_eq!(again, None, "{key:?} was returned twice");
                    }
                }
                Next::End => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(turn > 5, "the snapshot has only {turn} pages");
        assert!(found == expected);
    }

    #[test]
    fn snapshot_ignores_other_partitions_and_fails_when_its_own_is_cleared() {
        let engine = filled(10);
        let mut snapshot = Snapshot::new(PARTITION);
        snapshot.before_write(&engine, PartitionId(4), b"k").unwrap();
        snapshot.before_clear(PartitionId(4));
        assert!(snapshot.ahead.is_empty());
        snapshot.before_clear(PARTITION);
        assert!(matches!(snapshot.next(&engine, &mut LargeValues::in_memory()).unwrap(), Next::Broken(_)));
    }

    #[test]
    fn snapshot_fails_instead_of_using_unbounded_memory() {
        let engine = filled(0);
        let mut snapshot = Snapshot::new(PARTITION);
        for number in 0..=AHEAD_KEYS_MAX {
            snapshot.before_write(&engine, PARTITION, &key(number)).unwrap();
        }
        assert!(matches!(snapshot.next(&engine, &mut LargeValues::in_memory()).unwrap(), Next::Broken(_)));
    }

    /// Puts a large value and its key's entry.
    fn put_large(engine: &mut Spaces, values: &mut LargeValues, number: usize, value: &[u8]) {
        let name = OpId { client: ClientId(1), sequence: number as u64 };
        let reference = Reference { name, length: value.len() as u32, checksum: checksum(value) };
        let mut out = Vec::new();
        for request in [
            StorageRequest::WriteValue { name, length: reference.length, offset: 0, bytes: value },
            StorageRequest::EndValue { reference },
        ] {
            values.carry_out(&request, &mut out).unwrap();
        }
        let (mut entry, bytes) = (Vec::new(), reference.bytes());
        Entry { index: 1, version: name, expiry_ms: 0, form: Form::Large, value: Some(&bytes) }
            .append(&mut entry);
        engine.put(PARTITION, &key(number), &entry).unwrap();
    }

    #[test]
    fn snapshot_includes_large_values_removed_meanwhile() {
        let (mut engine, mut values) = (filled(0), LargeValues::in_memory());
        let value = |number: usize| vec![number as u8; 60_000 + 1_000 * number];
        (0..40).for_each(|number| put_large(&mut engine, &mut values, number, &value(number)));
        let (mut snapshot, mut expected, mut found) = (Snapshot::new(PARTITION), Vec::new(), Vec::new());
        let remove = |snapshot: &mut Snapshot, values: &mut LargeValues, number: u64| {
            let name = OpId { client: ClientId(1), sequence: number };
            let request = StorageRequest::RemoveValue { name };
            if !snapshot.before_value(values, &request).unwrap() {
                values.carry_out(&request, &mut Vec::new()).unwrap();
            }
        };
        let mut turn = 0;
        loop {
            if turn < 40 {
                write(&mut snapshot, &mut engine, &key(39 - turn), Some(b"later"));
                remove(&mut snapshot, &mut values, 39 - turn as u64);
                turn += 1;
            }
            match snapshot.next(&engine, &mut values).unwrap() {
                Next::Page(page) => {
                    let sent = stored_entries(&page).filter_map(|(_, entry)| Entry::reference_of(entry));
                    expected.extend(sent.map(|reference| reference.name.sequence));
                }
                Next::Part { name, offset: 0, bytes } => found.push((name.sequence, bytes)),
                Next::Part { bytes, .. } => found.last_mut().unwrap().1.extend(bytes),
                Next::End => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(expected.len(), 40);
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|(number, bytes)| *bytes == value(*number as usize)));
        let is_there = |number: u64| {
            let name = OpId { client: ClientId(1), sequence: number };
            values.read(name, 0, &mut [0; 10]).unwrap() == Found::Here
        };
        assert!(!(0..40).any(is_there), "removed values are deleted once they are read");
    }

    #[test]
    fn missing_or_rewritten_large_value_fails_the_snapshot() {
        let (mut engine, mut values) = (filled(0), LargeValues::in_memory());
        put_large(&mut engine, &mut values, 1, &[7; 5_000]);
        let mut snapshot = Snapshot::new(PARTITION);
        assert!(matches!(snapshot.next(&engine, &mut values).unwrap(), Next::Page(_)));
        let name = OpId { client: ClientId(1), sequence: 1 };
        assert!(snapshot.before_value(&mut values, &StorageRequest::RemoveValue { name }).unwrap());
        let again = StorageRequest::WriteValue { name, length: 5_000, offset: 0, bytes: &[7; 100] };
        assert!(!snapshot.before_value(&mut values, &again).unwrap());
        assert_eq!(snapshot.next(&engine, &mut values).unwrap(), Next::Broken(LACKING));
    }
}
