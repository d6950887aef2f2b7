//! An in-memory disk that loses unsynced writes, for tests and the simulator.
//!
//! ```text
//!   write ──▶ live ──sync──▶ durable          names: create/rename/remove ──▶ live
//!              │                 ▲                    sync_directory ──▶ durable
//!              └── power_loss ───┘  (keeps what the caller's choice says, of pages and of names)
//! ```
//!
//! A failed sync behaves as on Linux: the pages become clean without having been written, so a
//! later sync succeeds without writing them (docs/FAULTS.md row 8).

use super::{FileLock, Files, StoreFile};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

/// Fills a page that was never written, on file systems that do not clear pages.
const JUNK: u8 = 0xa5;

/// Unsynced writes that survive a power loss.
pub enum PowerLoss<'a> {
    /// Nothing.
    DropAll,
    /// All names, and at most this many of each file's unsynced bytes, from the first one on.
    KeepPrefix(usize),
    /// Every unsynced page, length and name for which the function returns true. A lost page keeps
    /// its old content; beyond the old end of the file it is zero, or junk if the function returns
    /// true again: not every file system promises zeros.
    KeepPages(&'a mut dyn FnMut() -> bool),
}

/// The disk; clones share it.
#[derive(Clone)]
pub struct Forgetful {
    disk: Arc<Mutex<Disk>>,
}

struct Disk {
    page_bytes: usize,
    live: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    durable: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    locks: BTreeSet<PathBuf>,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Default)]
struct Faults {
    next_sync_errno: Option<i32>,
    next_write: Option<(i32, usize)>,
    capacity: Option<u64>,
}

#[derive(Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty_pages: BTreeSet<usize>,
    /// First unsynced byte.
    dirty_from: Option<usize>,
    length_is_dirty: bool,
}

struct ForgetfulFile {
    content: Arc<Mutex<Content>>,
    disk: Arc<Mutex<Disk>>,
    faults: Arc<Mutex<Faults>>,
    page_bytes: usize,
}

struct ForgetfulLock {
    disk: Arc<Mutex<Disk>>,
    path: PathBuf,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock panics")
}

impl Forgetful {
    /// An empty disk that loses pages of `page_bytes`.
    pub fn new(page_bytes: usize) -> Self {
        assert!(page_bytes > 0);
        let disk = Disk {
            page_bytes,
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            locks: BTreeSet::new(),
            faults: Arc::default(),
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Makes the next [`StoreFile::sync`] fail with this errno and lose what it should have
    /// covered.
    pub fn fail_next_sync(&self, errno: i32) {
        locked(&locked(&self.disk).faults).next_sync_errno = Some(errno);
    }

    /// Makes the next write keep its first `bytes_kept` bytes and fail with this errno.
    pub fn fail_next_write(&self, errno: i32, bytes_kept: usize) {
        locked(&locked(&self.disk).faults).next_write = Some((errno, bytes_kept));
    }

    /// Bytes on the disk.
    pub fn used(&self) -> u64 {
        locked(&self.disk).used()
    }

    /// Limits the disk to this many bytes; `None`: unlimited. Existing content stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        locked(&locked(&self.disk).faults).capacity = bytes;
    }

    /// Power loss. Open files stay usable but are no longer on the disk; locks are released.
    pub fn power_loss(&self, mut choice: PowerLoss<'_>) {
        let mut disk = locked(&self.disk);
        let paths: BTreeSet<PathBuf> = disk.live.keys().chain(disk.durable.keys()).cloned().collect();
        let mut survivors = BTreeMap::new();
        for path in paths {
            let (live, durable) = (disk.live.get(&path), disk.durable.get(&path));
            let same = matches!((live, durable), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
            let keeps_live = !same
                && match &mut choice {
                    PowerLoss::DropAll => false,
                    PowerLoss::KeepPrefix(_) => true,
                    PowerLoss::KeepPages(keep) => keep(),
                };
            if let Some(content) = if keeps_live { live } else { durable } {
                let bytes = locked(content).after_power_loss(disk.page_bytes, &mut choice);
                survivors.insert(path, Arc::new(Mutex::new(Content::of(bytes))));
            }
        }
        disk.live.clone_from(&survivors);
        disk.durable = survivors;
        disk.locks.clear();
    }

    /// Content that a process would read now; `None` if the file does not exist.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        locked(&self.disk).live.get(path).map(|content| locked(content).live.clone())
    }

    /// Creates a file with durable content, as damage or an earlier program would have left it.
    pub fn set_content(&self, path: &Path, bytes: Vec<u8>) {
        let mut disk = locked(&self.disk);
        let content = Arc::new(Mutex::new(Content::of(bytes)));
        disk.live.insert(path.to_path_buf(), content.clone());
        disk.durable.insert(path.to_path_buf(), content);
    }

    /// An independent disk with the same live content, all of it durable: the state after a killed
    /// process, when the kernel has written everything back.
    pub fn copy(&self) -> Self {
        let disk = locked(&self.disk);
        let copy = Self::new(disk.page_bytes);
        for (path, content) in &disk.live {
            copy.set_content(path, locked(content).live.clone());
        }
        copy
    }
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        Self { live: bytes.clone(), durable: bytes, ..Self::default() }
    }

    fn mark_dirty(&mut self, page_bytes: usize, from: usize, to: usize) {
        if to > from {
            self.dirty_pages.extend(from / page_bytes..=(to - 1) / page_bytes);
            self.dirty_from = Some(self.dirty_from.map_or(from, |first| first.min(from)));
        }
    }

    fn set_length(&mut self, page_bytes: usize, length: usize) {
        let before = self.live.len();
        self.live.resize(length, 0);
        self.mark_dirty(page_bytes, before.min(length), before.max(length));
        self.length_is_dirty |= before != length;
    }

    /// Copies one page of `live` into `bytes`, growing it as needed.
    fn copy_page(&self, page_bytes: usize, page: usize, bytes: &mut Vec<u8>) {
        let from = page * page_bytes;
        let to = (from + page_bytes).min(self.live.len());
        if from < to {
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(&self.live[from..to]);
        }
    }

    fn sync(&mut self, page_bytes: usize) {
        let mut durable = std::mem::take(&mut self.durable);
        if self.length_is_dirty {
            durable.resize(self.live.len(), 0);
        }
        for &page in &self.dirty_pages {
            self.copy_page(page_bytes, page, &mut durable);
        }
        self.durable = durable;
        self.forget_dirt();
    }

    fn forget_dirt(&mut self) {
        self.dirty_pages.clear();
        self.dirty_from = None;
        self.length_is_dirty = false;
    }

    fn after_power_loss(&self, page_bytes: usize, choice: &mut PowerLoss<'_>) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        match choice {
            PowerLoss::DropAll => {}
            PowerLoss::KeepPrefix(kept) => {
                let from = self.dirty_from.unwrap_or(self.live.len()).min(self.live.len()).min(bytes.len());
                let to = self.live.len().min(from + *kept);
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].copy_from_slice(&self.live[from..to]);
            }
            PowerLoss::KeepPages(keep) => {
                if self.length_is_dirty && keep() {
                    bytes.resize(self.live.len(), 0);
                }
                for &page in &self.dirty_pages {
                    if keep() {
                        self.copy_page(page_bytes, page, &mut bytes);
                    } else if page * page_bytes >= self.durable.len() && keep() {
                        let to = bytes.len().min((page + 1) * page_bytes);
                        bytes[(page * page_bytes).min(to)..to].fill(JUNK);
                    }
                }
            }
        }
        bytes
    }
}

impl Disk {
    fn used(&self) -> u64 {
        self.live.values().map(|content| locked(content).live.len() as u64).sum()
    }

    fn available(&self) -> u64 {
        let capacity = locked(&self.faults).capacity;
        capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }
}

impl ForgetfulFile {
    /// Refuses a file of `length` bytes if the disk has no room.
    fn check_room(&self, length: usize) -> io::Result<()> {
        let available = locked(&self.disk).available();
        let growth = length.saturating_sub(locked(&self.content).live.len());
        if growth as u64 > available { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Files for Forgetful {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(()) // directories are implied by the names in them
    }

    fn make_private(&self, _directory: &Path) -> io::Result<()> {
        Ok(()) // nobody else can see it
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let disk = locked(&self.disk);
        let children = disk.live.keys().filter_map(|path| path.strip_prefix(directory).ok());
        let names: BTreeSet<String> = children
            .filter_map(|child| child.components().next())
            .map(|name| name.as_os_str().to_string_lossy().into_owned())
            .collect();
        Ok(names.into_iter().collect())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn StoreFile>> {
        let mut disk = locked(&self.disk);
        if create {
            disk.live.entry(path.to_path_buf()).or_default();
        }
        let content = disk.live.get(path).ok_or_else(not_found)?.clone();
        let (faults, page_bytes) = (disk.faults.clone(), disk.page_bytes);
        Ok(Arc::new(ForgetfulFile { content, disk: self.disk.clone(), faults, page_bytes }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = locked(&self.disk);
        let content = disk.live.remove(from).ok_or_else(not_found)?;
        disk.live.insert(to.to_path_buf(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        locked(&self.disk).live.remove(path).map(drop).ok_or_else(not_found)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut disk = locked(&self.disk);
        let is_child = |name: &PathBuf| name.parent() == Some(path);
        let children: Vec<_> = disk
            .live
            .iter()
            .filter(|(name, _)| is_child(name))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        disk.durable.retain(|name, _| !is_child(name));
        disk.durable.extend(children);
        Ok(())
    }

    fn available(&self, _directory: &Path) -> io::Result<u64> {
        Ok(locked(&self.disk).available())
    }

    fn disk(&self, _directory: &Path) -> io::Result<u64> {
        Ok(Arc::as_ptr(&self.disk).addr() as u64)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        let mut disk = locked(&self.disk);
        disk.live.entry(path.to_path_buf()).or_default();
        let is_free = disk.locks.insert(path.to_path_buf());
        let lock = || ForgetfulLock { disk: self.disk.clone(), path: path.to_path_buf() };
        Ok(is_free.then(|| Box::new(lock()) as FileLock))
    }
}

impl Drop for ForgetfulLock {
    fn drop(&mut self) {
        locked(&self.disk).locks.remove(&self.path);
    }
}

impl StoreFile for ForgetfulFile {
    fn length(&self) -> io::Result<u64> {
        Ok(locked(&self.content).live.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let content = locked(&self.content);
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let source = content.live.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let length = usize::try_from(offset).map_err(io::Error::other)? + bytes.len();
        self.check_room(length)?;
        let fault = locked(&self.faults).next_write.take();
        let kept = fault.map_or(bytes.len(), |(_, bytes_kept)| bytes_kept.min(bytes.len()));
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let mut content = locked(&self.content);
        if kept > 0 {
            if content.live.len() < from + kept {
                content.set_length(self.page_bytes, from + kept);
            }
            content.live[from..from + kept].copy_from_slice(&bytes[..kept]);
            content.mark_dirty(self.page_bytes, from, from + kept);
        }
        fault.map_or(Ok(()), |(errno, _)| Err(io::Error::from_raw_os_error(errno)))
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.check_room(usize::try_from(length).map_err(io::Error::other)?)?;
        self.set_length(length.max(self.length()?))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        locked(&self.content).set_length(self.page_bytes, length);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut content = locked(&self.content);
        if let Some(errno) = locked(&self.faults).next_sync_errno.take() {
            content.forget_dirt();
            return Err(io::Error::from_raw_os_error(errno));
        }
        content.sync(self.page_bytes);
        Ok(())
    }
}
