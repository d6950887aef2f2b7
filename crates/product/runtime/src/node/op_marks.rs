//! Op marks ([`OpMarks`]): the op that is being evaluated, and ops that have crashed the process,
//! in a file of the data directory.
//!
//! ```text
//!   │ magic │ op being evaluated: client, sequence │ next slot │ 64 slots: client, sequence, count │
//! ```
//!
//! The file is mapped into memory, so a mark costs two stores and outlives a crash of the process.
//! It is synced only at a start, since an op cannot cause a power loss.

#![allow(unsafe_code, reason = "the file is mapped into memory")]

use nicekv_proto::{ClientId, OpId};
use nicekv_replica::{MarkKeeper, OpMarks};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "op-marks";
const MAGIC: u64 = u64::from_le_bytes(*b"NICEMRK1");
const FILE_BYTES: usize = 4096;
const WORDS: usize = FILE_BYTES / size_of::<u64>();
/// An op that has crashed the process this many times is refused.
pub(super) const ENDS_MAX: u64 = 2;
/// Number of ops that are remembered; a new one replaces the oldest.
const SLOTS: usize = 64;
const CLIENT: usize = 1;
const SEQUENCE: usize = 2;
/// Index of the word that holds the next slot to be written.
const NEXT: usize = 3;
const FIRST_SLOT: usize = 4;
const SLOT_WORDS: usize = 3;

/// The mapped words of the file.
struct MarkFile(NonNull<AtomicU64>);

// SAFETY: the pointer refers only to atomics, which stay mapped as long as this value exists.
unsafe impl Send for MarkFile {}
// SAFETY: as above.
unsafe impl Sync for MarkFile {}

/// Opens the marks of a data directory. Counts a crash for the op that was being evaluated when the
/// last process ended, if any.
pub(super) fn open(directory: &Path) -> io::Result<OpMarks> {
    let path = directory.join(NAME);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    if file.metadata()?.len() != FILE_BYTES as u64 {
        // The zeros allocate disk space: writing to a mapped page on a full disk would crash the
        // process.
        file.set_len(0)?;
        file.write_all_at(&[0; FILE_BYTES], 0)?;
    }
    let marks = MarkFile::map(&file)?;
    let barred = marks.count_end();
    file.sync_data()?;
    Ok(OpMarks::new(Arc::new(marks), barred))
}

impl MarkFile {
    fn map(file: &File) -> io::Result<Self> {
        // SAFETY: this maps a file of that length, which no one shortens.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FILE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(mapped.cast()).map(Self).ok_or_else(io::Error::last_os_error)
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, is page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), WORDS) }
    }

    fn get(&self, word: usize) -> u64 {
        self.words()[word].load(Ordering::Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.words()[word].store(value, Ordering::Relaxed);
    }

    /// Counts a crash for the op that was being evaluated when the last process ended. Returns the
    /// ops that have reached [`ENDS_MAX`].
    fn count_end(&self) -> BTreeSet<OpId> {
        if self.get(0) != MAGIC {
            (1..WORDS).for_each(|word| self.set(word, 0));
            self.set(0, MAGIC);
        }
        let (client, sequence) = (self.get(CLIENT), self.get(SEQUENCE));
        self.set(CLIENT, 0);
        let slot = |index: usize| FIRST_SLOT + index * SLOT_WORDS;
        if client != 0 {
            let is_it = |at: &usize| self.get(*at) == client && self.get(*at + 1) == sequence;
            let at = (0..SLOTS).map(slot).find(is_it).unwrap_or_else(|| {
                let next = self.get(NEXT) as usize % SLOTS;
                self.set(NEXT, next as u64 + 1);
                self.set(slot(next), client);
                self.set(slot(next) + 1, sequence);
                self.set(slot(next) + 2, 0);
                slot(next)
            });
            self.set(at + 2, self.get(at + 2) + 1);
        }
        let too_often = (0..SLOTS).map(slot).filter(|at| self.get(at + 2) >= ENDS_MAX);
        too_often.map(|at| OpId { client: ClientId(self.get(at)), sequence: self.get(at + 1) }).collect()
    }
}

impl MarkKeeper for MarkFile {
    fn begin(&self, op: OpId) {
        self.set(SEQUENCE, op.sequence);
        // The client is stored last: if the process ends after this instruction, both words are
        // valid.
        self.words()[CLIENT].store(op.client.0, Ordering::Release);
    }

    fn end(&self) {
        self.set(CLIENT, 0);
    }
}

impl Drop for MarkFile {
    fn drop(&mut self) {
        // SAFETY: `map` has mapped it, and there are no references to it any more.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), FILE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(sequence: u64) -> OpId {
        OpId { client: ClientId(7), sequence }
    }

    /// Simulates a process that evaluates these ops, and crashes in the last one.
    fn ends_at(directory: &Path, ops: &[OpId]) {
        let marks = open(directory).unwrap();
        ops.iter().for_each(|op| {
            marks.end();
            marks.begin(*op);
        });
    }

    #[test]
    fn op_is_refused_after_two_crashes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        ends_at(path, &[op(1), op(2)]);
        ends_at(path, &[op(3), op(2)]);
        let marks = open(path).unwrap();
        assert!(marks.bars(op(2)) && !marks.bars(op(1)) && !marks.bars(op(3)));
        assert_eq!(marks.barred(), 1, "without an op in evaluation, no crash is counted");
        marks.begin(op(4));
        marks.end();
        drop(marks);
        ends_at(path, &[op(5)]);
        let marks = open(path).unwrap();
        assert!(marks.bars(op(2)) && !marks.bars(op(4)) && !marks.bars(op(5)));
    }

    #[test]
    fn oldest_op_is_forgotten_when_slots_are_full() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..ENDS_MAX {
            ends_at(directory.path(), &[op(1)]);
        }
        for sequence in 2..=SLOTS as u64 {
            ends_at(directory.path(), &[op(sequence)]);
        }
        assert!(open(directory.path()).unwrap().bars(op(1)), "each op has a slot");
        ends_at(directory.path(), &[op(1_000)]);
        assert!(!open(directory.path()).unwrap().bars(op(1)), "the oldest was forgotten");
    }

    #[test]
    fn unknown_file_content_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(NAME), [0xff; FILE_BYTES]).unwrap();
        assert_eq!(open(directory.path()).unwrap().barred(), 0);
        std::fs::write(directory.path().join(NAME), [1, 2, 3]).unwrap();
        assert_eq!(open(directory.path()).unwrap().barred(), 0);
    }
}
