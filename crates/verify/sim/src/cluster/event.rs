//! Events of a cluster, and what scripts see of an event before it happens.

use crate::disk::Busy;
use crate::network::Host;
use nicekv_metadata::{LeaseAnswer, LeaseRequest};
use nicekv_switch::control::{ControlReply, ControlRequest};
use std::net::SocketAddrV4;

#[derive(Clone)]
pub(super) enum Event {
    Arrive {
        to: Host,
        sender: Host,
        from: SocketAddrV4,
        bytes: Vec<u8>,
    },
    NodeTurn(usize),
    NodeStart(usize),
    DiskDone {
        node: usize,
        process: u64,
        busy: Box<Busy>,
    },
    Frame {
        connection: u64,
        to_acceptor: bool,
        bytes: Vec<u8>,
    },
    ClientTurn(usize),
    MetadataTurn(u64),
    MetadataStart,
    Persisted {
        process: u64,
        version: u64,
        bytes: Vec<u8>,
    },
    AgentDial(usize),
    ToAgent(u64, Box<ControlRequest>),
    FromAgent(u64, Box<ControlReply>),
    InstanceTurn {
        instance: usize,
        life: u64,
    },
    InstanceStart(usize),
    LeaseAsked {
        instance: usize,
        life: u64,
        number: u64,
        request: Box<LeaseRequest>,
    },
    LeaseAnswered {
        instance: usize,
        life: u64,
        number: u64,
        answer: Box<LeaseAnswer>,
    },
    Cut,
    Change,
    Keyspace,
    Reshape,
    /// A delayed message about hot keys reaches a switch; `None`: hot entries change.
    Hot(Option<Box<Late>>),
}

/// A delayed datagram that has not reached its first switch yet.
#[derive(Clone)]
pub(super) struct Late {
    pub(super) sender: Host,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) bytes: Vec<u8>,
}

/// An event that is about to happen, as scripts see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub host: Host,
    pub what: What<'a>,
}

/// The kind of a [`Seen`] event.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A datagram arrives.
    Datagram { sender: Host, bytes: &'a [u8] },
    /// A frame of a copying stream arrives.
    Frame(&'a [u8]),
    /// A process handles what has arrived, or checks its deadlines.
    Turn,
    /// A disk operation completes, or a write to the metadata service's store.
    Disk,
    /// A switch receives tables, or the metadata service their acknowledgement.
    Tables,
    /// Anything else: a process starts, a connection is attempted, a fault occurs.
    Other,
}
