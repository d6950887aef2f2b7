//! Term file of a switch agent: holds the newest metadata term, and is replaced atomically.
//!
//! ```text
//!   switch-term.new ── write ── fsync ── rename ──▶ switch-term ── fsync the directory ──▶ the agent accepts the term
//!   term (8 bytes, big-endian) │ checksum of it (CRC32C, big-endian)
//! ```
//!
//! With it, an agent refuses an older controller (R13) even after a restart. The tables are not
//! stored: they are soft state, which the metadata service installs again.

use nicekv_store::{DataDirectory, Files};
use nicekv_switch::control::TermStore;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

const FILE: &str = "switch-term";
const FILE_NEW: &str = "switch-term.new";
const FILE_BYTES: usize = 12;

/// Why the term could not be read.
#[derive(Debug, Error)]
pub enum TermFileError {
    /// Reading the file has failed.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file has another length, or its checksum does not match.
    #[error("{path} is damaged: remove it only if no older metadata service can be running", path = path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
    },
}

/// The term file of a data directory, which stays locked as long as this value exists.
pub struct TermFile {
    files: Arc<dyn Files>,
    directory: DataDirectory,
    term: u64,
}

impl TermFile {
    /// Reads the stored term; 0 if there is no file.
    pub fn open(files: Arc<dyn Files>, directory: DataDirectory) -> Result<Self, TermFileError> {
        let path = directory.path().join(FILE);
        let content = match files.open(&path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(TermFileError::Io { path, source }),
            Ok(file) => {
                let mut content = [0; FILE_BYTES];
                let read = file.length().and_then(|length| {
                    if length == FILE_BYTES as u64 { file.read_at(0, &mut content) } else { Ok(()) }
                });
                read.map_err(|source| TermFileError::Io { path: path.clone(), source })?;
                Some(content)
            }
        };
        let term =
            content.map_or(Some(0), |content| decode(&content)).ok_or(TermFileError::Damaged { path })?;
        Ok(Self { files, directory, term })
    }

    /// The newest term.
    pub fn term(&self) -> u64 {
        self.term
    }

    fn write(&self, term: u64) -> io::Result<()> {
        let (path, new) = (self.directory.path().join(FILE), self.directory.path().join(FILE_NEW));
        let file = self.files.open(&new, true)?;
        file.set_length(0)?;
        file.write_at(0, &encode(term))?;
        file.sync()?;
        self.files.rename(&new, &path)?;
        self.files.sync_directory(self.directory.path())
    }
}

impl TermStore for TermFile {
    fn store(&mut self, term: u64) -> Result<(), String> {
        let path = self.directory.path().join(FILE);
        self.write(term)
            .map_err(|error| format!("cannot remember term {term} in {}: {error}", path.display()))?;
        self.term = term;
        Ok(())
    }
}

fn encode(term: u64) -> [u8; FILE_BYTES] {
    let mut content = [0; FILE_BYTES];
    let term = term.to_be_bytes();
    content[..8].copy_from_slice(&term);
    content[8..].copy_from_slice(&crc32c::crc32c(&term).to_be_bytes());
    content
}

/// Decodes a term; `None` if the checksum does not match. All zeros do not match.
fn decode(content: &[u8; FILE_BYTES]) -> Option<u64> {
    let (term, checksum) = content.split_first_chunk::<8>()?;
    (crc32c::crc32c(term).to_be_bytes() == *checksum).then_some(u64::from_be_bytes(*term))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_store::files::PowerLoss;
    use nicekv_store::{Expected, Forgetful};
    use std::path::Path;

    fn open(files: &Arc<dyn Files>) -> Result<TermFile, TermFileError> {
        let expected =
            Expected { cluster_id: Some(1), owner: "switch", cluster_id_if_new: 1, storage_id_if_new: 2 };
        TermFile::open(files.clone(), DataDirectory::open(files, Path::new("/switch"), expected).unwrap())
    }

    fn path(name: &str) -> std::path::PathBuf {
        Path::new("/switch").join(name)
    }

    #[test]
    fn stored_term_survives_a_power_loss_at_any_page() {
        let disk = Forgetful::new(4);
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        assert_eq!(open(&files).unwrap().term(), 0, "a new directory has no term");
        for term in [1, 7, 0x0102_0304_0506_0708] {
            open(&files).unwrap().store(term).unwrap();
            disk.power_loss(PowerLoss::DropAll);
            assert_eq!(open(&files).unwrap().term(), term);
        }
    }

    #[test]
    fn unsynced_term_is_not_accepted() {
        let disk = Forgetful::new(4);
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let mut file = open(&files).unwrap();
        file.store(3).unwrap();
        disk.fail_next_sync(libc::EIO);
        assert!(file.store(4).unwrap_err().contains("term 4"));
        assert_eq!(file.term(), 3);
        drop(file);
        disk.power_loss(PowerLoss::DropAll);
        assert_eq!(open(&files).unwrap().term(), 3);
    }

    #[test]
    fn damaged_term_file_is_refused() {
        let disk = Forgetful::new(4096);
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        open(&files).unwrap().store(9).unwrap();
        let content = disk.content(&path(FILE)).unwrap();
        let mut flipped = content.clone();
        flipped[7] ^= 1;
        for damaged in [flipped, content[..11].to_vec(), vec![0; FILE_BYTES], Vec::new()] {
            disk.set_content(&path(FILE), damaged);
            assert!(matches!(open(&files), Err(TermFileError::Damaged { .. })));
        }
    }
}
