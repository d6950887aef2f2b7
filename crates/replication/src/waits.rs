//! What a partition waits for from its disk, in the order in which the disk completes.

use crate::copy::PendingScan;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddrV4;
use nicekv_wire::{Epoch, NodeId, OpId};

/// What a read of the engine was for.
#[derive(Clone)]
pub(crate) enum PendingRead {
    /// To answer a get.
    Get { op: OpId, reply_to: SocketAddrV4, key: Box<[u8]> },
    /// To evaluate the next op of a key.
    Evaluate { key: Box<[u8]> },
    /// For a member that cannot read the key; `asked` is its request's `logged` and `released`.
    Repair { epoch: Epoch, to: NodeId, asked: (u64, u64), key: Box<[u8]> },
}

/// A log record whose force somebody waits for.
#[derive(Clone)]
pub(crate) struct Unforced {
    pub(crate) record: u64,
    /// The partition's resets so far: what was appended before a reset is void.
    pub(crate) resets: u64,
    pub(crate) what: UnforcedWhat,
}

#[derive(Clone)]
pub(crate) enum UnforcedWhat {
    Prepare(OpId),
    Decision(u64),
    /// All that a joiner copies.
    Copy,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Waits {
    pub(crate) reads: VecDeque<(u64, PendingRead)>,
    pub(crate) scans: VecDeque<PendingScan>,
    pub(crate) unforced: VecDeque<Unforced>,
}

impl Waits {
    pub(crate) fn finish_read(&mut self, token: u64) -> PendingRead {
        let (expected, read) = self.reads.pop_front().expect("a read is pending");
        assert_eq!(token, expected, "reads complete in order");
        read
    }

    pub(crate) fn finish_scan(&mut self, token: u64) -> PendingScan {
        let scan = self.scans.pop_front().expect("a scan is pending");
        assert_eq!(token, scan.token, "scans complete in order");
        scan
    }

    pub(crate) fn finish_force(&mut self, record: u64) -> Unforced {
        let unforced = self.unforced.pop_front().expect("a record is awaited");
        assert_eq!(record, unforced.record, "forces complete in order");
        unforced
    }
}
