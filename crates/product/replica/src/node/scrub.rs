//! The scrub: slowly reads all stored entries, so that damage is found while another replica can
//! repair it, and old tombstones are dropped.
//!
//! A pass goes through the partitions in turn, and reads one page of the engine at every heartbeat.
//! The engine verifies checksums as for any read. A restarted node begins a new pass.
//!
//! A page shows the engine at the moment of the read; the storage queue knows which keys were
//! written since the page was requested.

use crate::modes::Partition;
use crate::node::host::Host;
use crate::node::partitions::Partitions;
use crate::node::storage::{Page, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::{Epoch, Now, PartitionId};

/// Smallest page that the scrub requests, in bytes.
const PAGE_BYTES_MIN: u64 = 4 << 10;

/// Progress of a node's scrub.
#[derive(Clone, Default)]
pub(crate) struct Scrub {
    /// When the next pass may begin.
    next_ns: u64,
    begun_ns: u64,
    is_in_pass: bool,
    /// The partition that is being read, or was read last, and the last key that was read in it.
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
    /// Whether the page read under this token is for the scrub.
    pub(crate) fn is_reading(&self, token: u64) -> bool {
        self.pending.is_some_and(|page| page.token == token)
    }

    /// Whether the scrub is just reading a page of this partition.
    pub(crate) fn is_in(&self, id: PartitionId) -> bool {
        self.pending.is_some() && self.partition == Some(id)
    }
}

impl Scrub {
    /// Requests the next page if the rate allows it. Called at every heartbeat.
    pub(crate) fn read_next(&mut self, host: &mut Host, partitions: &mut Partitions, now: Now) {
        let timing = &host.config.timing;
        let is_early = || !self.is_in_pass && now.boot_ns < self.next_ns;
        if timing.scrub_interval.is_zero()
            || self.pending.is_some()
            || (is_early() && !partitions.iter().any(|partition| partition.wants_scrub(now)))
        {
            return;
        }
        if !self.is_in_pass {
            (self.is_in_pass, self.begun_ns) = (true, now.boot_ns);
        }
        let serves = |partition: &Partition| partition.membership().standing.serves();
        let current = self.partition.filter(|_| !self.is_read).and_then(|id| partitions.slot(id));
        let current = current.filter(|slot| serves(&partitions[*slot]));
        let Some(slot) = current.or_else(|| {
            self.partition = partitions.next(self.partition, serves);
            (self.is_read, self.after) = (false, None);
            partitions.slot(self.partition?)
        }) else {
            let next_ns = self.begun_ns + timing.scrub_interval.as_nanos() as u64;
            *self = Scrub { next_ns, ..Scrub::default() };
            host.counters.scrubs += 1;
            return;
        };
        if !partitions[slot].before_scrub(now, self.after.is_none()) {
            return;
        }
        let bytes_max = timing.per_heartbeat(timing.scrub_bytes_per_second).max(PAGE_BYTES_MIN) as usize;
        let membership = partitions[slot].membership();
        let token = host.storage.scan_watched(membership.partition, self.after.as_deref(), bytes_max);
        self.pending = Some(Pending { token, epoch: membership.epoch });
    }

    /// A page for the scrub was read.
    pub(crate) fn on_page(&mut self, host: &mut Host, partitions: &mut Partitions, now: Now, page: Page<'_>) {
        let pending = self.pending.take().expect("checked by the caller");
        let id = self.partition.expect("one is being read");
        let partition = partitions.by_id(id);
        if partition.membership().epoch == pending.epoch {
            host.storage.find_values(id, page);
            partition.on_scrubbed(host, now, self.after.as_deref(), page);
        } else {
            partition.on_scrub_lost();
        }
        let mut last = page.corrupt.last().map(Vec::as_slice);
        for (key, _) in stored_entries(page.entries) {
            host.counters.scrubbed += 1;
            last = last.max(Some(key));
        }
        host.storage.end_watch();
        self.after = last.map(<[u8]>::to_vec);
        self.is_read = !page.more;
    }
}
