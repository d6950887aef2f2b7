//! One partition at one node: the parts that own its state. What it does about events, the other modules say.

use super::chain::Hop;
use super::contents::Contents;
use super::joiner::{Former, Join};
use super::lead::Lead;
use super::locks::{Locks, WaitingGet};
use super::repairs::Repairs;
use super::reporting::Reporting;
use super::sequence::Sequence;
use super::waits::Waits;
use crate::modes::bounds::CLIENTS_BYTES_MAX;
use crate::modes::ordered::clients::Clients;
use crate::{Host, Membership};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::PartitionId;
use nicekv_proto::replication::Watermark;

/// One partition at one node, by multicast two-phase commit. See the module.
#[derive(Clone)]
pub(crate) struct OrderedPartition {
    /// The epoch.
    pub(crate) membership: Membership,
    /// Open ops, and the keys that they lock.
    pub(super) locks: Locks,
    /// Decisions.
    pub(super) sequence: Sequence,
    /// What has been decided of whom (R10).
    pub(super) clients: Clients,
    /// What is in the engine.
    pub(super) contents: Contents,
    /// What it held before it joined; none once it holds everything that it is to hold.
    pub(super) former: Option<Former>,
    /// Primary: its part of the epoch.
    pub(super) lead: Option<Lead>,
    /// Joiner: its copy.
    pub(super) join: Option<Join>,
    /// Other members: what the primary is to be told.
    pub(super) reporting: Reporting,
    /// Keys that cannot be read, or differ.
    pub(super) repairs: Repairs,
    /// Of a chain: the successor.
    pub(super) hop: Hop,
    /// What the disk is asked for.
    pub(super) waits: Waits,
    /// Whether this process knows that it holds what was confirmed before it started (R18).
    pub(super) is_proven: bool,
    /// Primary: gets that wait until it is.
    pub(super) awaiting_proof: Vec<(WaitingGet, Box<[u8]>)>,
}

impl OrderedPartition {
    pub(crate) fn outside(id: PartitionId, host: &Host) -> Self {
        Self {
            membership: Membership::outside(id),
            locks: Locks::new(id, host.map(), host.map()),
            sequence: Sequence::default(),
            clients: Clients::new(host.clients_bytes_max(CLIENTS_BYTES_MAX)),
            contents: Contents::new(id, host),
            former: None,
            lead: None,
            join: None,
            reporting: Reporting::default(),
            repairs: Repairs::default(),
            hop: Hop::default(),
            waits: Waits::default(),
            is_proven: false,
            awaiting_proof: Vec::new(),
        }
    }

    pub(super) fn id(&self) -> PartitionId {
        self.membership.partition
    }

    pub(super) fn is_primary(&self) -> bool {
        self.lead.is_some()
    }

    /// Whether another member has logged, or knows to be released, more than this one.
    pub(super) fn is_behind(&self, logged: u64, released: u64) -> bool {
        self.sequence.logged() < logged || self.sequence.released() < released
    }

    pub(super) fn watermark(&self) -> Watermark {
        Watermark {
            partition: self.id(),
            epoch: self.membership.epoch,
            base: self.sequence.base().unwrap_or(0),
            forced: if self.is_chain() { self.held_up_to_here() } else { self.sequence.released() },
            recovered: !self.is_chain() && self.is_recovered_wholly(),
        }
    }
}
