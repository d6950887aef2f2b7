//! What a node's driver sees of a core (DESIGN §2, *Shape of a core*), whichever protocol it follows.

use crate::config::ReplicaConfig;
use crate::full::DiskSpace;
use crate::join::StreamPeer;
use crate::quorum::QuorumReplica;
use crate::replica::{Replica, ReplicaStatus};
use crate::storage::{StorageCompletion, StorageRequest};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_wire::quorum::Quorum;
use nicekv_wire::{DecodeError, Now};

/// A storage node as a pure state machine. After any `handle_*`, poll until everything returns `None`.
pub trait NodeCore {
    /// Takes up a record that was read back from the log, in the log's order, before anything else is handled.
    ///
    /// # Errors
    /// The record is not one of this release's, or of another protocol.
    fn replay(&mut self, now: Now, payload: &[u8]) -> Result<(), DecodeError>;
    /// A datagram arrived at the node's address.
    fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]);
    /// A storage request has been completed.
    fn handle_storage(&mut self, now: Now, completion: StorageCompletion<'_>);
    /// The deadline that [`Self::next_deadline`] named has passed (or not: then nothing happens).
    fn handle_deadline(&mut self, now: Now);
    /// The driver has no more input right now.
    fn handle_batch_end(&mut self, now: Now);
    /// A frame arrived on a copying stream.
    fn handle_stream(&mut self, now: Now, peer: StreamPeer, frame: &[u8]);
    /// Says from now on how much room the disk has. A driver that never calls this has enough.
    fn set_disk_space(&mut self, space: DiskSpace);
    /// The log has begun a new segment: writes the open state again, then lets go of what was before.
    fn checkpoint(&mut self);
    /// Writes the next datagram to `out`; returns where it goes.
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4>;
    /// The next storage request; to be executed before the next one is polled.
    fn poll_storage(&mut self) -> Option<StorageRequest<'_>>;
    /// The next frame for a copying stream.
    fn poll_stream(&mut self) -> Option<(StreamPeer, Vec<u8>)>;
    /// When to call [`Self::handle_deadline`], on the boot-time clock.
    fn next_deadline(&self) -> u64;
    /// For operators and tests.
    fn status(&self) -> ReplicaStatus;
}

/// The core of a node that has just started; `quorum`: of a quorum keyspace (R14).
pub fn new_core(config: ReplicaConfig, quorum: Option<Quorum>) -> Box<dyn NodeCore + Send> {
    match quorum {
        None => Box::new(Replica::new(config)),
        Some(quorum) => Box::new(QuorumReplica::new(config, quorum)),
    }
}

impl NodeCore for Replica {
    fn replay(&mut self, now: Now, payload: &[u8]) -> Result<(), DecodeError> {
        Self::replay(self, now, payload)
    }
    fn handle_datagram(&mut self, now: Now, from: SocketAddrV4, bytes: &[u8]) {
        Self::handle_datagram(self, now, from, bytes);
    }
    fn handle_storage(&mut self, now: Now, completion: StorageCompletion<'_>) {
        Self::handle_storage(self, now, completion);
    }
    fn handle_deadline(&mut self, now: Now) {
        Self::handle_deadline(self, now);
    }
    fn handle_batch_end(&mut self, now: Now) {
        Self::handle_batch_end(self, now);
    }
    fn handle_stream(&mut self, now: Now, peer: StreamPeer, frame: &[u8]) {
        Self::handle_stream(self, now, peer, frame);
    }
    fn set_disk_space(&mut self, space: DiskSpace) {
        Self::set_disk_space(self, space);
    }
    fn checkpoint(&mut self) {
        Self::checkpoint(self);
    }
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<SocketAddrV4> {
        Self::poll_transmit(self, out)
    }
    fn poll_storage(&mut self) -> Option<StorageRequest<'_>> {
        Self::poll_storage(self)
    }
    fn poll_stream(&mut self) -> Option<(StreamPeer, Vec<u8>)> {
        Self::poll_stream(self)
    }
    fn next_deadline(&self) -> u64 {
        Self::next_deadline(self)
    }
    fn status(&self) -> ReplicaStatus {
        Self::status(self)
    }
}
