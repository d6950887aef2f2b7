//! Versions that a member that leaves has forced, and that its successor is to hold before they are told: see `succession`.

use super::version::{Version, Waiter};
use crate::DiskSpace;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::NodeId;

/// Of who leaves: what is forced here, and not known to be held by its successor.
#[derive(Clone, Default)]
pub(super) struct Entrusting {
    pub(super) successor: Option<NodeId>,
    /// In the order of the log.
    pub(super) held: BTreeMap<u64, Forced>,
    pub(super) serial: u64,
}

/// A version whose record is forced.
#[derive(Clone)]
pub(super) struct Forced {
    pub(super) record: u64,
    pub(super) key: Box<[u8]>,
    pub(super) version: Version,
    pub(super) waiters: Vec<Waiter>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
}

impl Forced {
    pub(super) fn new(record: u64, key: Box<[u8]>, version: Version, waiters: Vec<Waiter>) -> Self {
        Self { record, key, version, waiters, asked_ns: 0, tries: 0 }
    }
}

/// Whether the disk has room for a version.
pub(super) fn has_room(space: DiskSpace, is_deletion: bool) -> bool {
    match space {
        DiskSpace::Enough => true,
        DiskSpace::Reserve => is_deletion,
        DiskSpace::Exhausted => false,
    }
}
