//! The thread of a target: its core, its socket, and its disk's thread.

use super::store::{ChunkStore, ChunkStoreError, Told, Worker};
use super::view::View;
use crate::{Stop, UdpEndpoint, Waker, now};
use nicekv_chunks::{Target, TargetConfig, To};
use nicekv_reservation::ConfigError;
use std::io;
use std::net::SocketAddrV4;
use thiserror::Error;

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

/// A target that is ready to run.
pub struct ChunkTarget {
    core: Target,
    endpoint: UdpEndpoint,
    worker: Worker,
    view: View,
    waker: Waker,
}

impl ChunkTarget {
    /// Begins the threads beside it: the disk's, with `store`, and the view's, whose waker is `waker`. `endpoint` is bound to the target's address.
    ///
    /// # Errors
    /// If its windows cannot be, or no threads can be had.
    pub fn new(
        name: &str,
        config: TargetConfig,
        store: ChunkStore,
        endpoint: UdpEndpoint,
        view: View,
        waker: Waker,
    ) -> Result<Self, TargetError> {
        let free_bytes = store.free_bytes()?;
        let mut core = Target::new(config, store.held())?;
        core.set_free(free_bytes);
        let worker = Worker::begin(name, store, waker.clone())?;
        Ok(Self { core, endpoint, worker, view, waker })
    }

    /// Runs until `stop`, or a failure.
    ///
    /// # Errors
    /// If its socket or its disk has failed.
    pub fn run(mut self, stop: &Stop) -> Result<(), TargetError> {
        stop.register(&self.waker);
        while !self.view.end_with(stop) {
            self.turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), TargetError> {
        let (deadline_ns, core) = (self.core.next_deadline(), &mut self.core);
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
        }
        if self.core.next_deadline() <= now_ns {
            self.core.handle_deadline(now_ns);
        }
        while let Some(request) = self.core.poll_storage() {
            self.worker.ask(request);
        }
        let (core, endpoint) = (&mut self.core, &mut self.endpoint);
        endpoint.send_with(|out| next_send(core, out))?;
        Ok(())
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
