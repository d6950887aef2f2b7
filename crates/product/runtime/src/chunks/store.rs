//! Chunk store of a target, on disk or in memory, and its thread.

use super::HeldChunk;
use super::memory::MemoryChunks;
use super::segments::SegmentChunks;
use crate::Waker;
use nicekv_objects::{Storage, StorageDone};
use nicekv_store::{Files, LogIdentity, StoreError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// Most bytes of chunks in a volatile store.
const MEMORY_BYTES: u64 = 1 << 30;
/// Disk space that chunks leave free.
const RESERVE_BYTES: u64 = 256 << 20;
/// With less free space, the disk counts as nearly full: then more live data is moved to reclaim
/// dead data.
const SHORT_BYTES: u64 = 128 << 20;
/// Interval at which an idle disk's free space is checked and dead space is reclaimed.
const IDLE: Duration = Duration::from_millis(200);

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum ChunkStoreError {
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The free space cannot be determined, or no thread is available.
    #[error("the disk of chunks: {0}")]
    Io(#[from] std::io::Error),
}

/// The report of the disk's thread.
pub enum Told {
    /// A request is complete.
    Done(StorageDone),
    /// Free space for chunks, in bytes.
    Free(u64),
    /// The disk has failed for good.
    Failed(ChunkStoreError),
}

/// Stores a target's chunks.
pub struct ChunkStore {
    kind: Kind,
    pace: Option<Pace>,
}

enum Kind {
    Memory(MemoryChunks),
    Segments(Box<SegmentChunks>, PathBuf),
}

/// Simulates a slower disk by delaying the completions of writes.
struct Pace {
    bytes_per_second: u64,
    /// Bytes written since the last delay.
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

impl ChunkStore {
    /// A volatile store, whose chunks are lost with the process.
    pub fn in_memory() -> Self {
        Self { kind: Kind::Memory(MemoryChunks::default()), pace: None }
    }

    /// A store of the segments in `directory`.
    ///
    /// # Errors
    /// The directory is unreadable, or belongs to another cluster or node.
    pub fn on_disk(
        files: Arc<dyn Files>,
        directory: &Path,
        identity: LogIdentity,
    ) -> Result<Self, ChunkStoreError> {
        let segments = SegmentChunks::open(files, directory, identity)?;
        Ok(Self { kind: Kind::Segments(Box::new(segments), directory.to_owned()), pace: None })
    }

    /// Limits the store to this many bytes per second, to compare disks of different speeds on one
    /// machine.
    #[must_use]
    pub fn limited(self, bytes_per_second: u64) -> Self {
        Self { pace: Some(Pace { bytes_per_second: bytes_per_second.max(1), written_bytes: 0 }), ..self }
    }

    pub(super) fn held(&self) -> Vec<HeldChunk> {
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

    /// Executes a request. Returns its result, unless it needs a sync: then [`Self::sync`] returns
    /// it.
    fn carry_out(&mut self, request: Storage) -> Result<Option<StorageDone>, ChunkStoreError> {
        if let Some(pace) = &mut self.pace {
            pace.note(&request);
        }
        Ok(match &mut self.kind {
            Kind::Memory(memory) => memory.carry_out(request),
            Kind::Segments(segments, _) => segments.carry_out(request)?,
        })
    }

    /// Syncs the chunks that were completed since the last sync. Returns their results.
    fn sync(&mut self) -> Result<Vec<StorageDone>, ChunkStoreError> {
        if let Some(pace) = &mut self.pace {
            pace.take_time();
        }
        Ok(match &mut self.kind {
            Kind::Memory(_) => Vec::new(),
            Kind::Segments(segments, _) => segments.sync()?,
        })
    }

    /// Reclaims some dead space. Returns whether there may be more.
    fn compact(&mut self) -> Result<bool, ChunkStoreError> {
        let free_bytes = self.free_bytes()?;
        let room = (free_bytes < SHORT_BYTES).then_some(free_bytes + RESERVE_BYTES / 2);
        Ok(match &mut self.kind {
            Kind::Memory(_) => false,
            Kind::Segments(segments, _) => segments.compact(room)?,
        })
    }
}

/// Handle of the thread that works on a store. Dropping it waits until all requests are done.
pub struct ChunkDisk {
    requests: Option<Sender<Storage>>,
    /// Reports of the thread, in any order; some are combined.
    pub told: Receiver<Told>,
    thread: Option<JoinHandle<()>>,
}

impl ChunkDisk {
    /// Starts the thread. `waker` is woken when there are reports.
    ///
    /// # Errors
    /// No thread is available.
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

    /// Sends a request. The target bounds the number of waiting requests by the memory that it
    /// reserves for transfers.
    ///
    /// # Panics
    /// Never: the thread runs until the handle is dropped.
    pub fn ask(&self, request: Storage) {
        // If the thread has failed, it has reported its failure.
        let _ = self.requests.as_ref().expect("until it is dropped").send(request);
    }
}

impl Drop for ChunkDisk {
    /// Waits until all requests are done, because another store may use the directory afterwards.
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
        // Without a request, compaction or other processes may have changed the free space.
        let mut has_changed = first.is_none();
        // Requests that have arrived meanwhile are synced together.
        for request in first.into_iter().chain(asked.try_iter()) {
            is_compacting |= matches!(request, Storage::Remove { .. } | Storage::Abandon { .. });
            has_changed |= matches!(request, Storage::Finish { .. });
            if let Some(done) = store.carry_out(request)? {
                let _ = tell.send(Told::Done(done));
                waker.wake();
            }
        }
        for done in store.sync()? {
            let _ = tell.send(Told::Done(done));
        }
        if has_changed {
            let _ = tell.send(Told::Free(store.free_bytes()?));
            waker.wake();
        }
    }
}
