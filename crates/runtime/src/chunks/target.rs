//! The thread of a target: its core, its socket, and its disk's thread.

use super::collector::{Collector, ListNames, Listed};
use super::store::{ChunkStore, ChunkStoreError, Told, Worker};
use super::view::View;
use crate::{Stop, UdpEndpoint, Waker, now};
use nicekv_chunks::{Progress, Target, TargetConfig, To};
use nicekv_reservation::ConfigError;
use nicekv_wire::chunk::Round;
use std::io;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// How far it is, a target says so often.
const TELL_NS: u64 = 500_000_000;

/// Why a target ended, or does not begin.
#[derive(Debug, Error)]
pub enum TargetError {
    /// Its socket failed.
    #[error("the target's socket: {0}")]
    Io(#[from] io::Error),
    /// Its disk failed.
    #[error("the target's storage: {0}")]
    Storage(#[from] ChunkStoreError),
    /// Its windows cannot be.
    #[error("the target's windows: {0}")]
    Windows(#[from] ConfigError),
}

/// How far a target is, as other threads see it.
pub type SharedProgress = Arc<Mutex<Progress>>;

/// What a target works with.
pub struct TargetParts {
    /// Where its chunks are.
    pub store: ChunkStore,
    /// Bound to its address.
    pub endpoint: UdpEndpoint,
    /// What is known of the cluster.
    pub view: View,
    /// The view's.
    pub waker: Waker,
    /// How names of objects are listed.
    pub list: ListNames,
    /// Where it says how far it is.
    pub progress: SharedProgress,
}

/// A target that is ready to run.
pub struct ChunkTarget {
    core: Target,
    endpoint: UdpEndpoint,
    worker: Worker,
    view: View,
    collector: Collector,
    waker: Waker,
    progress: SharedProgress,
    told_ns: u64,
    /// All names of this round are listed.
    sweeping: Option<Round>,
}

impl ChunkTarget {
    /// Begins the threads beside it: the disk's, and the one that lists names.
    ///
    /// # Errors
    /// If its windows cannot be, or no threads can be had.
    pub fn new(
        name: &str,
        config: TargetConfig,
        stop: &Stop,
        parts: TargetParts,
    ) -> Result<Self, TargetError> {
        let TargetParts { store, endpoint, view, waker, list, progress } = parts;
        let free_bytes = store.free_bytes()?;
        let mut core = Target::new(config, store.held())?;
        core.set_free(free_bytes);
        let collector = Collector::begin(name, waker.clone(), stop.clone(), list)?;
        let worker = Worker::begin(name, store, waker.clone())?;
        stop.register(&waker);
        Ok(Self { core, endpoint, worker, view, collector, waker, progress, told_ns: 0, sweeping: None })
    }

    /// Runs until `stop`, or a failure.
    ///
    /// # Errors
    /// If its socket or its disk has failed.
    pub fn run(mut self, stop: &Stop) -> Result<(), TargetError> {
        while !self.view.end_with(stop) {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), TargetError> {
        let deadline_ns = self.core.next_deadline().min(self.told_ns + TELL_NS);
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
            self.core.set_map((*known.map).clone());
            self.core.set_round(known.round);
            if known.is_adopted && self.core.swept() < known.round {
                self.collector.want(known.round);
            }
        }
        self.collect();
        if self.core.next_deadline() <= now_ns {
            self.core.handle_deadline(now_ns);
        }
        while let Some(request) = self.core.poll_storage() {
            self.worker.ask(request);
        }
        let (core, endpoint) = (&mut self.core, &mut self.endpoint);
        endpoint.send_with(|out| next_send(core, out))?;
        self.tell(now_ns);
        Ok(())
    }

    /// Takes what names say. A sweep goes on with the next turn, so that others are served meanwhile.
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

    fn tell(&mut self, now_ns: u64) {
        if now_ns >= self.told_ns + TELL_NS {
            self.told_ns = now_ns;
            *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = self.core.progress();
        }
    }
}

/// Targets answer, and send to nobody else.
fn next_send(core: &mut Target, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
    loop {
        let send = core.poll_transmit()?;
        if let To::Host(address) = send.to {
            out.extend_from_slice(&send.bytes);
            return Some(address);
        }
    }
}
