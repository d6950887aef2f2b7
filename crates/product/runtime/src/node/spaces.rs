//! Engine spaces: map partitions to parts of the engine, so that clearing a partition takes no
//! time.
//!
//! ```text
//!   clear(p):   p ─▶ space 7           p ─▶ space 8, empty        space 7 is emptied in steps
//!   directory:  p: 7                   p: 8; to be emptied: 7     p: 8
//! ```
//!
//! A partition that was never cleared uses the space of its own number. Other spaces have numbers
//! from [`SPACE_FIRST`] on, which no partition has. The directory of spaces is stored in the
//! engine, in a space of its own, so after a crash it is as old as the other data, and replaying
//! the log repeats later clears. Numbers are never reused, so remains of a space after a crash
//! cannot appear in another one.

use nicekv_proto::PartitionId;
use nicekv_store::{Engine, EngineSync, ScanPage, StoreError};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of keys and values that one step of emptying removes: about half a millisecond of work.
const PIECE_BYTES: usize = 64 << 10;
/// First number of spaces for partitions that were cleared.
const SPACE_FIRST: u32 = 1 << 31;
/// The space that holds the directory.
const DIRECTORY: u32 = u32::MAX;
/// Kinds of directory keys: the space of a partition, …
const OF: u8 = 0;
/// … a space to be emptied, …
const EMPTIED: u8 = 1;
/// … and the last assigned space number.
const LAST: u8 = 2;

/// An engine that is addressed by partition; see the module documentation.
pub(super) struct Spaces {
    engine: Box<dyn Engine>,
    /// Spaces of partitions that were cleared.
    of: BTreeMap<u32, u32>,
    /// Spaces to be emptied.
    emptied: BTreeSet<u32>,
    /// The space being emptied, and the last key removed from it.
    emptying: Option<(u32, Option<Vec<u8>>)>,
    last: u32,
}

fn key(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}

impl Spaces {
    /// Wraps a new engine.
    pub(super) fn new(engine: Box<dyn Engine>) -> Self {
        let (of, emptied) = (BTreeMap::new(), BTreeSet::new());
        Self { engine, of, emptied, emptying: None, last: SPACE_FIRST }
    }

    /// Reads the directory from an existing engine.
    pub(super) fn open(engine: Box<dyn Engine>) -> Result<Self, StoreError> {
        let mut spaces = Self::new(engine);
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = spaces.engine.scan(DIRECTORY, after.as_deref(), PIECE_BYTES)?;
            if let Some(key) = page.corrupt.first() {
                // Reading the key returns an error that says what is damaged, and where.
                spaces.engine.get(DIRECTORY, key)?;
            }
            page.entries.iter().for_each(|(key, value)| spaces.learn(key, value));
            if !page.more {
                return Ok(spaces);
            }
            after = page.last_key().map(<[u8]>::to_vec);
        }
    }

    /// Adds a directory entry. Only this module writes them.
    fn learn(&mut self, key: &[u8], value: &[u8]) {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_be_bytes);
        match key {
            [OF, partition @ ..] => {
                self.of.insert(number(partition), number(value));
            }
            [EMPTIED, space @ ..] => {
                self.emptied.insert(number(space));
            }
            [LAST, ..] => self.last = self.last.max(number(value)),
            _ => {}
        }
    }

    fn space(&self, partition: PartitionId) -> u32 {
        // The usual case: no partition was ever cleared.
        if self.of.is_empty() {
            partition.0
        } else {
            self.of.get(&partition.0).copied().unwrap_or(partition.0)
        }
    }

    pub(super) fn get_into(
        &self,
        partition: PartitionId,
        key: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        self.engine.get_into(self.space(partition), key, value)
    }

    pub(super) fn put(&mut self, partition: PartitionId, key: &[u8], entry: &[u8]) -> Result<(), StoreError> {
        self.engine.put(self.space(partition), key, entry)
    }

    pub(super) fn remove(&mut self, partition: PartitionId, key: &[u8]) -> Result<(), StoreError> {
        self.engine.remove(self.space(partition), key)
    }

    pub(super) fn scan(
        &self,
        partition: PartitionId,
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<ScanPage, StoreError> {
        self.engine.scan(self.space(partition), after, bytes_max)
    }

    pub(super) fn scan_each(
        &self,
        partition: PartitionId,
        after: Option<&[u8]>,
        bytes_max: usize,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<ScanPage, StoreError> {
        self.engine.scan_each(self.space(partition), after, bytes_max, each)
    }

    /// Clears a partition. Returns the number of bytes written to the engine.
    pub(super) fn clear(&mut self, partition: PartitionId) -> Result<u64, StoreError> {
        let old = self.space(partition);
        if self.engine.scan(old, None, 1)?.last_key().is_none() {
            return Ok(0);
        }
        self.last += 1;
        let number = self.last.to_be_bytes();
        self.engine.put(DIRECTORY, &key(LAST, 0), &number)?;
        self.engine.put(DIRECTORY, &key(OF, partition.0), &number)?;
        self.engine.put(DIRECTORY, &key(EMPTIED, old), &[])?;
        self.of.insert(partition.0, self.last);
        self.emptied.insert(old);
        Ok(2 * (5 + number.len()) as u64 + 5)
    }

    /// Whether any space must be emptied.
    pub(super) fn is_emptying(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// Does one step of emptying an unused space. Returns the number of bytes written to the
    /// engine.
    pub(super) fn empty_piece(&mut self) -> Result<u64, StoreError> {
        let next = || self.emptied.first().map(|space| (*space, None));
        let Some((space, after)) = self.emptying.take().or_else(next) else { return Ok(0) };
        let page = self.engine.scan(space, after.as_deref(), PIECE_BYTES)?;
        let mut bytes = 0;
        for key in page.entries.iter().map(|(key, _)| key).chain(&page.corrupt) {
            self.engine.remove(space, key)?;
            bytes += key.len() as u64;
        }
        match page.last_key() {
            Some(last) if page.more => self.emptying = Some((space, Some(last.to_vec()))),
            _ => {
                // Lets engines release the memory that they keep for a space.
                self.engine.clear(space)?;
                self.engine.remove(DIRECTORY, &key(EMPTIED, space))?;
                self.emptied.remove(&space);
            }
        }
        Ok(bytes)
    }

    pub(super) fn sync_begin(&mut self) -> Result<EngineSync, StoreError> {
        self.engine.sync_begin()
    }

    pub(super) fn synced(&mut self) -> Result<EngineSync, StoreError> {
        self.engine.synced()
    }

    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        self.engine.sync()
    }

    pub(super) fn set_space_short(&self, is_short: bool) {
        self.engine.set_space_short(is_short);
    }

    pub(super) fn merge_lacked_space(&self) -> bool {
        self.engine.merge_lacked_space()
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.engine.disk_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_store::engine::{DurableOptions, LsmEngine};
    use nicekv_store::{DurableEngine, MemoryEngine};
    use std::path::Path;

    const ONE: PartitionId = PartitionId(1);
    const TWO: PartitionId = PartitionId(2);

    fn durable(directory: &Path) -> Spaces {
        Spaces::open(Box::new(DurableEngine::open(directory, DurableOptions::default()).unwrap())).unwrap()
    }

    fn fill(spaces: &mut Spaces, partition: PartitionId, keys: u32) {
        for number in 0..keys {
            spaces.put(partition, &number.to_be_bytes(), &[7; 100]).unwrap();
        }
    }

    fn keys(spaces: &Spaces, partition: PartitionId) -> usize {
        let page = spaces.scan(partition, None, usize::MAX).unwrap();
        page.entries.len() + page.corrupt.len()
    }

    fn empty(spaces: &mut Spaces) -> usize {
        let mut pieces = 0;
        while spaces.is_emptying() {
            spaces.empty_piece().unwrap();
            pieces += 1;
        }
        pieces
    }

    #[test]
    fn clear_is_immediate_and_old_data_is_removed_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        for mut spaces in [Spaces::new(Box::new(MemoryEngine::new())), durable(directory.path())] {
            fill(&mut spaces, ONE, 3_000);
            fill(&mut spaces, TWO, 10);
            spaces.clear(ONE).unwrap();
            assert_eq!((keys(&spaces, ONE), keys(&spaces, TWO)), (0, 10));
            fill(&mut spaces, ONE, 5);
            spaces.remove(ONE, &0u32.to_be_bytes()).unwrap();
            assert_eq!(spaces.engine.scan(ONE.0, None, usize::MAX).unwrap().entries.len(), 3_000);
            let pieces = empty(&mut spaces);
            assert!((4..8).contains(&pieces), "{pieces}");
            assert_eq!(spaces.engine.scan(ONE.0, None, usize::MAX).unwrap().entries.len(), 0);
            assert_eq!((keys(&spaces, ONE), keys(&spaces, TWO)), (4, 10));
        }
    }

    #[test]
    fn space_cleared_meanwhile_is_emptied_from_its_start() {
        let mut spaces = Spaces::new(Box::new(MemoryEngine::new()));
        fill(&mut spaces, TWO, 3_000);
        fill(&mut spaces, ONE, 3_000);
        spaces.clear(TWO).unwrap();
        spaces.empty_piece().unwrap();
        // The space that is cleared now has a lower number than the one being emptied.
        spaces.clear(ONE).unwrap();
        fill(&mut spaces, ONE, 3_000);
        spaces.clear(ONE).unwrap();
        empty(&mut spaces);
        for space in [ONE.0, TWO.0, SPACE_FIRST + 1, SPACE_FIRST + 2, SPACE_FIRST + 3] {
            assert_eq!(spaces.engine.scan(space, None, usize::MAX).unwrap().entries.len(), 0, "{space}");
        }
        // Clearing an empty space does nothing.
        assert_eq!((spaces.clear(ONE).unwrap(), spaces.is_emptying()), (0, false));
    }

    #[test]
    fn directory_survives_and_numbers_are_never_reused() {
        let directory = tempfile::tempdir().unwrap();
        let mut spaces = durable(directory.path());
        fill(&mut spaces, ONE, 3_000);
        for _ in 0..3 {
            fill(&mut spaces, TWO, 10);
            spaces.clear(TWO).unwrap();
        }
        fill(&mut spaces, TWO, 4);
        spaces.clear(ONE).unwrap();
        spaces.empty_piece().unwrap();
        spaces.sync().unwrap();
        let last = spaces.last;
        drop(spaces);
        let mut spaces = durable(directory.path());
        assert_eq!((spaces.last, keys(&spaces, ONE), keys(&spaces, TWO)), (last, 0, 4));
        empty(&mut spaces);
        spaces.sync().unwrap();
        drop(spaces);
        let mut spaces = durable(directory.path());
        assert_eq!((spaces.is_emptying(), spaces.last, keys(&spaces, TWO)), (false, last, 4));
        fill(&mut spaces, ONE, 1);
        spaces.clear(ONE).unwrap();
        assert_eq!(spaces.last, last + 1);
    }

    #[test]
    fn damaged_directory_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let mut spaces = durable(directory.path());
        fill(&mut spaces, ONE, 1);
        spaces.clear(ONE).unwrap();
        spaces.sync().unwrap();
        drop(spaces);
        let mut raw = LsmEngine::open(directory.path(), DurableOptions::default()).unwrap();
        raw.put(DIRECTORY, &key(OF, ONE.0), b"an entry without a checksum").unwrap();
        raw.sync().unwrap();
        drop(raw);
        let engine = DurableEngine::open(directory.path(), DurableOptions::default()).unwrap();
        assert!(matches!(Spaces::open(Box::new(engine)), Err(StoreError::Corrupt { .. })));
    }
}
