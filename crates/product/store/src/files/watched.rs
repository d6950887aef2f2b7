//! A file layer that reports each call to a watcher before and after, for tests of the order of
//! syncs.
//!
//! ```text
//!   log ──sync──▶ Watched ── Begins ─▶ watcher (may block, may refuse)
//!                    │ sync ──▶ the files below
//!                    └────── Ended ──▶ watcher
//! ```

use super::{FileLock, Files, StoreFile};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A call that matters for what survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// [`Files::open`] with `create`.
    Create,
    /// [`StoreFile::write_at`].
    Write,
    /// [`StoreFile::set_length`], [`StoreFile::allocate`].
    Resize,
    /// [`StoreFile::sync`].
    Sync,
    /// [`Files::rename`]; the path is the new one.
    Rename,
    /// [`Files::remove`].
    Remove,
    /// [`Files::sync_directory`].
    SyncDirectory,
}

/// When the watcher is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the call; an error replaces the call.
    Begins,
    /// After it has succeeded.
    Ended,
}

type Watcher = dyn Fn(Moment, FileCall, &Path) -> io::Result<()> + Send + Sync;

/// The watched layer.
#[derive(Clone)]
pub struct Watched {
    files: Arc<dyn Files>,
    watcher: Arc<Watcher>,
}

struct WatchedFile {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    watcher: Arc<Watcher>,
}

impl Watched {
    /// Wraps `files`; `watcher` runs on the thread that makes the call.
    pub fn new(
        files: Arc<dyn Files>,
        watcher: impl Fn(Moment, FileCall, &Path) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { files, watcher: Arc::new(watcher) }
    }
}

fn watch<T>(
    watcher: &Watcher,
    call: FileCall,
    path: &Path,
    make: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    watcher(Moment::Begins, call, path)?;
    let made = make()?;
    watcher(Moment::Ended, call, path)?;
    Ok(made)
}

impl Files for Watched {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }

    fn make_private(&self, directory: &Path) -> io::Result<()> {
        self.files.make_private(directory)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.files.list(directory)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn StoreFile>> {
        let open = || self.files.open(path, create);
        let file = if create { watch(&*self.watcher, FileCall::Create, path, open) } else { open() }?;
        Ok(Arc::new(WatchedFile { file, path: path.to_path_buf(), watcher: self.watcher.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        watch(&*self.watcher, FileCall::Rename, to, || self.files.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        watch(&*self.watcher, FileCall::Remove, path, || self.files.remove(path))
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        watch(&*self.watcher, FileCall::SyncDirectory, path, || self.files.sync_directory(path))
    }

    fn available(&self, directory: &Path) -> io::Result<u64> {
        self.files.available(directory)
    }

    fn disk(&self, directory: &Path) -> io::Result<u64> {
        self.files.disk(directory)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        self.files.try_lock(path)
    }
}

impl StoreFile for WatchedFile {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        watch(&*self.watcher, FileCall::Write, &self.path, || self.file.write_at(offset, bytes))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        watch(&*self.watcher, FileCall::Resize, &self.path, || self.file.set_length(length))
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        watch(&*self.watcher, FileCall::Resize, &self.path, || self.file.allocate(length))
    }

    fn sync(&self) -> io::Result<()> {
        watch(&*self.watcher, FileCall::Sync, &self.path, || self.file.sync())
    }
}
