//! Versions that a departing member has synced, and that its successor must hold before they are
//! acknowledged to clients (see `succession`).

use super::version::{Version, Waiter};
use crate::DiskSpace;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use nicekv_proto::NodeId;

/// Departing member: the versions that the successor has not confirmed to hold.
#[derive(Clone, Default)]
pub(super) struct Entrusting {
    pub(super) successor: Option<NodeId>,
    /// By serial number, which is their log order.
    pub(super) held: BTreeMap<u64, Synced>,
    pub(super) serial: u64,
}

/// A version whose log record is synced.
#[derive(Clone)]
pub(super) struct Synced {
    pub(super) record: u64,
    pub(super) key: Box<[u8]>,
    pub(super) version: Version,
    pub(super) waiters: Vec<Waiter>,
    pub(super) asked_ns: u64,
    pub(super) tries: u32,
}

impl Synced {
    pub(super) fn new(record: u64, key: Box<[u8]>, version: Version, waiters: Vec<Waiter>) -> Self {
        Self { record, key, version, waiters, asked_ns: 0, tries: 0 }
    }
}

/// Whether the disk has room for a version. The reserve is for deletions only.
pub(super) fn has_room(space: DiskSpace, is_deletion: bool) -> bool {
    match space {
        DiskSpace::Enough => true,
        DiskSpace::Reserve => is_deletion,
        DiskSpace::Exhausted => false,
    }
}
