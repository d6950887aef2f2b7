//! Where a target's chunks are: in segments on a disk, or in memory; and the thread that works there.

use super::memory::MemoryChunks;
use super::segments::SegmentChunks;
use crate::Waker;
use nicekv_objects::{Storage, StorageDone};
use nicekv_proto::NodeId;
use nicekv_proto::chunk::ChunkId;
use nicekv_store::{Files, LogIdentity, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// What memory is promised to chunks where there is no disk.
const MEMORY_BYTES: u64 = 1 << 30;
/// So much of a disk is left to others.
const RESERVE_BYTES: u64 = 256 << 20;
/// With less than that for chunks the disk is nearly full: more is worth moving to give back what is dead.
const SHORT_BYTES: u64 = 128 << 20;
/// An idle disk gives back what is dead, and is looked at, so often.
const IDLE: Duration = Duration::from_millis(200);

/// Why chunks cannot be kept.
#[derive(Debug, Error)]
pub enum ChunkStoreError {
    /// By the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk does not say what is free, or no thread can be had.
    #[error("the disk of chunks: {0}")]
    Io(#[from] std::io::Error),
}

/// What the disk has done, or has become.
pub enum Told {
    /// What was asked for.
    Done(StorageDone),
    /// So much may be written.
    Free(u64),
    /// It has failed, for good.
    Failed(ChunkStoreError),
}

/// See the module.
pub struct ChunkStore {
    kind: Kind,
    pace: Option<Pace>,
}

enum Kind {
    Memory(MemoryChunks),
    Segments(Box<SegmentChunks>, PathBuf),
}

/// A disk that is slower than it is: what was written takes so long before anything is told of it.
struct Pace {
    bytes_per_second: u64,
    /// Since it took its time last.
    written_bytes: u64,
}

impl Pace {
    fn note(&mut self, request: &Storage) {
        if let Storage::Write { bytes, .. } = request {
            self.written_bytes += bytes.len() as u64;
        }
    }

    fn take_time(&mut self) {
        let seconds = std::mem::take(&mut self.written_bytes) as f64 / self.bytes_per_second as f64;
        std::thread::sleep(Duration::from_secs_f64(seconds));
    }
}

/// What is held.
pub(super) type OnDisk = Vec<(ChunkId, u32, Vec<NodeId>)>;

impl ChunkStore {
    /// In memory: nothing survives the process.
    pub fn in_memory() -> Self {
        Self { kind: Kind::Memory(MemoryChunks::default()), pace: None }
    }

    /// In segments in `directory`, with what is there.
    ///
    /// # Errors
    /// If it cannot be read, or is of another cluster or node.
    pub fn on_disk(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
    ) -> Result<Self, ChunkStoreError> {
        let segments = SegmentChunks::open(files, directory, identity)?;
        Ok(Self { kind: Kind::Segments(Box::new(segments), directory.to_owned()), pace: None })
    }

    /// The same, as if the disk wrote no more than so many bytes a second: for comparisons of disks of different speeds on a machine that has one.
    #[must_use]
    pub fn limited(self, bytes_per_second: u64) -> Self {
        Self { pace: Some(Pace { bytes_per_second: bytes_per_second.max(1), written_bytes: 0 }), ..self }
    }

    pub(super) fn held(&self) -> OnDisk {
        match &self.kind {
            Kind::Memory(memory) => memory.held(),
            Kind::Segments(segments, _) => segments.held(),
        }
    }

    pub(super) fn free_bytes(&self) -> Result<u64, ChunkStoreError> {
        Ok(match &self.kind {
            Kind::Memory(memory) => MEMORY_BYTES.saturating_sub(memory.bytes()),
            Kind::Segments(_, directory) => {
                let space = rustix::fs::statvfs(directory).map_err(std::io::Error::from)?;
                (space.f_bavail * space.f_frsize).saturating_sub(RESERVE_BYTES)
            }
        })
    }

    /// Carries out what can be at once; what is to be forced is told of by [`Self::force`].
    fn carry_out(&mut self, request: Storage) -> Result<Option<StorageDone>, ChunkStoreError> {
        if let Some(pace) = &mut self.pace {
            pace.note(&request);
        }
        Ok(match &mut self.kind {
            Kind::Memory(memory) => memory.carry_out(request),
            Kind::Segments(segments, _) => segments.carry_out(request)?,
        })
    }

    /// Forces all that has come to its end since.
    fn force(&mut self) -> Result<Vec<StorageDone>, ChunkStoreError> {
        if let Some(pace) = &mut self.pace {
            pace.take_time();
        }
        Ok(match &mut self.kind {
            Kind::Memory(_) => Vec::new(),
            Kind::Segments(segments, _) => segments.force()?,
        })
    }

    /// Gives back some of what is dead. Whether there is more.
    fn compact(&mut self) -> Result<bool, ChunkStoreError> {
        let free_bytes = self.free_bytes()?;
        let room = (free_bytes < SHORT_BYTES).then_some(free_bytes + RESERVE_BYTES / 2);
        Ok(match &mut self.kind {
            Kind::Memory(_) => false,
            Kind::Segments(segments, _) => segments.compact(room)?,
        })
    }
}

/// The thread that works on a store, as its target has it. It ends, when all is done, with this.
pub struct ChunkDisk {
    requests: Option<Sender<Storage>>,
    /// What it has done, in no order; some of it after others, together.
    pub told: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
}

impl ChunkDisk {
    /// Starts it. `waker` is woken when there is something to be told.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn begin(name: &str, store: ChunkStore, waker: Waker) -> std::io::Result<Self> {
        let (requests, asked) = channel();
        let (tell, told) = channel();
        let work = move || {
            if let Err(error) = work(store, &asked, &tell, &waker) {
                let _ = tell.send(Told::Failed(error));
                waker.wake();
            }
        };
        let thread = std::thread::Builder::new().name(format!("{name}-disk")).spawn(work)?;
        Ok(Self { requests: Some(requests), told, thread: Some(thread) })
    }

    /// Asks for something. What is promised memory bounds what waits here.
    ///
    /// # Panics
    /// Never: there is somebody to be asked until it is dropped.
    pub fn ask(&self, request: Storage) {
        // If it has failed it has told so.
        let _ = self.requests.as_ref().expect("until it is dropped").send(request);
    }
}

impl Drop for ChunkDisk {
    /// Waits until what was asked for is done: the directory may be another one's then.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(
    mut store: ChunkStore,
    asked: &Receiver<Storage>,
    tell: &Sender<Told>,
    waker: &Waker,
) -> Result<(), ChunkStoreError> {
    let mut is_compacting = true;
    loop {
        let first = match asked.recv_timeout(if is_compacting { Duration::ZERO } else { IDLE }) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        is_compacting = first.is_none() && store.compact()?;
        // Only then is there more room, or less, than was promised.
        let mut has_changed = first.is_none();
        // All that has come meanwhile is forced together.
        for request in first.into_iter().chain(asked.try_iter()) {
            is_compacting |= matches!(request, Storage::Remove { .. } | Storage::Abandon { .. });
            has_changed |= matches!(request, Storage::Finish { .. });
            if let Some(done) = store.carry_out(request)? {
                let _ = tell.send(Told::Done(done));
                waker.wake();
            }
        }
        for done in store.force()? {
            let _ = tell.send(Told::Done(done));
        }
        if has_changed {
            let _ = tell.send(Told::Free(store.free_bytes()?));
            waker.wake();
        }
    }
}
