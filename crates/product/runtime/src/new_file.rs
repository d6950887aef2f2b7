//! Files that commands write: created under a temporary name, and renamed when they are complete.
//!
//! ```text
//!   create ─▶ .NAME.nicekv-new, locked ─▶ write … ─▶ finish: synced, renamed to NAME
//!                     │ error, SIGINT, SIGTERM, SIGHUP
//!                     ▼
//!                  removed; NAME is unchanged
//! ```
//!
//! If a process is killed (`kill -9`, power loss), its temporary file is left behind without a
//! lock, and the next process that writes the same target replaces it. A locked temporary file
//! means that another process is writing the target, so a second writer is refused.
//!
//! An existing target that is not a regular file (a terminal, a pipe, `/dev/null`) is written
//! directly. Symbolic links are followed.

use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// File mode, before the umask applies.
const MODE_OF_ANY: u32 = 0o666;
const MODE_OF_PRIVATE: u32 = 0o600;
/// Attempts to lock the temporary file, which another process may be renaming, before it counts as
/// busy.
const TRIES_MAX: usize = 8;

/// Temporary files to remove if a signal ends the process.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file that is being written. It is removed if it is dropped before [`Self::finish`].
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// Temporary and final path; `None` if the target is written directly.
    places: Option<(PathBuf, PathBuf)>,
}

impl NewFile {
    /// Starts a file that will replace the one at `path`, if any. The mode of an existing file is
    /// kept.
    ///
    /// # Errors
    /// Another process is writing the same file, or the directory is not writable.
    pub fn create(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).open(path)?;
                Ok(Self { file, places: None })
            }
            Ok(there) => {
                refuse_foreign_link(path)?;
                let created = Self::create_with(&fs::canonicalize(path)?, MODE_OF_ANY)?;
                created.file.set_permissions(fs::Permissions::from_mode(there.mode() & 0o7777))?;
                Ok(created)
            }
            Err(_) => Self::create_with(path, MODE_OF_ANY),
        }
    }

    /// Like [`Self::create`], for a file that only its owner can read.
    ///
    /// # Errors
    /// See [`Self::create`].
    pub fn create_private(path: &Path) -> io::Result<Self> {
        let created = Self::create_with(path, MODE_OF_PRIVATE)?;
        created.file.set_permissions(fs::Permissions::from_mode(MODE_OF_PRIVATE))?;
        Ok(created)
    }

    fn create_with(path: &Path, mode: u32) -> io::Result<Self> {
        let beside = beside(path)?;
        // Locked until the file is registered, so that a signal handler finds both or neither.
        let mut unfinished = unfinished();
        for _ in 0..TRIES_MAX {
            let Some(file) = open(&beside, mode)? else { continue };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Another process may have renamed the file before it was locked here.
            let (ours, here) = (file.metadata()?, fs::symlink_metadata(&beside));
            if here.is_ok_and(|here| (here.dev(), here.ino()) == (ours.dev(), ours.ino())) {
                unfinished.push(beside.clone());
                drop(unfinished);
                let created = Self { file, places: Some((beside, path.to_owned())) };
                created.file.set_len(0)?;
                return Ok(created);
            }
        }
        let why = format!("another process is writing it ({} is locked)", beside.display());
        Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Temporary path; empty if the target is written directly.
    pub fn path(&self) -> &Path {
        self.places.as_ref().map_or(Path::new(""), |(beside, _)| beside)
    }

    /// Syncs the file and renames it to its final path, replacing an existing file.
    ///
    /// # Errors
    /// A disk error. The new file is removed then, and the existing one is unchanged.
    pub fn finish(self) -> io::Result<()> {
        self.finish_by(|beside, path| fs::rename(beside, path))
    }

    /// Syncs the file and renames it to its final path, unless a file exists there.
    ///
    /// # Errors
    /// As [`Self::finish`], or a file exists at the final path.
    pub fn finish_new(self) -> io::Result<()> {
        self.finish_by(|beside, path| {
            let here = rustix::fs::CWD;
            match renameat_with(here, beside, here, path, RenameFlags::NOREPLACE) {
                // Not every file system supports `RENAME_NOREPLACE`.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if !path.exists() => {
                    fs::rename(beside, path)
                }
                renamed => Ok(renamed?),
            }
        })
    }

    fn finish_by(mut self, rename: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
        let Some((beside, path)) = &self.places else { return Ok(()) };
        self.file.sync_all()?;
        let mut unfinished = unfinished();
        rename(beside, path)?;
        unfinished.retain(|other| other != beside);
        drop(unfinished);
        self.places = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.places {
            // The file is still locked, so no other process uses it.
            let mut unfinished = unfinished();
            let _ = fs::remove_file(beside);
            unfinished.retain(|other| other != beside);
        }
    }
}

/// Replaces a whole file; on an error, it is unchanged.
///
/// # Errors
/// See [`NewFile::create`] and [`NewFile::finish`].
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = NewFile::create(path)?;
    new.file().write_all(bytes)?;
    new.finish()
}

/// From now on SIGINT, SIGTERM and SIGHUP remove unfinished files before they end the process. For
/// commands without signal handlers of their own.
///
/// # Errors
/// No thread is available.
pub fn remove_unfinished_on_signals() -> io::Result<()> {
    static BEGUN: Once = Once::new();
    let mut outcome = Ok(());
    BEGUN.call_once(|| outcome = begin_to_listen());
    outcome
}

fn begin_to_listen() -> io::Result<()> {
    // A SIGHUP that is ignored (`nohup`) stays ignored.
    let is_of_terminal = |signal: &i32| *signal != SIGHUP || !is_ignored(*signal);
    let signals = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_of_terminal);
    let mut signals = signal_hook::iterator::Signals::new(signals)?;
    std::thread::Builder::new().name("unfinished".into()).spawn(move || {
        for signal in signals.forever() {
            // Locked until the process ends, so that no file is finished meanwhile.
            let unfinished = unfinished();
            unfinished.iter().for_each(|path| drop(fs::remove_file(path)));
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Like the kernel's `protected_symlinks`: does not follow another user's link in a world-writable
/// directory.
fn refuse_foreign_link(path: &Path) -> io::Result<()> {
    let link = fs::symlink_metadata(path)?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = fs::metadata(directory.unwrap_or(Path::new(".")))?;
    let is_for_all = directory.mode() & 0o1002 == 0o1002;
    let ours = [rustix::process::geteuid().as_raw(), directory.uid()];
    if link.is_symlink() && is_for_all && !ours.contains(&link.uid()) {
        let why = "it is a symbolic link of another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Opens a new temporary file, or one that an earlier process of this user has left. `None`: it has
/// just disappeared.
fn open(path: &Path, mode: u32) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(mode).custom_flags(libc::O_NOFOLLOW);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created.map(Some),
    }
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(file) if file.metadata()?.uid() != rustix::process::geteuid().as_raw() => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is another user's: remove it", path.display()),
        )),
        opened => opened.map(Some),
    }
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other("this names no file"))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(".nicekv-new");
    Ok(path.with_file_name(beside))
}

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        write_whole(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let new = NewFile::create(&path).unwrap();
        new.file().write_all(b"half").unwrap();
        assert_eq!(names(scratch.path()), [".out.nicekv-new", "out"]);
        let busy = NewFile::create(&path).unwrap_err();
        assert!(busy.to_string().contains("another process is writing it"), "{busy}");
        drop(new);
        assert_eq!((names(scratch.path()), fs::read(&path).unwrap()), (vec!["out".into()], b"old".to_vec()));
        write_whole(&path, b"new").unwrap();
        assert_eq!((names(scratch.path()), fs::read(&path).unwrap()), (vec!["out".into()], b"new".to_vec()));
        assert_eq!(
            fs::metadata(&path).unwrap().mode() & 0o777,
            0o640,
            "the mode of the existing file is kept"
        );
    }

    #[test]
    fn leftovers_of_a_killed_process_are_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        fs::write(scratch.path().join(".out.nicekv-new"), "half of a long one").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!((names(scratch.path()), fs::read(&path).unwrap()), (vec!["out".into()], b"new".to_vec()));
    }

    #[test]
    fn finish_new_replaces_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let new = NewFile::create_private(&path).unwrap();
        fs::write(&path, "there meanwhile").unwrap();
        assert_eq!(new.finish_new().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(scratch.path()), ["out"]);
        let new = NewFile::create_private(&scratch.path().join("other")).unwrap();
        new.finish_new().unwrap();
        assert_eq!(fs::metadata(scratch.path().join("other")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn links_are_followed_and_devices_are_written_to() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, link) = (scratch.path().join("out"), scratch.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        write_whole(Path::new("/dev/null"), b"gone").unwrap();
        assert_eq!(names(scratch.path()), ["link", "out"]);
    }
}
