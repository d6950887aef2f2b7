//! The largest possible values, on an in-memory disk that stores only bytes other than zero, and
//! how much of a value is read to finish it.

use crate::common;

use common::values::{BLOCK, DIRECTORY, content, name, owner};
use nicekv_store::{
    Files, StoreError, ValueOptions, Values,
    files::{FileLock, StoreFile},
    values::VALUE_BYTES_MAX,
};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

const PAGE: u64 = 4_096;

#[derive(Clone, Default)]
struct Sparse {
    names: Arc<Mutex<BTreeMap<PathBuf, Arc<SparseFile>>>>,
    bytes_read: Arc<AtomicU64>,
}

struct SparseFile {
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    length: AtomicU64,
    bytes_read: Arc<AtomicU64>,
}

impl Files for Sparse {
    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn make_private(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, _directory: &Path) -> io::Result<Vec<String>> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        Ok(self.names.lock().unwrap().keys().map(name).collect())
    }
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn StoreFile>> {
        let mut names = self.names.lock().unwrap();
        if create && !names.contains_key(path) {
            let bytes_read = self.bytes_read.clone();
            let file = SparseFile { pages: Mutex::default(), length: AtomicU64::new(0), bytes_read };
            names.insert(path.to_path_buf(), Arc::new(file));
        }
        let file = names.get(path).ok_or(io::ErrorKind::NotFound)?.clone();
        Ok(file)
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.names.lock().unwrap().remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn available(&self, _directory: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    fn disk(&self, _directory: &Path) -> io::Result<u64> {
        Ok(0)
    }
    fn try_lock(&self, _path: &Path) -> io::Result<Option<FileLock>> {
        Ok(None)
    }
}

impl SparseFile {
    /// The parts of a range that are each within one page: page, offset in the page, offset in the
    /// range.
    fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let end = offset + bytes as u64;
        (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
            let (from, to) = (offset.max(page * PAGE), end.min((page + 1) * PAGE));
            (page, (from - page * PAGE) as usize, (from - offset) as usize..(to - offset) as usize)
        })
    }
}

impl StoreFile for SparseFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Relaxed))
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset + buffer.len() as u64 > self.length()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes_read.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let pages = self.pages.lock().unwrap();
        for (page, within, range) in Self::parts(offset, buffer.len()) {
            match pages.get(&page) {
                Some(bytes) => buffer[range.clone()].copy_from_slice(&bytes[within..within + range.len()]),
                None => buffer[range].fill(0),
            }
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.lock().unwrap();
        for (page, within, range) in Self::parts(offset, bytes.len()) {
            let part = &bytes[range];
            if pages.contains_key(&page) || part.iter().any(|byte| *byte != 0) {
                let page = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
                page[within..within + part.len()].copy_from_slice(part);
            }
        }
        self.length.fetch_max(offset + bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        assert_eq!(length % PAGE, 0, "segments end with a page");
        self.pages.lock().unwrap().retain(|page, _| *page < length / PAGE);
        self.length.store(length, Ordering::Relaxed);
        Ok(())
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.length.fetch_max(length, Ordering::Relaxed);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn open(disk: &Sparse) -> Values {
    let options = ValueOptions::default();
    Values::open(Arc::new(disk.clone()), Path::new(DIRECTORY), common::identity(), options).unwrap()
}

#[test]
fn largest_value_gets_its_own_segment() {
    let disk = Sparse::default();
    let mut values = open(&disk);
    let first = values.begin(name(1), owner(1), VALUE_BYTES_MAX).unwrap();
    let mut second = values.begin(name(2), owner(2), VALUE_BYTES_MAX).unwrap();
    assert!(matches!(values.begin(name(3), owner(3), 10), Err(StoreError::ValuesBusy { .. })));
    values.abandon(first).unwrap();
    assert_eq!(values.statistics().segments, 1);
    let tail = content(2, 100_000);
    let at = VALUE_BYTES_MAX - tail.len() as u64;
    values.write(&mut second, at, &tail).unwrap();
    assert!(matches!(values.write(&mut second, at + 1, &tail), Err(StoreError::ValueRange { .. })));
    values.finish(second).unwrap();
    values.sync_handle().sync().unwrap();
    let begun = values.begin(name(4), owner(4), 9_000).unwrap();
    values.finish(begun).unwrap();
    let statistics = values.statistics();
    let overhead = statistics.disk_bytes - VALUE_BYTES_MAX - (64 << 20);
    assert!(overhead < 64 << 10, "{overhead} bytes besides the value and a shared segment");
    drop(values);
    disk.bytes_read.store(0, Ordering::Relaxed);
    let mut values = open(&disk);
    let read = disk.bytes_read.load(Ordering::Relaxed);
    assert!(read < (64 << 20) + (64 << 10), "{read}: headers, the room of one segment, and the last value");
    let mut found = vec![0; tail.len()];
    values.read(name(2), at, &mut found).unwrap();
    assert!(found == tail);
    assert_eq!(values.length(name(2)).unwrap(), VALUE_BYTES_MAX);
    values.read(name(2), 1 << 20, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
    values.verify(name(2)).unwrap();
    values.remove(name(2)).unwrap();
    assert!(values.statistics().disk_bytes < 65 << 20);
}

#[test]
fn ordered_pieces_are_not_read_back() {
    let disk = Sparse::default();
    let mut values = open(&disk);
    let bytes = content(1, 8 * BLOCK + 333);
    let read_to_finish = |values: &mut Values, number: u64, order: &[usize]| {
        let mut writing = values.begin(name(number), owner(number), bytes.len() as u64).unwrap();
        for from in order {
            let piece = &bytes[*from..bytes.len().min(from + 8_900)];
            values.write(&mut writing, *from as u64, piece).unwrap();
        }
        let before = disk.bytes_read.load(Ordering::Relaxed);
        values.finish(writing).unwrap();
        let read = disk.bytes_read.load(Ordering::Relaxed) - before;
        values.verify(name(number)).unwrap();
        read as usize
    };
    let in_order: Vec<usize> = (0..bytes.len()).step_by(8_900).collect();
    assert_eq!(read_to_finish(&mut values, 1, &in_order), 0);
    let twice: Vec<usize> = in_order.iter().flat_map(|from| [*from, *from]).collect();
    assert_eq!(read_to_finish(&mut values, 2, &twice), 0, "repeated pieces are skipped");
    let mut late = in_order.clone();
    late.swap(10, 11);
    let read = read_to_finish(&mut values, 3, &late);
    assert!(read > 0 && read <= 2 * BLOCK, "{read} bytes: the rest of the block");
    let backwards: Vec<usize> = in_order.into_iter().rev().collect();
    let read = read_to_finish(&mut values, 4, &backwards);
    assert!(read > 0 && read <= bytes.len(), "{read} bytes");
}
