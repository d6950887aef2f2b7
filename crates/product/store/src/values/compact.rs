//! Compaction: live values of a mostly dead segment move to the current one, step by step.
//!
//! ```text
//!   segment 3  │ dead │ A │ dead │ B │ dead │          1. A, B are verified, copied, finished; readers are led to the copies
//!                       └──────┐   └────┐              2. the copies are synced
//!   current    │ C │ D │ ····· │ A │ E │ B │           3. segment 3 is removed
//! ```
//!
//! After a crash a value exists in the old place, the new place, or both. A value that cannot be
//! read stays in place, with its segment, until it is removed: a copy with new checksums would make
//! the damage look like data, and one with old checksums would count as torn.

use super::{BLOCK_BYTES, Values, format::Extent, pinned::Pinned, segments::Segment, writing::Writing};
use crate::Result;
use nicekv_proto::OpId;

/// A segment is compacted when less than this part (1/N) of it is alive.
const LIVE_PART: u64 = 2;
/// While space is short, a segment is compacted when more than this part (1/N) of it is dead.
const DEAD_PART: u64 = 8;

pub(super) struct Compaction {
    source: u64,
    /// Values of the segment that are still to be examined.
    names: Vec<OpId>,
    copy: Option<Copy>,
}

/// A value being copied.
struct Copy {
    from: Pinned,
    to: Writing,
    copied: u64,
}

impl Values {
    /// Performs a step of compaction, copying about `bytes_max` at most (at least one block).
    /// `false` if there is nothing to do. `room`: most live bytes of the segment, while space is
    /// short. Before a compacted segment is removed, its copies must be durable: the step syncs
    /// them, unless another sync did meanwhile.
    ///
    /// On a full disk ([`StoreError::is_out_of_space`]) it may be called again.
    /// [`StoreError::Corrupt`] names the owner of a damaged value, whose segment is left alone
    /// until a value in it is removed.
    ///
    /// [`StoreError::is_out_of_space`]: crate::StoreError::is_out_of_space
    /// [`StoreError::Corrupt`]: crate::StoreError::Corrupt
    pub fn compact_step(&mut self, bytes_max: u64, room: Option<u64>) -> Result<bool> {
        self.segments.shared.check()?;
        let Some(mut compaction) = self.compaction.take() else { return self.begin_compaction(room) };
        let is_done = self.copy_some(&mut compaction, bytes_max);
        match &is_done {
            Ok(true) => {} // it is empty, so a later step removes it
            Err(error) if !error.is_out_of_space() => self.block(compaction.source),
            _ => self.compaction = Some(compaction),
        }
        is_done.map(|_| true)
    }

    /// Whether a segment is being compacted.
    pub fn is_copying(&self) -> bool {
        self.compaction.is_some()
    }

    /// Selects a segment, or removes an empty one. `false` if there is none.
    fn begin_compaction(&mut self, room: Option<u64>) -> Result<bool> {
        let Some(source) = self.next_source(room) else { return Ok(false) };
        if self.segments.current == Some(source) {
            self.segments.seal()?;
        }
        match self.segments.known.get(&source) {
            Some(segment) if segment.is_empty() => self.remove_empty(source)?,
            Some(segment) => {
                let names = segment.names.clone();
                self.compaction = Some(Compaction { source, names, copy: None });
            }
            None => {} // it was empty and went when it was sealed
        }
        Ok(true)
    }

    /// The segment with the smallest live part, if compacting it pays.
    fn next_source(&self, room: Option<u64>) -> Option<u64> {
        let segments = &self.segments;
        let is_worth_it = |number: u64, segment: &Segment| {
            let (is_current, used) = (segments.current == Some(number), segment.used());
            if segment.is_empty() {
                return !is_current || used > 0;
            }
            let may_move = !segment.is_own && !segment.is_blocked && segment.writing == 0;
            let is_full = !is_current || used >= segments.options.segment_bytes / 2;
            let gives_enough = match room {
                None => segment.live * LIVE_PART < used,
                Some(room) => (used - segment.live.min(used)) * DEAD_PART > used && segment.live <= room,
            };
            may_move && is_full && gives_enough
        };
        let sources = segments.known.iter().filter(|(number, segment)| is_worth_it(**number, segment));
        let live_part = |segment: &Segment| segment.live * 1_000 / segment.used().max(1);
        sources.min_by_key(|(_, segment)| live_part(segment)).map(|(number, _)| *number)
    }

    fn remove_empty(&mut self, number: u64) -> Result<()> {
        if self.segments.known[&number].copied_through > self.segments.shared.synced() {
            self.segments.shared.sync()?;
        }
        self.segments.remove_if_empty(number)
    }

    fn block(&mut self, number: u64) {
        if let Some(segment) = self.segments.known.get_mut(&number) {
            segment.is_blocked = true;
        }
    }

    /// Copies some values. Returns whether all are copied. After an error it may be called again.
    fn copy_some(&mut self, compaction: &mut Compaction, bytes_max: u64) -> Result<bool> {
        let (mut bytes, mut block) = (0, Vec::new());
        while bytes < bytes_max.max(1) {
            let next = match compaction.copy.take() {
                Some(copy) => Some(copy),
                None => self.next_copy(compaction)?,
            };
            let Some(copy) = next else { return Ok(true) };
            let name = copy.from.name;
            if !self.is_at(name, &copy.from.extent) {
                self.segments.give_up(&copy.to.extent, copy.to.is_touched)?;
                continue;
            }
            let step = if copy.copied == copy.from.length() {
                bytes += copy.to.extent.header_bytes() as u64;
                self.settle(copy.to, true)
            } else {
                self.copy_block(copy, &mut block).map(|after| {
                    bytes += block.len() as u64;
                    compaction.copy = Some(after);
                })
            };
            if let Err(error) = step {
                compaction.names.push(name);
                return Err(error);
            }
        }
        Ok(false)
    }

    /// Starts with the next live value of the segment; `None` if there is none.
    fn next_copy(&mut self, compaction: &mut Compaction) -> Result<Option<Copy>> {
        while let Some(name) = compaction.names.last().copied() {
            let entry = self.index.get(&name);
            if let Some(entry) = entry.filter(|entry| entry.extent.segment == compaction.source) {
                let from = self.pin_entry(name, entry)?;
                let to = self.reserve(name, (*from.owner).clone(), from.length())?;
                compaction.names.pop();
                return Ok(Some(Copy { from, to, copied: 0 }));
            }
            compaction.names.pop();
        }
        Ok(None)
    }

    fn is_at(&self, name: OpId, extent: &Extent) -> bool {
        self.index.get(&name).is_some_and(|entry| entry.extent == *extent)
    }

    /// Copies one block through `block`. After an error the copy is abandoned.
    fn copy_block(&mut self, mut copy: Copy, block: &mut Vec<u8>) -> Result<Copy> {
        let bytes = copy.from.extent.block_bytes((copy.copied / BLOCK_BYTES as u64) as usize);
        block.resize(bytes, 0);
        let copied =
            copy.from.read(copy.copied, block).and_then(|()| self.write(&mut copy.to, copy.copied, block));
        match copied {
            Ok(()) => {
                copy.copied += bytes as u64;
                Ok(copy)
            }
            Err(error) => {
                self.segments.give_up(&copy.to.extent, copy.to.is_touched)?;
                Err(error)
            }
        }
    }
}
