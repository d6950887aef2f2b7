//! Disk space, with a reserve for writes that must succeed on a full disk (docs/FAULTS.md row 9).
//!
//! ```text
//!                 free < low, or a write fails                 a write fails, or free < low
//!   Enough ───────────────────────────────▶ Reserve ──────────────────────────────▶ Exhausted
//!     ▲      the reserves are released            │                                        │
//!     └──────── free ≥ reserves + 2 low: allocated again ◀─────────────────────────────────┘
//! ```
//!
//! A node's reserve is a file of allocated blocks. Releasing it makes room for decisions of open
//! ops, for checkpoints that let the log be trimmed, for deletes, and for merges that reclaim
//! deleted space.
//!
//! Nodes of one process whose directories are on the same disk share one state: a put needs room at
//! all of its replicas, so it does not help if one node keeps its reserve while another one is
//! short of space.

use nicekv_proto::{Duration, Now};
use nicekv_replica::DiskSpace;
use nicekv_store::files::StoreFile;
use nicekv_store::{Files, StoreError, is_out_of_space};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Name of the reserve file in a node's data directory.
pub const RESERVE_FILE: &str = "reserve";

/// Free space that is required to accept puts, in addition to reserves of this size.
pub const fn free_bytes_min(reserve_bytes: u64) -> u64 {
    reserve_bytes / 4
}

/// Interval between checks of the disk.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Disks that this process' nodes use, by device number.
static DISKS: Mutex<BTreeMap<u64, Weak<Mutex<Disk>>>> = Mutex::new(BTreeMap::new());

/// A disk, with the reserves of this process' nodes.
struct Disk {
    reserves: Vec<Reserve>,
    state: DiskSpace,
    /// Number of times the reserves were released.
    given_back: u64,
}

struct Reserve {
    file: Arc<dyn StoreFile>,
    bytes: u64,
}

/// A node's view of its disk; see the module documentation.
pub(super) struct Space {
    files: Arc<dyn Files>,
    directory: PathBuf,
    disk: Arc<Mutex<Disk>>,
    reserve: Arc<dyn StoreFile>,
    /// Value of [`Disk::given_back`] when a write of this node last failed.
    given_back: u64,
    look_at_ns: u64,
}

impl Space {
    /// Reserves `reserve_bytes` in `directory` if the disk has room.
    pub(super) fn open(
        files: Arc<dyn Files>,
        directory: &Path,
        reserve_bytes: u64,
    ) -> Result<Self, StoreError> {
        let path = directory.join(RESERVE_FILE);
        let failed = |source| StoreError::Io { operation: "set space aside in", path: path.clone(), source };
        let reserve = files.open(&path, true).map_err(failed)?;
        let disk = disk_of(&*files, directory).map_err(failed)?;
        let given_back = {
            let mut disk = locked(&disk);
            disk.reserves.push(Reserve { file: reserve.clone(), bytes: reserve_bytes });
            disk.join(&*reserve, reserve_bytes).map_err(failed)?;
            disk.given_back
        };
        let directory = directory.to_path_buf();
        let space = Self { files, directory, disk, reserve, given_back, look_at_ns: 0 };
        space.look().map_err(failed)?;
        Ok(space)
    }

    pub(super) fn state(&self) -> DiskSpace {
        locked(&self.disk).state
    }

    /// Current free space on the disk, in bytes.
    pub(super) fn free_bytes(&self) -> u64 {
        self.files.available(&self.directory).unwrap_or(0)
    }

    /// Checks the disk at intervals. Returns `true` if it was checked now and space is short.
    pub(super) fn watch(&mut self, now: Now) -> Result<bool, StoreError> {
        if now.boot_ns < self.look_at_ns {
            return Ok(false);
        }
        self.look_at_ns = now.after(LOOK_INTERVAL);
        let path = self.directory.clone();
        self.look().map_err(|source| StoreError::Io { operation: "look for space in", path, source })?;
        Ok(self.state() != DiskSpace::Enough)
    }

    fn look(&self) -> io::Result<()> {
        // Checked under the lock: otherwise two nodes could allocate the same free space.
        let mut disk = locked(&self.disk);
        let free = self.files.available(&self.directory)?;
        disk.look(free)
    }

    /// A write found the disk full. Returns whether to retry it at once.
    pub(super) fn run_out(&mut self) -> Result<bool, StoreError> {
        let mut disk = locked(&self.disk);
        if disk.state == DiskSpace::Enough {
            let path = self.directory.clone();
            let given = disk.give_back();
            given.map_err(|source| StoreError::Io { operation: "give back space in", path, source })?;
        }
        // Another node may have released the reserves since the write failed.
        let is_new = disk.given_back != self.given_back;
        self.given_back = disk.given_back;
        if !is_new {
            disk.state = DiskSpace::Exhausted;
        }
        Ok(is_new)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        locked(&self.disk).reserves.retain(|reserve| !Arc::ptr_eq(&reserve.file, &self.reserve));
    }
}

fn disk_of(files: &dyn Files, directory: &Path) -> io::Result<Arc<Mutex<Disk>>> {
    let number = files.disk(directory)?;
    let mut disks = DISKS.lock().expect("no holder of this lock panics");
    disks.retain(|_, disk| disk.strong_count() > 0);
    if let Some(disk) = disks.get(&number).and_then(Weak::upgrade) {
        return Ok(disk);
    }
    let disk = Disk { reserves: Vec::new(), state: DiskSpace::Enough, given_back: 0 };
    let disk = Arc::new(Mutex::new(disk));
    disks.insert(number, Arc::downgrade(&disk));
    Ok(disk)
}

fn locked(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().expect("no holder of this lock panics")
}

impl Disk {
    fn reserve_bytes(&self) -> u64 {
        self.reserves.iter().map(|reserve| reserve.bytes).sum()
    }

    fn low_bytes(&self) -> u64 {
        free_bytes_min(self.reserve_bytes())
    }

    /// Adds a node's reserve, whose file may exist already.
    fn join(&mut self, reserve: &dyn StoreFile, bytes: u64) -> io::Result<()> {
        if reserve.length()? > bytes {
            reserve.set_length(bytes)?;
        }
        if self.state != DiskSpace::Enough {
            return reserve.set_length(0);
        }
        if !take(reserve, bytes)? {
            self.give_back()?;
        }
        Ok(())
    }

    fn look(&mut self, free: u64) -> io::Result<()> {
        let low = self.low_bytes();
        if self.state == DiskSpace::Enough {
            if free < low {
                self.give_back()?;
            }
        } else if free >= self.reserve_bytes() + 2 * low && self.take()? {
            self.state = DiskSpace::Enough;
        } else {
            self.state = if free < low { DiskSpace::Exhausted } else { DiskSpace::Reserve };
        }
        Ok(())
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.state = DiskSpace::Reserve;
        self.given_back += 1;
        self.reserves.iter().try_for_each(|reserve| {
            reserve.file.set_length(0)?;
            reserve.file.sync()
        })
    }

    /// Allocates all reserves. Returns whether there was room.
    fn take(&mut self) -> io::Result<bool> {
        for reserve in &self.reserves {
            if !take(&*reserve.file, reserve.bytes)? {
                self.reserves.iter().try_for_each(|reserve| reserve.file.set_length(0))?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Allocates a reserve. Returns whether there was room.
fn take(reserve: &dyn StoreFile, bytes: u64) -> io::Result<bool> {
    match reserve.allocate(bytes) {
        Ok(()) => Ok(true),
        Err(error) if is_out_of_space(&error) => {
            reserve.set_length(0)?;
            Ok(false)
        }
        Err(error) => Err(error),
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
    fn reserve_is_released_when_space_is_low_and_taken_again_later() {
        let disk = Forgetful::new(512);
        let space = space(&disk);
        assert_eq!(space.state(), DiskSpace::Enough);
        assert_eq!(disk.content(Path::new("d/reserve")).unwrap().len() as u64, RESERVE_BYTES);
        let look = |free| {
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
    fn failed_write_is_retried_once_on_the_reserve() {
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
    fn full_disk_at_start_is_no_failure() {
        let disk = Forgetful::new(512);
        disk.set_capacity(Some(RESERVE_BYTES - 1));
        assert_eq!(space(&disk).state(), DiskSpace::Reserve);
        disk.set_capacity(Some(0));
        assert_eq!(space(&disk).state(), DiskSpace::Exhausted);
    }
    /// Two nodes on one disk.
    fn pair(disk: &Forgetful) -> [Space; 2] {
        ["d", "e"].map(|name| Space::open(Arc::new(disk.clone()), Path::new(name), RESERVE_BYTES).unwrap())
    }

    fn states(pair: &[Space; 2]) -> [DiskSpace; 2] {
        [pair[0].state(), pair[1].state()]
    }

    #[test]
    fn nodes_on_one_disk_release_and_take_reserves_together() {
        let disk = Forgetful::new(512);
        let mut pair = pair(&disk);
        let available = || disk.available(Path::new("d")).unwrap();
        fill(&disk, 0);
        assert!(pair[0].run_out().unwrap());
        assert_eq!((states(&pair), available()), ([DiskSpace::Reserve; 2], 2 * RESERVE_BYTES));
        // A write of the other node failed before the reserves were released.
        assert!(pair[1].run_out().unwrap());
        assert_eq!(states(&pair), [DiskSpace::Reserve; 2]);
        assert!(!pair[1].run_out().unwrap());
        assert_eq!(states(&pair), [DiskSpace::Exhausted; 2]);
        fill(&disk, 3 * RESERVE_BYTES - 1);
        pair[0].look().unwrap();
        assert_eq!(states(&pair), [DiskSpace::Reserve; 2], "enough space for one reserve only");
        fill(&disk, 3 * RESERVE_BYTES);
        pair[1].look().unwrap();
        assert_eq!((states(&pair), available()), ([DiskSpace::Enough; 2], RESERVE_BYTES));
    }

    #[test]
    fn stopped_nodes_do_not_count_and_full_disk_has_no_reserve() {
        let disk = Forgetful::new(512);
        let [first, second] = pair(&disk);
        fill(&disk, 1_999);
        first.look().unwrap();
        assert_eq!(second.state(), DiskSpace::Reserve);
        drop(second);
        fill(&disk, 6_000);
        first.look().unwrap();
        assert_eq!(first.state(), DiskSpace::Enough);
        fill(&disk, 999);
        first.look().unwrap();
        let third = Space::open(Arc::new(disk.clone()), Path::new("e"), RESERVE_BYTES).unwrap();
        assert_eq!((first.state(), third.state()), (DiskSpace::Reserve, DiskSpace::Reserve));
        assert_eq!(disk.content(Path::new("e/reserve")).unwrap().len(), 0);
    }
}
