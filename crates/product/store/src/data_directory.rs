//! Data directory of a node or of the metadata service: a format file that identifies its owner,
//! and a lock.
//!
//! ```text
//!   nicekv-format              one `name value` a line, replaced as a whole (temporary file, fsync, rename,
//!     format 3                 fsync of the directory)
//!     cluster 00000000000000000000000000c0ffee
//!     storage 0000000000000000000000000000beef
//!     checksum 0badcafe        CRC32C of the lines above and below it
//!     owner node-0
//!   nicekv-lock                held as long as the process uses the directory; its content means nothing
//! ```
//!
//! Order of the checks: the lock first, so that a second process never reads a file that the first
//! one is writing. An accepted directory becomes private to its user, including files of earlier
//! releases.

use crate::{
    Result, StoreError,
    files::{FileLock, Files, read_all},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Format version of everything in the directory: this file, the log and the engine.
const FORMAT_VERSION: u32 = 3;
const FORMAT_FILE: &str = "nicekv-format";
const FORMAT_FILE_NEW: &str = "nicekv-format.new";
const LOCK_FILE: &str = "nicekv-lock";
/// Names that a data directory contains: if one is present without a format file, the format file
/// was lost.
const OWN_ENTRIES: [&str; 4] = ["engine", "metadata", "metadata-state", "switch-term"];
/// Entries that are allowed in a directory without a format file.
const HARMLESS_ENTRIES: [&str; 3] = [FORMAT_FILE_NEW, LOCK_FILE, "lost+found"];

/// Expected identity of a data directory, and ids (random, chosen by the caller) for a new one.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Required cluster id; `None` accepts any.
    pub cluster_id: Option<u128>,
    /// Required role or node name, a single line.
    pub owner: &'a str,
    /// Cluster id of a new directory if `cluster_id` is `None`.
    pub cluster_id_if_new: u128,
    /// Storage id of a new directory.
    pub storage_id_if_new: u128,
}

/// A data directory, locked until this is dropped.
pub struct DataDirectory {
    path: PathBuf,
    cluster_id: u128,
    storage_id: u128,
    is_new: bool,
    _lock: FileLock,
}

impl DataDirectory {
    /// Opens or creates the directory and takes its lock.
    pub fn open(files: &Arc<dyn Files>, path: &Path, expected: Expected<'_>) -> Result<Self> {
        assert!(!expected.owner.contains('\n'), "an owner is one line");
        let not_writable = |source| StoreError::NotWritable { path: path.to_path_buf(), source };
        files.create_directory(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => not_writable(io::Error::other("it is a file")),
            _ => not_writable(error),
        })?;
        // Before the lock file is created: a refused directory is left unchanged.
        if !has_format(&**files, path)?
            && refuse_foreign(&**files, path).is_err()
            && !has_format(&**files, path)?
        {
            refuse_foreign(&**files, path)?;
        }
        let lock = files.try_lock(&path.join(LOCK_FILE)).map_err(not_writable)?;
        let lock = lock.ok_or_else(|| StoreError::InUse { path: path.to_path_buf() })?;
        let (format, is_new) = match read_format(&**files, path)? {
            Some(format) => (format, false),
            None => {
                refuse_foreign(&**files, path)?;
                let format = Format {
                    cluster_id: expected.cluster_id.unwrap_or(expected.cluster_id_if_new),
                    storage_id: expected.storage_id_if_new,
                    owner: expected.owner.to_owned(),
                };
                write_format(&**files, path, &format).map_err(not_writable)?;
                (format, true)
            }
        };
        format.check(path, &expected)?;
        // Only now is it known to be a data directory: other directories keep their modes.
        let not_private = |source| StoreError::NotPrivate { path: path.to_path_buf(), source };
        files.make_private(path).map_err(not_private)?;
        let Format { cluster_id, storage_id, .. } = format;
        Ok(Self { path: path.to_path_buf(), cluster_id, storage_id, is_new, _lock: lock })
    }

    /// Refuses a directory that holds data, for processes that would neither read nor change it. A
    /// missing directory is accepted.
    pub fn refuse_data(files: &dyn Files, path: &Path) -> Result<()> {
        match files.open(&path.join(FORMAT_FILE), false) {
            Ok(_) => Err(StoreError::HoldsData { path: path.to_path_buf() }),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(())
            }
            Err(error) => Err(StoreError::io("open", &path.join(FORMAT_FILE))(error)),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster that it belongs to.
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }

    /// Distinguishes this directory from any other, even from an earlier one of the same node.
    pub fn storage_id(&self) -> u128 {
        self.storage_id
    }

    /// Whether [`DataDirectory::open`] has created it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Format {
    cluster_id: u128,
    storage_id: u128,
    owner: String,
}

impl Format {
    fn encode(&self) -> String {
        let (before, owner) = (self.before_checksum(), &self.owner);
        format!("{before}checksum {:08x}\nowner {owner}\n", self.checksum())
    }

    fn before_checksum(&self) -> String {
        format!(
            "format {FORMAT_VERSION}\ncluster {:032x}\nstorage {:032x}\n",
            self.cluster_id, self.storage_id
        )
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(self.before_checksum().as_bytes()), self.owner.as_bytes())
    }

    fn decode(path: &Path, text: &str) -> Result<Self> {
        let damaged = |reason| StoreError::FormatDamaged { path: path.to_path_buf(), reason };
        let mut lines = text.lines();
        let mut value = |name: &'static str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.ok_or(damaged("a line is missing"))
        };
        let version: u32 = value("format")?.parse().map_err(|_| damaged("its version is not a number"))?;
        if version > FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                path: path.to_path_buf(),
                found: version,
                known: FORMAT_VERSION,
            });
        }
        if version < FORMAT_VERSION {
            let (path, known) = (path.to_path_buf(), FORMAT_VERSION);
            return Err(StoreError::OlderFormat { path, found: version, known });
        }
        let cluster = value("cluster")?;
        let storage = value("storage")?;
        let _checksum = value("checksum")?;
        let hex = |digits| u128::from_str_radix(digits, 16).map_err(|_| damaged("an id is not hexadecimal"));
        let format =
            Self { cluster_id: hex(cluster)?, storage_id: hex(storage)?, owner: value("owner")?.to_owned() };
        // Comparing with a fresh encoding checks the checksum and refuses any other spelling.
        if format.encode() == text { Ok(format) } else { Err(damaged("its checksum does not match")) }
    }

    fn check(&self, path: &Path, expected: &Expected<'_>) -> Result<()> {
        if let Some(cluster_id) = expected.cluster_id
            && cluster_id != self.cluster_id
        {
            let (found, expected) = (self.cluster_id, cluster_id);
            return Err(StoreError::OtherCluster { path: path.to_path_buf(), found, expected });
        }
        if self.owner != expected.owner {
            let (found, expected) = (self.owner.clone(), expected.owner.to_owned());
            return Err(StoreError::OtherOwner { path: path.to_path_buf(), found, expected });
        }
        Ok(())
    }
}

fn has_format(files: &dyn Files, directory: &Path) -> Result<bool> {
    let path = directory.join(FORMAT_FILE);
    match files.open(&path, false) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io("open", &path)(error)),
    }
}

fn read_format(files: &dyn Files, directory: &Path) -> Result<Option<Format>> {
    let path = directory.join(FORMAT_FILE);
    let file = match files.open(&path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(StoreError::io("open", &path))?,
    };
    let mut content = Vec::new();
    read_all(&*file, &mut content).map_err(StoreError::io("read", &path))?;
    let damaged = |_| StoreError::FormatDamaged { path: path.clone(), reason: "it is not text" };
    Format::decode(&path, std::str::from_utf8(&content).map_err(damaged)?).map(Some)
}

fn write_format(files: &dyn Files, directory: &Path, format: &Format) -> io::Result<()> {
    let temporary = directory.join(FORMAT_FILE_NEW);
    let file = files.open(&temporary, true)?;
    file.set_length(0)?;
    file.write_at(0, format.encode().as_bytes())?;
    file.sync()?;
    files.rename(&temporary, &directory.join(FORMAT_FILE))?;
    files.sync_directory(directory)
}

/// Without a format file the directory must be empty: a node that lost the file must not start
/// afresh next to its data.
fn refuse_foreign(files: &dyn Files, directory: &Path) -> Result<()> {
    let entries = files.list(directory).map_err(StoreError::io("list", directory))?;
    if entries.iter().any(|entry| OWN_ENTRIES.contains(&entry.as_str())) {
        let (path, reason) = (directory.join(FORMAT_FILE), "it is missing, though there are data beside it");
        return Err(StoreError::FormatDamaged { path, reason });
    }
    match entries.into_iter().find(|entry| !HARMLESS_ENTRIES.contains(&entry.as_str())) {
        Some(entry) => Err(StoreError::NotADataDirectory { path: directory.to_path_buf(), entry }),
        None => Ok(()),
    }
}
