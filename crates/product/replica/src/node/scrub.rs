//! Everything that is stored is read now and then, slowly, so that damage is found while some replica can still repair it, and what
//! nobody needs any more is dropped.
//!
//! One pass goes through the partitions in turn, a page of the engine at every heartbeat; the engine verifies checksums as for any read.
//! A pass is left where it is when the node restarts: the next one begins with the process.
//!
//! The page tells of the moment at which the engine was scanned; the storage queue knows which keys were written since it was asked for.

use crate::modes::Partition;
use crate::node::Replica;
use crate::node::storage::{Page, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::{Epoch, Now, PartitionId};

/// Smallest page, in bytes.
const PAGE_BYTES_MIN: u64 = 4 << 10;

/// Where a node's scrub is.
#[derive(Clone, Default)]
pub(crate) struct Scrub {
    /// No page is read before.
    next_ns: u64,
    begun_ns: u64,
    is_in_pass: bool,
    /// The partition that is being read, or the last one that was; and the last key seen in it.
    partition: Option<PartitionId>,
    is_read: bool,
    after: Option<Vec<u8>>,
    pending: Option<Pending>,
}

/// A page that is being read.
#[derive(Clone, Copy)]
struct Pending {
    token: u64,
    epoch: Epoch,
}

impl Scrub {
    /// Whether this scan was asked for by the scrub.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending.is_some_and(|page| page.token == token)
    }

    /// Whether a page of this partition is being read.
    pub(crate) fn is_in(&self, id: PartitionId) -> bool {
        self.pending.is_some() && self.partition == Some(id)
    }
}

impl Replica {
    /// Asks for the next page, if it is time. To be called at every heartbeat.
    pub(crate) fn scrub(&mut self, now: Now) {
        let timing = &self.host.config.timing;
        let scrub = &mut self.scrub;
        let is_early = || !scrub.is_in_pass && now.boot_ns < scrub.next_ns;
        if timing.scrub_interval.is_zero()
            || scrub.pending.is_some()
            || (is_early() && !self.partitions.iter().any(|partition| partition.wants_scrub(now)))
        {
            return;
        }
        if !scrub.is_in_pass {
            (scrub.is_in_pass, scrub.begun_ns) = (true, now.boot_ns);
        }
        let serves = |partition: &Partition| partition.membership().standing.serves();
        let current = scrub.partition.filter(|_| !scrub.is_read).and_then(|id| self.partitions.slot(id));
        let current = current.filter(|slot| serves(&self.partitions[*slot]));
        let Some(slot) = current.or_else(|| {
            scrub.partition = self.partitions.next(scrub.partition, serves);
            (scrub.is_read, scrub.after) = (false, None);
            self.partitions.slot(scrub.partition?)
        }) else {
            let next_ns = scrub.begun_ns + timing.scrub_interval.as_nanos() as u64;
            *scrub = Scrub { next_ns, ..Scrub::default() };
            self.host.counters.scrubs += 1;
            return;
        };
        if !self.partitions[slot].before_scrub(now, scrub.after.is_none()) {
            return;
        }
        let bytes_max = timing.per_heartbeat(timing.scrub_bytes_per_second).max(PAGE_BYTES_MIN) as usize;
        let membership = self.partitions[slot].membership();
        let token = self.host.storage.scan_watched(membership.partition, scrub.after.as_deref(), bytes_max);
        scrub.pending = Some(Pending { token, epoch: membership.epoch });
    }

    /// A page has been read.
    pub(crate) fn on_scrubbed(&mut self, now: Now, page: Page<'_>) {
        let pending = self.scrub.pending.take().expect("checked by the caller");
        let id = self.scrub.partition.expect("one is being read");
        let partition = self.partitions.by_id(id);
        if partition.membership().epoch == pending.epoch {
            self.host.storage.find_values(id, page);
            partition.on_scrubbed(&mut self.host, now, self.scrub.after.as_deref(), page);
        } else {
            partition.on_scrub_lost();
        }
        let mut last = page.corrupt.last().map(Vec::as_slice);
        for (key, _) in stored_entries(page.entries) {
            self.host.counters.scrubbed += 1;
            last = last.max(Some(key));
        }
        self.host.storage.end_watch();
        self.scrub.after = last.map(<[u8]>::to_vec);
        self.scrub.is_read = !page.more;
    }
}
