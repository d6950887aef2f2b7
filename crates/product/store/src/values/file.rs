//! Open files of segments, limited in number.

use super::format::segment_name;
use crate::{
    Result, StoreError,
    files::{Files, StoreFile},
};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Maximum segments kept open for later use; readers and writers may hold more.
pub const OPEN_SEGMENTS_MAX: usize = 16;

/// An open segment. Its holders can read it even after it is removed.
pub(super) struct ValueFile {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
}

impl ValueFile {
    pub(super) fn open(files: &dyn Files, directory: &Path, number: u64, create: bool) -> Result<Self> {
        let path = directory.join(segment_name(number));
        let operation = if create { "create" } else { "open" };
        let file = files.open(&path, create).map_err(StoreError::io(operation, &path))?;
        Ok(Self { file, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn length(&self) -> Result<u64> {
        self.file.length().map_err(StoreError::io("read", &self.path))
    }

    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, buffer).map_err(StoreError::io("read", &self.path))
    }

    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes).map_err(StoreError::io("write", &self.path))
    }

    pub(super) fn allocate(&self, length: u64) -> Result<()> {
        self.file.allocate(length).map_err(StoreError::io("allocate", &self.path))
    }

    pub(super) fn set_length(&self, length: u64) -> Result<()> {
        self.file.set_length(length).map_err(StoreError::io("truncate", &self.path))
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync().map_err(StoreError::io("sync", &self.path))
    }
}

/// Most recently used files, oldest first.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: Mutex<VecDeque<(u64, Arc<ValueFile>)>>,
}

impl OpenFiles {
    /// The file with this number; `open` opens it if needed.
    pub(super) fn get(
        &self,
        number: u64,
        open: impl FnOnce() -> Result<ValueFile>,
    ) -> Result<Arc<ValueFile>> {
        let mut files = self.files.lock().expect("no holder of this lock panics");
        let file = match files.iter().position(|(other, _)| *other == number) {
            Some(at) => files.remove(at).expect("it was just found").1,
            None => Arc::new(open()?),
        };
        if files.len() == OPEN_SEGMENTS_MAX {
            files.pop_front();
        }
        files.push_back((number, file.clone()));
        Ok(file)
    }

    /// The file was removed.
    pub(super) fn forget(&self, number: u64) {
        self.files.lock().expect("no holder of this lock panics").retain(|(other, _)| *other != number);
    }
}
