//! Room on a node's disk, some of which is set aside for what must be written when there is no more (docs/FAULTS.md row 9).
//!
//! ```text
//!                 free < low, or a write fails                 a write fails, or free < low
//!   Enough ───────────────────────────────▶ Reserve ──────────────────────────────▶ Exhausted
//!     ▲      the reserve is given back          │                                        │
//!     └──────── free ≥ reserve + 2 low: taken again ◀────────────────────────────────────┘
//! ```
//!
//! The reserve is a file of real blocks. Giving it back makes room for the decisions of ops that are open, for the checkpoints that
//! let the log be trimmed, and for deletes.

use nicekv_node::DiskSpace;
use nicekv_store::files::StoreFile;
use nicekv_store::{Files, StoreError};
use nicekv_wire::{Duration, Now};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RESERVE_FILE: &str = "reserve";
/// This part of the reserve must be free besides.
const LOW_DIVISOR: u64 = 4;
/// Between two looks at the disk.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Space {
    files: Arc<dyn Files>,
    directory: PathBuf,
    reserve: Arc<dyn StoreFile>,
    reserve_bytes: u64,
    state: DiskSpace,
    look_at_ns: u64,
}

impl Space {
    /// Sets `reserve_bytes` aside in `directory`, if there is room.
    pub(super) fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        reserve_bytes: u64,
    ) -> Result<Self, StoreError> {
        let path = directory.join(RESERVE_FILE);
        let failed = |source| StoreError::Io { operation: "set space aside in", path: path.clone(), source };
        let reserve = files.open(&path, true).map_err(failed)?;
        let directory = directory.to_path_buf();
        let state = DiskSpace::Reserve;
        let mut space = Self { files, directory, reserve, reserve_bytes, state, look_at_ns: 0 };
        if space.take().map_err(failed)? {
            space.state = DiskSpace::Enough;
        }
        space.look().map_err(failed)?;
        Ok(space)
    }

    pub(super) fn state(&self) -> DiskSpace {
        self.state
    }

    fn low_bytes(&self) -> u64 {
        self.reserve_bytes / LOW_DIVISOR
    }

    /// Looks at the disk, now and then; whether it has, and there is not enough.
    pub(super) fn watch(&mut self, now: Now) -> Result<bool, StoreError> {
        if now.boot_ns < self.look_at_ns {
            return Ok(false);
        }
        self.look_at_ns = now.after(LOOK_INTERVAL);
        let path = self.directory.clone();
        self.look().map_err(|source| StoreError::Io { operation: "look for space in", path, source })?;
        Ok(self.state != DiskSpace::Enough)
    }

    fn look(&mut self) -> io::Result<()> {
        let (free, low) = (self.files.available(&self.directory)?, self.low_bytes());
        if self.state == DiskSpace::Enough {
            if free < low {
                self.give_back()?;
            }
        } else if free >= self.reserve_bytes + 2 * low && self.take()? {
            self.state = DiskSpace::Enough;
        } else {
            self.state = if free < low { DiskSpace::Exhausted } else { DiskSpace::Reserve };
        }
        Ok(())
    }

    /// A write found no space. Whether it is worth trying again at once.
    pub(super) fn run_out(&mut self) -> Result<bool, StoreError> {
        if self.state != DiskSpace::Enough {
            self.state = DiskSpace::Exhausted;
            return Ok(false);
        }
        let path = self.directory.clone();
        let given = self.give_back();
        given.map_err(|source| StoreError::Io { operation: "give back space in", path, source })?;
        Ok(true)
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.state = DiskSpace::Reserve;
        self.reserve.set_length(0)?;
        self.reserve.sync()
    }

    /// Whether the space could be set aside.
    fn take(&mut self) -> io::Result<bool> {
        match self.reserve.allocate(self.reserve_bytes) {
            Ok(()) => Ok(true),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                self.reserve.set_length(0)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_store::Forgetful;

    const RESERVE_BYTES: u64 = 4_000;

    fn fill(disk: &Forgetful, free: u64) {
        disk.set_capacity(Some(disk.used() + free));
    }

    fn space(disk: &Forgetful) -> Space {
        Space::open(Arc::new(disk.clone()), Path::new("d"), RESERVE_BYTES).unwrap()
    }

    #[test]
    fn the_reserve_is_given_back_when_space_is_low_and_taken_again_when_there_is_plenty() {
        let disk = Forgetful::new(512);
        let mut space = space(&disk);
        assert_eq!(space.state(), DiskSpace::Enough);
        assert_eq!(disk.content(Path::new("d/reserve")).unwrap().len() as u64, RESERVE_BYTES);
        let mut look = |free| {
            fill(&disk, free);
            space.look().unwrap();
            (space.state(), disk.available(Path::new("d")).unwrap())
        };
        assert_eq!(look(1_000), (DiskSpace::Enough, 1_000));
        assert_eq!(look(999), (DiskSpace::Reserve, 999 + RESERVE_BYTES));
        assert_eq!(look(5_999), (DiskSpace::Reserve, 5_999));
        assert_eq!(look(999), (DiskSpace::Exhausted, 999));
        assert_eq!(look(1_000), (DiskSpace::Reserve, 1_000));
        assert_eq!(look(6_000), (DiskSpace::Enough, 6_000 - RESERVE_BYTES));
    }

    #[test]
    fn a_failed_write_may_be_tried_again_on_the_reserve_once() {
        let disk = Forgetful::new(512);
        let mut space = space(&disk);
        fill(&disk, 0);
        assert!(space.run_out().unwrap());
        assert_eq!(
            (space.state(), disk.available(Path::new("d")).unwrap()),
            (DiskSpace::Reserve, RESERVE_BYTES)
        );
        assert!(!space.run_out().unwrap());
        assert_eq!(space.state(), DiskSpace::Exhausted);
    }

    #[test]
    fn a_disk_that_is_full_at_the_start_is_no_failure() {
        let disk = Forgetful::new(512);
        disk.set_capacity(Some(RESERVE_BYTES - 1));
        assert_eq!(space(&disk).state(), DiskSpace::Reserve);
        disk.set_capacity(Some(0));
        assert_eq!(space(&disk).state(), DiskSpace::Exhausted);
    }
}
