//! The thread of the metadata service: its core, UDP towards nodes, TCP towards switch agents and operators.
//!
//! ```text
//!  nodes ◀── UDP ──▶ ┌──────────┐ ──Persist──▶ StateFile (compare, write, force, rename)
//!                    │ Metadata │
//!  agents ◀─ TCP ──▶ └──────────┘ ◀─ TCP ──▶ admin commands
//! ```
//!
//! A step is persisted before anything that follows from it leaves (R13): the core yields it only after
//! [`Metadata::handle_storage`].

mod connections;
mod state_file;

pub use state_file::{MemoryState, StateFile, StateFileError};

use crate::inquiry::{Inquirer, Inquiries};
use crate::{DatagramCounters, PollFd, Stop, UdpEndpoint, Waker, is_ready, now, readable, wait};
use connections::Connections;
use nicekv_metadata::{Metadata, Persisted, StateStore, Status, StorageRequest, SwitchId};
use nicekv_wire::Durations;
use std::io;
use std::net::TcpListener;
use thiserror::Error;

/// Batches received before anything is decided.
const RECEIVE_ROUNDS_MAX: usize = 8;

/// Why the metadata service ended.
#[derive(Debug, Error)]
pub enum MetadataError {
    /// Its sockets failed.
    #[error("the metadata service's sockets: {0}")]
    Io(#[from] io::Error),
    /// A step could not be persisted.
    #[error("the metadata service's state: {0}")]
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

/// What the metadata service says of itself and of the cluster.
#[derive(Clone, Debug)]
pub struct MetadataObservation {
    /// Of the cluster.
    pub status: Status,
    /// How long it took to persist its steps.
    pub persists: Durations,
    /// What its socket has moved.
    pub datagrams: DatagramCounters,
}

/// Where the metadata service may be asked.
pub type MetadataInquirer = Inquirer<(), MetadataObservation>;

/// A metadata service that is ready to run.
pub struct MetadataService<S> {
    core: Metadata,
    store: S,
    endpoint: UdpEndpoint,
    listeners: Vec<TcpListener>,
    connections: Connections,
    inquiries: Inquiries<(), MetadataObservation>,
    persists: Durations,
}

impl<S: StateStore<Error: Into<Box<dyn std::error::Error + Send + Sync>>>> MetadataService<S> {
    /// `core` was made of what `store` had; `endpoint` is for nodes, `listeners` for agents (with their names) and operators.
    pub fn new(
        core: Metadata,
        store: S,
        endpoint: UdpEndpoint,
        listeners: Vec<TcpListener>,
        switches: Vec<(String, SwitchId)>,
    ) -> Self {
        let (connections, inquiries) = (Connections::new(switches), Inquiries::default());
        Self { core, store, endpoint, listeners, connections, inquiries, persists: Durations::default() }
    }

    /// Where other threads may ask it.
    pub fn inquirer(&self) -> MetadataInquirer {
        self.inquiries.inquirer()
    }

    /// Serves until `stop`, or a failure.
    pub fn run(mut self, stop: &Stop) -> Result<(), MetadataError> {
        let waker = Waker::new()?;
        stop.register(&waker);
        self.inquiries.begin(&waker);
        while !stop.is_stopped() {
            self.sleep(&waker)?;
            waker.clear();
            let now = now();
            self.core.handle_leadership(now, self.store.exclusive_until_ns());
            for _ in 0..RECEIVE_ROUNDS_MAX {
                // After they were received: of a process that was paused before, leases would seem to have been granted earlier.
                let (core, mut received_at) = (&mut self.core, None);
                let more = self.endpoint.receive(|message| {
                    let now = *received_at.get_or_insert_with(crate::now);
                    core.handle_datagram(now, message.from, message.bytes);
                })?;
                if !more {
                    break;
                }
            }
            let now = crate::now();
            for listener in &self.listeners {
                self.connections.accept(now, listener)?;
            }
            self.connections.receive(now, &mut self.core);
            if self.core.next_deadline().is_some_and(|deadline_ns| deadline_ns <= now.boot_ns) {
                self.core.handle_deadline(now);
            }
            self.decide()?;
            self.endpoint.send_with(|out| self.core.poll_transmit(out))?;
            self.connections.send(now, &mut self.core);
            self.inquiries.answer(|()| MetadataObservation {
                status: self.core.status(),
                persists: self.persists,
                datagrams: self.endpoint.counters(),
            });
        }
        Ok(())
    }

    fn sleep(&mut self, waker: &Waker) -> io::Result<()> {
        let fixed = [readable(&self.endpoint), readable(waker)];
        let listeners = self.listeners.iter().map(readable);
        let mut descriptors: Vec<PollFd<'_>> =
            fixed.into_iter().chain(listeners).chain(self.connections.interests()).collect();
        wait(&mut descriptors, self.core.next_deadline())?;
        let ready: Vec<bool> = descriptors[2 + self.listeners.len()..].iter().map(is_ready).collect();
        drop(descriptors);
        self.connections.note_ready(&ready);
        Ok(())
    }

    /// Decides until there is nothing to persist any more.
    fn decide(&mut self) -> Result<(), MetadataError> {
        loop {
            self.core.handle_batch_end(now());
            let Some(StorageRequest::Persist { version, bytes }) = self.core.poll_storage() else {
                return Ok(());
            };
            let began = now();
            let persisted = self.store.compare_and_swap(version - 1, &bytes);
            self.persists.count_ns(now().boot_ns - began.boot_ns);
            persisted.map_err(|error| MetadataError::Storage(error.into()))?;
            self.core.handle_storage(now(), Persisted { version });
        }
    }
}
