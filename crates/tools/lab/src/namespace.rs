//! Named network namespaces, as `ip netns` manages them.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use nicekv_cli::lab::NAMESPACE_DIRECTORY as DIRECTORY;

use crate::error::{LabError, Result};

/// Identifies a namespace while it exists: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|metadata| Self(metadata.dev(), metadata.ino()))
    }

    /// The namespace that a process is in; `None` once it has ended.
    pub(crate) fn of_process(pid: i32) -> Option<Self> {
        Self::of(Path::new(&format!("/proc/{pid}/ns/net")))
    }
}

/// A named network namespace, which need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    pub fn new(name: String) -> Self {
        Self { name }
    }

    /// All named namespaces on this machine.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let entries = match fs::read_dir(DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(LabError::io("list", Path::new(DIRECTORY)))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.map(Self::new).collect())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    pub(crate) fn exists(&self) -> bool {
        self.path().exists()
    }

    pub(crate) fn identity(&self) -> Option<Identity> {
        Identity::of(&self.path())
    }

    pub(crate) fn open(&self) -> Result<File> {
        File::open(self.path()).map_err(LabError::io("open", &self.path()))
    }

    /// Moves the calling thread, and the processes that it will start, into the namespace.
    pub fn enter(&self) -> Result<()> {
        enter(&self.open()?).map_err(LabError::io("enter", &self.path()))
    }

    /// Runs `work` on a new thread in the namespace. Sockets that it opens and processes that it
    /// starts stay in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Moves the calling thread into the namespace by a single system call, so it may be called between
/// fork and exec.
pub(crate) fn enter(namespace: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}
