//! File layer: the file system operations that the log and the data directory need, with the
//! durability that POSIX promises.
//!
//! - Written bytes survive a power loss only after [`StoreFile::sync`] returned `Ok`; before that any subset of
//!   the written pages may.
//! - A created, renamed or removed name survives only after [`Files::sync_directory`].
//! - After a failed sync the state of the bytes that it should have covered is unknown, and a later
//!   successful sync does not change that.
//!
//! New files are private: mode 0600, directories 0700, regardless of the umask.

mod forgetful;
mod real;
mod watched;

pub use forgetful::{Forgetful, PowerLoss};
pub use real::RealFiles;
pub use watched::{FileCall, Moment, Watched};

use std::{any::Any, io, path::Path, sync::Arc};

/// A file system.
pub trait Files: Send + Sync {
    /// Creates a directory and its parents, durably; an existing one is no error.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory and everything below it private to its user. Does not follow links.
    fn make_private(&self, directory: &Path) -> io::Result<()>;
    /// Names of the entries of a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Opens a file to read and write; `create` creates a missing one.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn StoreFile>>;
    /// Renames a file, replacing any file with the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Free bytes for files in a directory.
    fn available(&self, directory: &Path) -> io::Result<u64>;
    /// Device number of a directory: directories with the same number share its space.
    fn disk(&self, directory: &Path) -> io::Result<u64>;
    /// Takes the exclusive lock of a file, creating it; `None` if it is held. Released when
    /// dropped.
    fn try_lock(&self, path: &Path) -> io::Result<Option<FileLock>>;
}

/// A held lock.
pub type FileLock = Box<dyn Any + Send + Sync>;

/// An open file. Methods take `&self`, since one thread appends while another syncs.
pub trait StoreFile: Send + Sync {
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset`; an error if the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`. After an error an unknown part of them is written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates or extends the file to `length` bytes.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Extends the file to `length` bytes, with allocated space.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Makes everything written before the call durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// The whole content of a file, into a reusable buffer.
pub(crate) fn read_all(file: &dyn StoreFile, content: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    content.clear();
    content.resize(length, 0);
    file.read_at(0, content)
}
