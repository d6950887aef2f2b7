//! Only one command at a time changes a lab.
//!
//! The lock is an `flock` on a file. Every tool that a command runs has the file open as its
//! standard input, and so has a process between fork and exec. So when a command is killed, the
//! lock becomes free only after everything that it has started has ended, or is detached *inside*
//! its namespace. The next holder never runs beside tools of the previous one.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::scope::Scope;

/// Interval at which a taken lock is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Timeout for another command to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The lock of a lab, held until it is dropped.
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of a lab. Waits for the command that holds it.
    pub(crate) fn take(scope: &Scope) -> Result<Self> {
        Self::take_within(scope, LOCK_TIMEOUT)
    }

    /// The same with another timeout than [`LOCK_TIMEOUT`].
    pub(crate) fn take_within(scope: &Scope, timeout: Duration) -> Result<Self> {
        let directory = Scope::run_directory();
        fs::create_dir_all(directory).map_err(LabError::io("create", directory))?;
        let deadline = Instant::now() + timeout;
        loop {
            let lock = Self::open(scope)?;
            match lock.file.try_lock() {
                Ok(()) if lock.is_current() => return Ok(lock),
                // The last holder has removed this file: open the new one.
                Ok(()) => continue,
                Err(TryLockError::Error(error)) => return Err(LabError::io("lock", &lock.path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Err(LabError::Busy),
                Err(TryLockError::WouldBlock) => std::thread::sleep(RETRY_PAUSE),
            }
        }
    }

    fn open(scope: &Scope) -> Result<Self> {
        let path = scope.lock_file();
        let file = File::options().create(true).truncate(false).write(true).read(true).open(&path);
        Ok(Self { file: file.map_err(LabError::io("open", &path))?, path })
    }

    fn is_current(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// The lock's file as standard input of a tool, which must end before another command may take
    /// the lock.
    pub(crate) fn share(&self) -> Result<Stdio> {
        Ok(self.file.try_clone().map_err(LabError::io("share", &self.path))?.into())
    }

    /// Releases the lock and removes its file.
    pub(crate) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(LabError::io("remove", &self.path))
    }
}
