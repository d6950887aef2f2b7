//! Everything that is stored is read now and then, slowly, so that damage is found while some replica can still repair it, and deletions
//! that nobody needs any more are dropped although their number was beyond remembering (`entries`).
//!
//! One pass goes through the partitions in turn, a page of the engine at every heartbeat; the engine verifies checksums as for any read.
//! A pass is left where it is when the node restarts: the next one begins with the process.
//!
//! A tombstone may go when every original member holds the deletion. The page tells of the moment at which the engine was scanned, so a
//! key that was written since the page was asked for is left alone.

use crate::full::DiskSpace;
use crate::partition::Partition;
use crate::replica::Replica;
use crate::shared::Shared;
use alloc::vec::Vec;
use nicekv_wire::bytes::Reader;
use nicekv_wire::recovery::{Entry, read_keyed_entry};
use nicekv_wire::{Epoch, Now};

/// Smallest page, in bytes.
const PAGE_BYTES_MIN: u64 = 4 << 10;

/// Where a node's scrub is.
#[derive(Clone, Default)]
pub(crate) struct Scrub {
    /// No page is read before.
    next_ns: u64,
    begun_ns: u64,
    is_in_pass: bool,
    /// Index of the partition, and the last key seen in it.
    partition: usize,
    after: Vec<u8>,
    pending: Option<Page>,
}

/// A page that is being read.
#[derive(Clone, Copy)]
struct Page {
    token: u64,
    epoch: Epoch,
}

impl Replica {
    /// Asks for the next page, if it is time. To be called at every heartbeat.
    pub(crate) fn scrub(&mut self, now: Now) {
        let timing = &self.shared.config.timing;
        let scrub = &mut self.scrub;
        if timing.scrub_interval.is_zero() || scrub.pending.is_some() || now.boot_ns < scrub.next_ns {
            return;
        }
        if !scrub.is_in_pass {
            (scrub.is_in_pass, scrub.begun_ns) = (true, now.boot_ns);
        }
        while self.partitions.get(scrub.partition).is_some_and(|partition| !partition.standing.serves()) {
            scrub.partition += 1;
            scrub.after.clear();
        }
        let Some(partition) = self.partitions.get(scrub.partition) else {
            let next_ns = scrub.begun_ns + timing.scrub_interval.as_nanos() as u64;
            *scrub = Scrub { next_ns, ..Scrub::default() };
            self.shared.counters.scrubs += 1;
            return;
        };
        let bytes_max = timing.scrub_bytes_per_second * timing.heartbeat.as_millis() as u64 / 1000;
        let bytes_max = bytes_max.max(PAGE_BYTES_MIN) as usize;
        let token = self.shared.storage.scan_watched(partition.id, &scrub.after, bytes_max);
        scrub.pending = Some(Page { token, epoch: partition.epoch });
    }

    /// Whether this scan was asked for by the scrub.
    pub(crate) fn is_scrub(&self, token: u64) -> bool {
        self.scrub.pending.is_some_and(|page| page.token == token)
    }

    /// A page has been read.
    pub(crate) fn on_scrubbed(&mut self, now: Now, entries: &[u8], corrupt: &[Vec<u8>], more: bool) {
        let page = self.scrub.pending.take().expect("checked by the caller");
        let partition = &mut self.partitions[self.scrub.partition];
        if partition.epoch == page.epoch {
            partition.begin_repairs(&mut self.shared, now, corrupt);
        }
        let may_drop = partition.epoch == page.epoch && self.shared.disk_space != DiskSpace::Exhausted;
        let mut last = corrupt.last().map_or(&[][..], |key| key);
        let mut reader = Reader::new(entries);
        while !reader.is_empty() {
            let (key, entry) = read_keyed_entry(&mut reader).expect("the engine returns what was stored");
            let entry = Entry::decode(entry).expect("the engine returns what was stored");
            if may_drop && entry.value.is_none() {
                partition.drop_old_tombstone(&mut self.shared, key, entry.index);
            }
            self.shared.counters.scrubbed += 1;
            last = last.max(key);
        }
        self.shared.storage.end_watch();
        match more {
            true => self.scrub.after = last.to_vec(),
            false => {
                self.scrub.partition += 1;
                self.scrub.after.clear();
            }
        }
    }
}

impl Partition {
    /// Drops a tombstone that was found by a scan, if every original member holds the deletion.
    fn drop_old_tombstone(&mut self, shared: &mut Shared, key: &[u8], index: u64) {
        if self.is_whole() && index <= self.released && !shared.storage.is_written_since_scan(key) {
            shared.storage.remove(self.id, key);
        }
    }
}
