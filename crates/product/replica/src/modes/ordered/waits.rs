//! Disk requests whose completion a partition waits for, in the order in which the disk completes
//! them.

use super::compare::Compare;
use super::locks::WaitingGet;
use super::pieces::Frame;
use super::recent::RecentKey;
use crate::{Changes, StreamPeer};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::{Epoch, NodeId, OpId};
use smallvec::SmallVec;

/// Key of a read; keys up to 32 bytes are stored inline.
pub(crate) type ReadKey = SmallVec<[u8; 32]>;

/// Why a key is read.
#[derive(Clone)]
pub(crate) enum PendingRead {
    /// To answer a get.
    Get { get: WaitingGet, key: ReadKey, changes: Changes },
    /// To evaluate the next op of a key.
    Evaluate { key: ReadKey },
    /// For a member that cannot read the key; `asked`: what that member had logged and released.
    Repair { epoch: Epoch, to: NodeId, asked: (u64, u64), key: ReadKey },
}

/// A scan of the engine.
#[derive(Clone)]
struct PendingScan {
    token: u64,
    epoch: Epoch,
    purpose: ScanPurpose,
}

#[derive(Clone)]
pub(crate) enum ScanPurpose {
    Copy(CopyScan),
    Recent(CopyRecent),
    Compare(Compare),
    Client(ClientScan),
}

/// A page that is read for a client's scan.
#[derive(Clone, Copy)]
pub(crate) struct ClientScan {
    pub(crate) op: OpId,
    pub(crate) reply_to: SocketAddrV4,
    pub(crate) frame: Frame,
    /// The client has asked for several pieces at once, so each answer has less room.
    pub(crate) is_one_of_several: bool,
}

/// A page that is read for a joiner.
#[derive(Clone)]
pub(crate) struct CopyScan {
    pub(crate) peer: StreamPeer,
    pub(crate) since: u64,
    /// Entries found on the previous pages.
    pub(crate) found: Vec<u8>,
    pub(crate) pages: usize,
}

/// The entries of recently written keys, read for a joiner.
#[derive(Clone)]
pub(crate) struct CopyRecent {
    pub(crate) peer: StreamPeer,
    pub(crate) since: u64,
    /// The keys to read, with the decisions that wrote them.
    pub(crate) keys: Vec<(u64, RecentKey)>,
    /// These keys are all that decisions after `since` and up to this one have written.
    pub(crate) through: u64,
}

/// A log record for whose sync the partition waits.
#[derive(Clone)]
struct Unsynced {
    record: u64,
    /// `Waits::resets` when the record was appended; records from before the last reset are void.
    resets: u64,
    what: AwaitedSync,
}

#[derive(Clone, Copy)]
pub(crate) enum AwaitedSync {
    Prepare(OpId),
    Decision(u64),
    /// All copied entries of a joiner.
    Copy,
}

#[derive(Clone, Default)]
pub(crate) struct Waits {
    reads: VecDeque<(u64, PendingRead)>,
    scans: VecDeque<PendingScan>,
    unsynced: VecDeque<Unsynced>,
    /// How often the partition has started over.
    resets: u64,
}

impl Waits {
    /// A read with this token was requested from the engine.
    pub(crate) fn read(&mut self, token: u64, read: PendingRead) {
        self.reads.push_back((token, read));
    }

    /// A page with this token was requested from the engine, in this epoch.
    pub(crate) fn scan(&mut self, token: u64, epoch: Epoch, purpose: ScanPurpose) {
        self.scans.push_back(PendingScan { token, epoch, purpose });
    }

    /// Number of pages being read.
    pub(crate) fn scans(&self) -> usize {
        self.scans.len()
    }

    /// The partition waits until this record is synced.
    pub(crate) fn sync(&mut self, record: u64, what: AwaitedSync) {
        self.unsynced.push_back(Unsynced { record, resets: self.resets, what });
    }

    /// The partition starts over: records appended so far are void.
    pub(crate) fn reset(&mut self) {
        self.resets += 1;
    }

    pub(crate) fn finish_read(&mut self, token: u64) -> PendingRead {
        let (expected, read) = self.reads.pop_front().expect("a read is pending");
        assert_eq!(token, expected, "reads complete in order");
        read
    }

    /// A page was read. Returns why, unless it was requested in another epoch.
    pub(crate) fn finish_scan(&mut self, token: u64, epoch: Epoch) -> Option<ScanPurpose> {
        let scan = self.scans.pop_front().expect("a scan is pending");
        assert_eq!(token, scan.token, "scans complete in order");
        (scan.epoch == epoch).then_some(scan.purpose)
    }

    /// This record is synced. Returns what waited for it, unless the record is void.
    pub(crate) fn finish_sync(&mut self, record: u64) -> Option<AwaitedSync> {
        let unsynced = self.unsynced.pop_front().expect("a record is awaited");
        assert_eq!(record, unsynced.record, "syncs complete in order");
        (unsynced.resets == self.resets).then_some(unsynced.what)
    }
}

mod fingerprint {
    use super::{AwaitedSync, Waits};
    use core::hash::{Hash, Hasher};

    impl Waits {
        pub(crate) fn fingerprint(&self, record: u64, state: &mut impl Hasher) {
            let unsynced = self.unsynced.iter().find(|unsynced| unsynced.record == record);
            match unsynced.expect("the partition waits for this record").what {
                AwaitedSync::Prepare(op) => (0, op).hash(state),
                AwaitedSync::Decision(index) => (1, index).hash(state),
                AwaitedSync::Copy => unreachable!("exhaustive tests have no joiners"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_from_before_a_reset_are_void() {
        let mut waits = Waits::default();
        waits.sync(1, AwaitedSync::Decision(1));
        waits.reset();
        waits.sync(2, AwaitedSync::Decision(2));
        assert!(waits.finish_sync(1).is_none());
        assert!(matches!(waits.finish_sync(2), Some(AwaitedSync::Decision(2))));
    }

    #[test]
    fn scan_of_another_epoch_is_void() {
        let mut waits = Waits::default();
        let purpose = || {
            ScanPurpose::Copy(CopyScan {
                peer: StreamPeer::Accepted(1),
                since: 0,
                found: Vec::new(),
                pages: 1,
            })
        };
        waits.scan(7, Epoch(1), purpose());
        waits.scan(8, Epoch(2), purpose());
        assert_eq!(waits.scans(), 2);
        assert!(waits.finish_scan(7, Epoch(2)).is_none() && waits.finish_scan(8, Epoch(2)).is_some());
        assert_eq!(waits.scans(), 0);
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn reads_complete_in_order() {
        let mut waits = Waits::default();
        waits.read(1, PendingRead::Evaluate { key: b"k".as_slice().into() });
        waits.finish_read(2);
    }
}
