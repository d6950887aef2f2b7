//! A partition as it was at one moment, read while it goes on being written: for backups.
//!
//! ```text
//!   keys      a b c d e f g h              a page is the next keys in order; whoever writes to a key that no page has had
//!             ▓▓▓▓▓ read                   sends what it held ahead, and pages leave that key out
//!                     ▲ written: sent ahead
//! ```
//!
//! Bounded: of a partition that is written to faster than it is read the snapshot breaks, and is begun again.

use super::spaces::Spaces;
use nicekv_store::StoreError;
use nicekv_wire::PartitionId;
use nicekv_wire::recovery::put_keyed_entry;
use std::collections::{BTreeSet, VecDeque};

/// Keys and entries of one page, about.
const PAGE_BYTES: usize = 64 << 10;
/// Most keys that are sent ahead and not yet passed by.
const AHEAD_KEYS_MAX: usize = 1 << 17;
/// Most pages that wait to be sent.
const PAGES_MAX: usize = 128;

/// See the module.
pub(super) struct Snapshot {
    partition: PartitionId,
    /// Keys up to this one are read; none at first.
    read: Option<Vec<u8>>,
    is_complete: bool,
    /// Keys after `read` whose entries were sent ahead, or that had none.
    ahead: BTreeSet<Box<[u8]>>,
    /// Keyed entries that wait to be sent.
    pages: VecDeque<Vec<u8>>,
    broken: Option<&'static str>,
}

/// What is next of a snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Keyed entries.
    Page(Vec<u8>),
    /// That was all.
    End,
    /// It is of no use.
    Broken(&'static str),
}

impl Snapshot {
    /// As it is now.
    pub(super) fn new(partition: PartitionId) -> Self {
        let (ahead, pages) = (BTreeSet::new(), VecDeque::new());
        Self { partition, read: None, is_complete: false, ahead, pages, broken: None }
    }

    /// A key is about to be written or removed.
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
            self.broken = Some("it is written to faster than it is read");
        }
        Ok(())
    }

    /// The partition is about to be emptied.
    pub(super) fn before_clear(&mut self, partition: PartitionId) {
        if partition == self.partition && !self.is_complete {
            self.broken = Some("the node copies it anew");
        }
    }

    /// What is next: what waits, or a page of the engine.
    pub(super) fn next(&mut self, engine: &Spaces) -> Result<Next, StoreError> {
        if self.pages.is_empty() && !self.is_complete && self.broken.is_none() {
            self.read_page(engine)?;
        }
        Ok(match (self.broken, self.pages.pop_front()) {
            (Some(why), _) => Next::Broken(why),
            (None, Some(page)) => Next::Page(page),
            (None, None) if self.is_complete => Next::End,
            (None, None) => Next::Page(Vec::new()),
        })
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
        put_keyed_entry(self.pages.back_mut().expect("one was pushed"), key, entry);
    }
}

const DAMAGED: &str = "a value is damaged, and not repaired yet";

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_node::stored_entries;
    use nicekv_store::MemoryEngine;
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

    /// Writes as a node does while a snapshot is taken.
    fn write(snapshot: &mut Snapshot, engine: &mut Spaces, key: &[u8], value: Option<&[u8]>) {
        snapshot.before_write(engine, PARTITION, key).unwrap();
        match value {
            Some(value) => engine.put(PARTITION, key, value).unwrap(),
            None => engine.remove(PARTITION, key).unwrap(),
        }
    }

    #[test]
    fn it_is_the_partition_of_its_moment_whatever_is_written_meanwhile() {
        let mut engine = filled(5000);
        let mut expected = BTreeMap::new();
        let page = engine.scan(PARTITION, None, usize::MAX).unwrap();
        expected.extend(page.entries);
        let (mut snapshot, mut found, mut turn) = (Snapshot::new(PARTITION), BTreeMap::new(), 0);
        loop {
            // Before, at and behind what is read: written, written again, removed, and new.
            turn += 1;
            for number in [turn * 37 % 5000, turn * 911 % 5000, 4999 - turn % 5000] {
                write(&mut snapshot, &mut engine, &key(number), Some(b"later"));
                write(&mut snapshot, &mut engine, &key(number + 1), None);
                write(&mut snapshot, &mut engine, &key(number + 7000), Some(b"new"));
            }
            match snapshot.next(&engine).unwrap() {
                Next::Page(page) => {
                    for (key, entry) in stored_entries(&page) {
                        let again = found.insert(key.to_vec(), entry.to_vec());
                        assert_eq!(again, None, "{key:?} was told twice");
                    }
                }
                Next::End => break,
                Next::Broken(why) => panic!("{why}"),
            }
        }
        assert!(turn > 5, "it takes several pages: {turn}");
        assert!(found == expected);
    }

    #[test]
    fn of_other_partitions_nothing_is_kept_and_an_emptied_one_breaks_it() {
        let engine = filled(10);
        let mut snapshot = Snapshot::new(PARTITION);
        snapshot.before_write(&engine, PartitionId(4), b"k").unwrap();
        snapshot.before_clear(PartitionId(4));
        assert!(snapshot.ahead.is_empty());
        snapshot.before_clear(PARTITION);
        assert!(matches!(snapshot.next(&engine).unwrap(), Next::Broken(_)));
    }

    #[test]
    fn what_is_written_too_fast_breaks_it_instead_of_taking_all_memory() {
        let engine = filled(0);
        let mut snapshot = Snapshot::new(PARTITION);
        for number in 0..=AHEAD_KEYS_MAX {
            snapshot.before_write(&engine, PARTITION, &key(number)).unwrap();
        }
        assert!(matches!(snapshot.next(&engine).unwrap(), Next::Broken(_)));
    }
}
