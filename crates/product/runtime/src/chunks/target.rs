//! Thread of a target: runs its core and its socket, and uses its disk's thread.

use super::collector::{Collector, ListNames, Listed};
use super::gather::Gather;
use super::store::{ChunkDisk, ChunkStore, ChunkStoreError, Told};
use super::view::View;
use crate::{DatagramCounters, Stop, UdpEndpoint, Waker, now};
use nicekv_objects::reservation::ConfigError;
use nicekv_objects::{Progress, Target, TargetConfig, TargetCounters, TargetUsage};
use nicekv_proto::chunk::Round;
use nicekv_proto::placement::GroupRing;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Longest delay from an event until the changed state is published.
const SHOWN_NS: u64 = 100_000_000;

/// Why a target has failed, or cannot start.
#[derive(Debug, Error)]
pub enum TargetError {
    /// The target's socket has failed.
    #[error("the target's socket: {0}")]
    Io(#[from] io::Error),
    /// The target's disk has failed.
    #[error("the target's storage: {0}")]
    Storage(#[from] ChunkStoreError),
    /// The window parameters are invalid.
    #[error("the target's windows: {0}")]
    Windows(#[from] ConfigError),
}

/// Statistics of a target and its drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetObservation {
    /// Progress of chunk maintenance.
    pub progress: Progress,
    /// Counters of the core.
    pub counters: TargetCounters,
    /// Resources that the target has reserved for transfers.
    pub in_use: TargetUsage,
    /// Counters of the socket.
    pub datagrams: DatagramCounters,
}

/// Published state of a target: other threads read a recent copy without waiting for the target.
#[derive(Clone, Default)]
pub struct TargetWatch(Arc<Mutex<Option<TargetObservation>>>);

impl TargetWatch {
    /// The last published state; `None` before the target runs.
    pub fn get(&self) -> Option<TargetObservation> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Progress of maintenance; the default before the target runs.
    pub fn progress(&self) -> Progress {
        self.get().map(|told| told.progress).unwrap_or_default()
    }
}

/// Parameters of a target.
pub struct TargetParts {
    /// Chunk store.
    pub store: ChunkStore,
    /// Endpoint that is bound to the target's address.
    pub endpoint: UdpEndpoint,
    /// Group ring, which gives the addresses of other targets.
    pub ring: GroupRing,
    /// State of the cluster.
    pub view: View,
    /// The view's waker.
    pub waker: Waker,
    /// Lists object names.
    pub list: ListNames,
    /// Where its state is published.
    pub watch: TargetWatch,
}

/// A target that is ready to run.
pub struct ChunkTarget {
    core: Target,
    endpoint: UdpEndpoint,
    ring: GroupRing,
    watch: TargetWatch,
    /// When to publish the state next; `u64::MAX` if nothing has happened since the last time.
    shown_ns: u64,
    worker: ChunkDisk,
    gather: Gather,
    view: View,
    collector: Collector,
    /// The round that is being swept: all its names are listed.
    sweeping: Option<Round>,
    waker: Waker,
}

impl ChunkTarget {
    /// Creates a target and starts its other threads: the disk's, and the one that lists names.
    ///
    /// # Errors
    /// The window parameters are invalid, or no threads are available.
    pub fn new(
        name: &str,
        config: TargetConfig,
        stop: &Stop,
        parts: TargetParts,
    ) -> Result<Self, TargetError> {
        let TargetParts { store, endpoint, ring, view, waker, list, watch } = parts;
        let free_bytes = store.free_bytes()?;
        let mut core = Target::new(config, store.held())?;
        core.set_free(free_bytes);
        let collector = Collector::begin(name, waker.clone(), stop.clone(), list)?;
        let worker = ChunkDisk::begin(name, store, waker.clone())?;
        stop.register(&waker);
        let gather = Gather::default();
        let sweeping = None;
        Ok(Self {
            core,
            endpoint,
            ring,
            watch,
            shown_ns: 0,
            worker,
            gather,
            view,
            collector,
            sweeping,
            waker,
        })
    }

    /// Runs until `stop`, or a failure.
    ///
    /// # Errors
    /// The socket or the disk has failed.
    pub fn run(mut self, stop: &Stop) -> Result<(), TargetError> {
        while !self.view.end_with(stop) {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), TargetError> {
        let deadline_ns = self.core.next_deadline().min(self.shown_ns);
        let core = &mut self.core;
        super::receive(&mut self.endpoint, &self.waker, deadline_ns, |now_ns, message| {
            core.handle_datagram(now_ns, message.from, message.bytes);
        })?;
        self.waker.clear();
        let now_ns = now().boot_ns;
        while let Ok(told) = self.worker.told.try_recv() {
            match told {
                Told::Done(done) => self.core.handle_storage(now_ns, done),
                Told::Free(bytes) => self.core.set_free(bytes),
                Told::Failed(error) => return Err(error.into()),
            }
        }
        if let Some(known) = self.view.news() {
            self.core.set_map(now_ns, (*known.map).clone());
            self.core.set_round(known.round);
            self.core.set_copies(known.copies);
            if known.is_adopted && self.core.swept() < known.round {
                self.collector.want(known.round);
            }
        }
        self.collect();
        if self.core.next_deadline() <= now_ns {
            self.core.handle_deadline(now_ns);
        }
        let (gather, worker) = (&mut self.gather, &self.worker);
        while let Some(request) = self.core.poll_storage() {
            gather.take(request, |request| worker.ask(request));
        }
        let (core, ring) = (&mut self.core, &self.ring);
        self.endpoint.send_with(|out| {
            let send = core.poll_transmit(now_ns)?;
            out.extend_from_slice(&send.bytes);
            Some(super::address_of(ring, send.to))
        })?;
        self.show(now_ns);
        Ok(())
    }

    /// Processes a batch of listed names. A sweep continues in the next turn, so that requests are
    /// served in between.
    fn collect(&mut self) {
        if let Some(round) = self.sweeping.take()
            && !self.core.sweep(round)
        {
            (self.sweeping, _) = (Some(round), self.waker.wake());
        }
        while let Ok(listed) = self.collector.listed.try_recv() {
            match listed {
                Listed::Needs(round, ids) => drop(self.core.mark(round, &ids)),
                Listed::Whole(round) => (self.sweeping, _) = (Some(round), self.waker.wake()),
            }
        }
    }

    /// Publishes the state, at most once per [`SHOWN_NS`], because counting unsettled chunks takes
    /// time.
    fn show(&mut self, now_ns: u64) {
        if self.shown_ns == u64::MAX {
            self.shown_ns = now_ns + SHOWN_NS;
        } else if now_ns >= self.shown_ns {
            self.shown_ns = u64::MAX;
            let shown = TargetObservation {
                progress: self.core.progress(),
                counters: self.core.counters,
                in_use: self.core.usage(),
                datagrams: self.endpoint.counters(),
            };
            *self.watch.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        }
    }
}
