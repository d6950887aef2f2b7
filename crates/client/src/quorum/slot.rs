//! One request under way: its datagram, and who holds what.

use crate::{OperationError, Outcome};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_wire::limits::MEMBERS_MAX;
use nicekv_wire::quorum::{Content, Quorum, QuorumHeld, QuorumQuery, QuorumStore, Timestamp};
use nicekv_wire::{Epoch, KeyDigest, KeyspaceId, NodeId, OpId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Asking,
    Storing,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Get,
    Set,
    Delete,
}

/// See the module. Buffers are kept for the next request.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) generation: u32,
    pub(super) kind: Kind,
    /// Its index is among those whose datagram is to be sent.
    pub(super) queued: bool,
    pub(super) op: OpId,
    digest: KeyDigest,
    key: Vec<u8>,
    /// Set: the value to store. Get: the value of the newest version seen.
    pub(super) value: Vec<u8>,
    /// The newest version seen; while storing, the one that is stored.
    newest: Timestamp,
    /// Whether the newest version seen has a value.
    pub(super) present: bool,
    epoch: Epoch,
    /// The newest version that each replica is known to hold durably, all in `epoch`. At most [`MEMBERS_MAX`].
    pub(super) held: Vec<(NodeId, Timestamp)>,
    /// Tries of this round so far.
    pub(super) attempts: u32,
    /// When the only datagram of this round was sent; `None` if there were several.
    pub(super) sent_ns: Option<u64>,
    pub(super) retry_ns: u64,
    pub(super) deadline_ns: u64,
    pub(super) destination: SocketAddrV4,
    /// The datagram of this round.
    pub(super) bytes: Vec<u8>,
    pub(super) result: Result<Outcome, OperationError>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            kind: Kind::Get,
            queued: false,
            op: OpId::NONE,
            digest: KeyDigest::default(),
            key: Vec::new(),
            value: Vec::new(),
            newest: Timestamp::NEVER,
            present: false,
            epoch: Epoch(0),
            held: Vec::with_capacity(MEMBERS_MAX),
            attempts: 0,
            sent_ns: None,
            retry_ns: 0,
            deadline_ns: 0,
            destination: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            bytes: Vec::new(),
            result: Err(OperationError::TimedOut),
        }
    }

    /// Begins a request: the datagram asks all replicas.
    pub(super) fn ask(
        &mut self,
        quorum: Quorum,
        kind: Kind,
        op: OpId,
        digest: KeyDigest,
        key: &[u8],
        value: &[u8],
    ) {
        (self.state, self.kind, self.op, self.digest) = (State::Asking, kind, op, digest);
        (self.newest, self.present, self.epoch) = (Timestamp::NEVER, false, Epoch(0));
        self.held.clear();
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(value);
        let wants_value = kind == Kind::Get;
        QuorumQuery { keyspace: KeyspaceId::DEFAULT, op, digest, reply_to: None, quorum, wants_value, key }
            .encode(&mut self.bytes);
    }

    /// Goes on to storing: a put under the timestamp after the newest, a get what it has read. False: there is no later timestamp.
    pub(super) fn store(&mut self, quorum: Quorum) -> bool {
        let (timestamp, value) = match self.kind {
            Kind::Get => (Some(self.newest), self.present.then_some(self.value.as_slice())),
            Kind::Set => (self.newest.next(self.op), Some(self.value.as_slice())),
            Kind::Delete => (self.newest.next(self.op), None),
        };
        let Some(timestamp) = timestamp else { return false };
        let Self { op, digest, ref key, .. } = *self;
        QuorumStore {
            keyspace: KeyspaceId::DEFAULT,
            op,
            digest,
            reply_to: None,
            quorum,
            timestamp,
            value,
            key,
        }
        .encode(&mut self.bytes);
        (self.state, self.newest) = (State::Storing, timestamp);
        true
    }

    /// Notes what a replica holds; false if that is of no use.
    pub(super) fn count(&mut self, held: &QuorumHeld<'_>, mixes_epochs: bool) -> bool {
        // A get asks for values: one that is missing is no answer to its question.
        if self.kind == Kind::Get && self.state == State::Asking && held.content == Content::Present {
            return false;
        }
        if !mixes_epochs {
            if held.epoch < self.epoch {
                return false;
            }
            if held.epoch > self.epoch {
                self.epoch = held.epoch;
                self.held.clear();
            }
        }
        match self.held.iter().position(|(node, _)| *node == held.node) {
            Some(at) => self.held[at].1 = self.held[at].1.max(held.timestamp),
            None if self.held.len() < MEMBERS_MAX => self.held.push((held.node, held.timestamp)),
            None => return false,
        }
        if self.state == State::Asking && held.timestamp > self.newest {
            self.newest = held.timestamp;
            self.present = held.content != Content::Absent;
            if let (Kind::Get, Content::Value(value)) = (self.kind, held.content) {
                self.value.clear();
                self.value.extend_from_slice(value);
            }
        }
        true
    }

    /// Replicas that hold the newest version, or a newer one.
    pub(super) fn holders(&self) -> usize {
        self.held.iter().filter(|(_, timestamp)| *timestamp >= self.newest).count()
    }

    pub(super) fn was_never_put(&self) -> bool {
        self.newest == Timestamp::NEVER
    }

    /// Of the value read or put; none if there is none now.
    pub(super) fn version(&self) -> OpId {
        match self.kind {
            Kind::Get if self.present => self.newest.op,
            Kind::Set => self.op,
            _ => OpId::NONE,
        }
    }
}
