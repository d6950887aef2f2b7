//! State file of the metadata service, replaced atomically.
//!
//! ```text
//!   metadata-state.new ── write ── fsync ── rename ──▶ metadata-state ── fsync the directory
//!   checksum (CRC32C, big-endian) │ state
//! ```
//!
//! As soon as a state is written, space for the next one is reserved, so that a full disk does not
//! prevent the service from persisting steps.
//!
//! The directory's lock excludes other processes, so versions are compared in memory.

use nicekv_metadata::{StateError, StateStore, persisted_version};
use nicekv_store::{DataDirectory, Files, is_out_of_space};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

const FILE: &str = "metadata-state";
const FILE_NEW: &str = "metadata-state.new";
const CHECKSUM_BYTES: usize = 4;
/// Least space that is reserved for the next state; more if twice the current state is longer.
const SPACE_BYTES_MIN: u64 = 64 << 10;

/// Why the state could not be read or replaced.
#[derive(Debug, Error)]
pub enum StateFileError {
    /// The operating system has reported an error.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Io {
        /// Operation that has failed.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file's checksum does not match.
    #[error(
        "{path} is damaged; put it back from a copy, or begin with empty data directories and `nicekv restore` a backup",
        path = path.display()
    )]
    Damaged {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file's content is not a valid state.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another process has changed the state.
    #[error("the metadata state has version {found}, not {expected}: another metadata service leads")]
    VersionConflict {
        /// Version in the file.
        found: u64,
        /// Version that the service expected.
        expected: u64,
    },
}

impl StateFileError {
    /// Whether the cause is a full disk.
    pub(super) fn is_for_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_space(source))
    }
}

/// The state in a data directory, which stays locked as long as this value exists.
pub struct StateFile {
    files: Arc<dyn Files>,
    directory: DataDirectory,
    version: u64,
}

impl StateFile {
    /// The state in `directory`. Call [`StateStore::load`] first.
    pub fn new(files: Arc<dyn Files>, directory: DataDirectory) -> Self {
        Self { files, directory, version: 0 }
    }

    fn io(&self, operation: &'static str, name: &str) -> impl Fn(io::Error) -> StateFileError {
        let path = self.directory.path().join(name);
        move |source| StateFileError::Io { operation, path: path.clone(), source }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let (path, new) = (self.directory.path().join(FILE), self.directory.path().join(FILE_NEW));
        let file = self.files.open(&new, true)?;
        file.write_at(0, &crc32c::crc32c(bytes).to_be_bytes())?;
        file.write_at(CHECKSUM_BYTES as u64, bytes)?;
        file.set_length((CHECKSUM_BYTES + bytes.len()) as u64)?;
        file.sync()?;
        self.files.rename(&new, &path)?;
        self.files.sync_directory(self.directory.path())?;
        self.set_space_aside(bytes.len() as u64);
        Ok(())
    }

    /// Reserves space for the next state. Errors are ignored: if there is no space, the next write
    /// fails.
    fn set_space_aside(&self, length: u64) {
        if let Ok(file) = self.files.open(&self.directory.path().join(FILE_NEW), true) {
            let _ = file.allocate(SPACE_BYTES_MIN.max(2 * length));
        }
    }
}

/// Reads the current state in a directory, even if another process has locked it. `None`: there is
/// no state.
pub fn peek(directory: &Path) -> Result<Option<Vec<u8>>, StateFileError> {
    let path = directory.join(FILE);
    match std::fs::read(&path) {
        Ok(content) => checked(&content, &path).map(Some),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(StateFileError::Io { operation: "read", path, source }),
    }
}

fn checked(content: &[u8], path: &Path) -> Result<Vec<u8>, StateFileError> {
    let damaged = || StateFileError::Damaged { path: path.to_owned() };
    let (checksum, bytes) = content.split_first_chunk::<CHECKSUM_BYTES>().ok_or_else(damaged)?;
    if u32::from_be_bytes(*checksum) != crc32c::crc32c(bytes) {
        return Err(damaged());
    }
    Ok(bytes.to_vec())
}

impl StateStore for StateFile {
    type Error = StateFileError;

    fn load(&mut self) -> Result<Option<Vec<u8>>, StateFileError> {
        let file = match self.files.open(&self.directory.path().join(FILE), false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(self.io("open", FILE))?,
        };
        let length = file.length().map_err(self.io("read", FILE))?;
        self.set_space_aside(length);
        let mut content = vec![0; length as usize];
        file.read_at(0, &mut content).map_err(self.io("read", FILE))?;
        let bytes = checked(&content, &self.directory.path().join(FILE))?;
        self.version = persisted_version(&bytes)?;
        Ok(Some(bytes))
    }

    fn compare_and_swap(&mut self, expected_version: u64, bytes: &[u8]) -> Result<(), StateFileError> {
        let version = persisted_version(bytes)?;
        if self.version != expected_version {
            return Err(StateFileError::VersionConflict { found: self.version, expected: expected_version });
        }
        self.write(bytes).map_err(self.io("write", FILE))?;
        self.version = version;
        Ok(())
    }

    /// The directory stays locked as long as the process exists, even while it is paused.
    fn exclusive_until_ns(&self) -> u64 {
        u64::MAX
    }
}

/// A state that is lost with the process (memory engine).
#[derive(Debug, Default)]
pub struct MemoryState;

impl StateStore for MemoryState {
    type Error = std::convert::Infallible;

    fn load(&mut self) -> Result<Option<Vec<u8>>, Self::Error> {
        Ok(None)
    }

    fn compare_and_swap(&mut self, _: u64, _: &[u8]) -> Result<(), Self::Error> {
        Ok(())
    }

    fn exclusive_until_ns(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nicekv_metadata::{
        Balancing, Config, LINK_BITS_PER_SECOND, Metadata, NodeConfig, StorageRequest, SwitchId, Timing,
    };
    use nicekv_proto::placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase};
    use nicekv_proto::{KeyspaceId, NodeId};
    use nicekv_store::files::{FileCall, Moment, PowerLoss, Watched};
    use nicekv_store::{Expected, Forgetful, RealFiles};

    /// A configuration of one node and one switch.
    pub(in crate::metadata) fn config() -> Config {
        let node = NodeConfig {
            id: NodeId(1),
            name: "node-1".into(),
            address: "127.20.0.1:7400".parse().unwrap(),
            mac: [2; 6],
            switch_port: 1,
            home: None,
        };
        Config {
            cluster: 7,
            nodes: vec![node],
            keyspaces: vec![KeyspaceSpec::of(&KeyspaceDefaults {
                id: KeyspaceId::DEFAULT,
                replicas: 1,
                partitions: 16,
                rings: RingsBase::Loopback,
            })],
            port: 7400,
            group_ring: None,
            matching: Default::default(),
            link_bits_per_second: LINK_BITS_PER_SECOND,
            balancing: Balancing::None,
            switches: vec![SwitchId(0)],
            services: Vec::new(),
            topology: Default::default(),
            timing: Timing::default(),
            hot: Default::default(),
        }
    }

    fn states() -> Vec<(u64, Vec<u8>)> {
        let mut states: Vec<(u64, Vec<u8>)> = Vec::new();
        for _ in 0..2 {
            let before = states.last().map(|(_, bytes)| bytes.as_slice());
            let mut core = Metadata::new(config(), before, Default::default()).unwrap();
            let StorageRequest::Persist { version, bytes } = core.poll_storage().unwrap();
            states.push((version, bytes));
        }
        states
    }

    fn open(path: &std::path::Path) -> StateFile {
        let files: Arc<dyn Files> = Arc::new(RealFiles);
        let expected =
            Expected { cluster_id: Some(7), owner: "metadata", cluster_id_if_new: 7, storage_id_if_new: 1 };
        StateFile::new(files.clone(), DataDirectory::open(&files, path, expected).unwrap())
    }

    #[test]
    fn only_the_next_version_replaces_a_step() {
        let directory = tempfile::tempdir().unwrap();
        let [(first_version, first), (_, second)] = states().try_into().unwrap();
        let mut file = open(directory.path());
        assert_eq!(file.load().unwrap(), None);
        file.compare_and_swap(0, &first).unwrap();
        drop(file);

        let mut file = open(directory.path());
        assert_eq!(file.load().unwrap(), Some(first.clone()));
        let conflict = file.compare_and_swap(first_version + 1, &second);
        assert!(matches!(conflict, Err(StateFileError::VersionConflict { .. })), "{conflict:?}");
        assert_eq!(file.load().unwrap(), Some(first));
        file.compare_and_swap(first_version, &second).unwrap();
        assert_eq!(file.load().unwrap(), Some(second));

        let path = directory.path().join(FILE);
        let mut content = std::fs::read(&path).unwrap();
        content[9] ^= 1;
        std::fs::write(&path, content).unwrap();
        assert!(matches!(file.load(), Err(StateFileError::Damaged { .. })));
    }

    fn on(files: Arc<dyn Files>) -> StateFile {
        let expected =
            Expected { cluster_id: Some(7), owner: "metadata", cluster_id_if_new: 7, storage_id_if_new: 1 };
        let directory = DataDirectory::open(&files, std::path::Path::new("/metadata"), expected).unwrap();
        StateFile::new(files, directory)
    }

    #[test]
    fn persisted_step_survives_a_power_loss() {
        let [(version, first), (_, second)] = states().try_into().unwrap();
        let disk = Forgetful::new(64);
        for (expected, step) in [(0, &first), (version, &second)] {
            let mut file = on(Arc::new(disk.clone()));
            file.load().unwrap();
            file.compare_and_swap(expected, step).unwrap();
            drop(file);
            disk.power_loss(PowerLoss::DropAll);
            assert_eq!(on(Arc::new(disk.clone())).load().unwrap().as_ref(), Some(step));
        }
    }

    #[test]
    fn a_step_is_persisted_on_a_full_disk() {
        let [(version, first), (_, second)] = states().try_into().unwrap();
        let disk = Forgetful::new(64);
        let mut file = on(Arc::new(disk.clone()));
        file.load().unwrap();
        file.compare_and_swap(0, &first).unwrap();
        disk.set_capacity(Some(disk.used()));
        file.compare_and_swap(version, &second).unwrap();
        assert_eq!(file.load().unwrap(), Some(second));
    }

    #[test]
    fn a_power_loss_at_any_call_leaves_one_step_or_the_other() {
        let [(version, first), (_, second)] = states().try_into().unwrap();
        for survivors in [false, true] {
            for calls in 0.. {
                let disk = Forgetful::new(64);
                let mut file = on(Arc::new(disk.clone()));
                file.load().unwrap();
                file.compare_and_swap(0, &first).unwrap();
                drop(file);
                let left = std::sync::atomic::AtomicUsize::new(calls);
                let dying = Watched::new(Arc::new(disk.clone()), move |moment, call, path| {
                    let ours =
                        path.to_string_lossy().contains("metadata-state") || call == FileCall::SyncDirectory;
                    let counts = ours && moment == Moment::Begins;
                    let order = std::sync::atomic::Ordering::Relaxed;
                    if counts && left.fetch_update(order, order, |left| left.checked_sub(1)).is_err() {
                        return Err(io::Error::other("no power"));
                    }
                    Ok(())
                });
                let mut file = on(Arc::new(dying));
                file.load().unwrap();
                let swapped = file.compare_and_swap(version, &second);
                drop(file);
                disk.power_loss(PowerLoss::KeepPages(&mut || survivors));
                let found = on(Arc::new(disk.clone())).load().unwrap().unwrap();
                assert!(found == second || (swapped.is_err() && found == first), "after {calls} calls");
                if swapped.is_ok() {
                    assert!(calls >= 6, "create, two writes, cut, sync, rename, sync of the directory");
                    break;
                }
            }
        }
    }
}
