//! The file system of the operating system.

use super::{FileLock, Files, StoreFile};
use rustix::{fs::FallocateFlags, io::Errno};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Mode bits that give access to other users.
const MODE_OF_OTHERS: u32 = 0o077;

/// Real files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl RealFiles {
    /// Size of the disk that a directory is on, in bytes, without what is kept for root.
    pub fn capacity(self, directory: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(directory)?;
        Ok((disk.f_blocks - (disk.f_bfree - disk.f_bavail)) * disk.f_frsize)
    }
}

impl Files for RealFiles {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        self.create_directory(parent)?;
        match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !path.is_dir() => Err(error),
            _ => self.sync_directory(parent),
        }
    }

    fn make_private(&self, directory: &Path) -> io::Result<()> {
        restrict(directory, &fs::metadata(directory)?, DIRECTORY_MODE)?;
        for entry in fs::read_dir(directory)? {
            let (path, metadata) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
            if metadata.is_dir() {
                self.make_private(&path)?;
            } else if metadata.is_file() {
                restrict(&path, &metadata, FILE_MODE)?;
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(open(path, create)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn available(&self, directory: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(directory)?;
        Ok(disk.f_bavail * disk.f_frsize)
    }

    fn disk(&self, directory: &Path) -> io::Result<u64> {
        Ok(fs::metadata(directory)?.dev())
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        let file = open(path, true)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(Locked(file)))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Unlocked explicitly: after closing alone, a copy of the descriptor could still hold the lock,
/// such as one in a child of another thread between fork and exec.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(create).truncate(false).mode(FILE_MODE).open(path)
}

/// Sets the mode of a file if other users have access now: a file with the right mode need not
/// belong to this user.
fn restrict(path: &Path, metadata: &fs::Metadata, mode: u32) -> io::Result<()> {
    if metadata.mode() & MODE_OF_OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

impl StoreFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, length) {
            Err(Errno::OPNOTSUPP) => {
                let zeros = vec![0; 1 << 20];
                let pieces = (0..length).step_by(zeros.len());
                pieces.into_iter().try_for_each(|at| {
                    let bytes = zeros.len().min((length - at) as usize);
                    self.write_all_at(&zeros[..bytes], at)
                })
            }
            done => Ok(done?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
