//! Events of a cluster, and the part of them that scripts can wait for.

use crate::disk::Busy;
use crate::network::Host;
use nicekv_metadata::{SeatAnswer, SeatRequest};
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
    SeatAsked {
        instance: usize,
        life: u64,
        number: u64,
        request: Box<SeatRequest>,
    },
    SeatAnswered {
        instance: usize,
        life: u64,
        number: u64,
        answer: Box<SeatAnswer>,
    },
    Cut,
    Change,
    Keyspace,
    Reshape,
    /// Something said to a switch of hot keys arrives late; or entries change.
    Hot(Option<Box<Late>>),
}

/// A datagram that has not met the first switch yet.
#[derive(Clone)]
pub(super) struct Late {
    pub(super) sender: Host,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) bytes: Vec<u8>,
}

/// An event that is about to happen, for those who wait for one.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Where.
    pub host: Host,
    /// What.
    pub what: What<'a>,
}

/// See [`Seen`].
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A datagram arrives.
    Datagram {
        /// Who sent it.
        sender: Host,
        /// What it is.
        bytes: &'a [u8],
    },
    /// A frame of a copying stream arrives.
    Frame(&'a [u8]),
    /// A process takes what has arrived, or looks for what is overdue.
    Turn,
    /// A disk is done with something; or the metadata's store.
    Disk,
    /// Tables, or the acknowledgement of some, arrive.
    Tables,
    /// A process starts; a connection is tried; a fault.
    Other,
}
