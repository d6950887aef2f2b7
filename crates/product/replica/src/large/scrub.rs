//! Reads large values through, slowly, so that damage is found while another member has them whole.
//! `crate::node::scrub` does that for entries, independently.
//!
//! A pass goes through the used values in name order, some parts at every heartbeat, and hashes
//! them. So it finds damage that the disk reports, and damage that it does not: a value with the
//! digest of its reference is what other members have whose entries are equal, and entries are
//! compared. A wrong value is fetched (`fetch`).

use super::progress::{Current, READ_BYTES_MAX, ValueScrub};
use super::{READS_MAX, Reader};
use crate::node::Replica;
use nicekv_proto::Now;
use nicekv_transport::Checksum;

impl Replica {
    /// Reads on, if it is time. Called at every heartbeat.
    pub(super) fn scrub_values(&mut self, now: Now) {
        let (timing, index) = (&self.host.config.timing, &self.host.storage.values);
        let scrub = &mut self.host.values.scrub;
        let is_early = scrub.begun_ns.is_none() && now.boot_ns < scrub.next_ns;
        if timing.scrub_interval.is_zero()
            || is_early
            || scrub.is_pending
            // Skip values with no known references.
            || index.is_in_pass()
        {
            return;
        }
        let begun_ns = *scrub.begun_ns.get_or_insert(now.boot_ns);
        scrub.current.take_if(|current| !index.holds(current.reference.name));
        if scrub.current.is_none() {
            let next = index.used_after(scrub.after);
            scrub.after = next.map(|reference| reference.name);
            scrub.current = next.map(|reference| Current { reference, checksum: Checksum::new(), offset: 0 });
        }
        if scrub.current.is_none() {
            let next_ns = begun_ns + timing.scrub_interval.as_nanos() as u64;
            *scrub = ValueScrub { next_ns, ..ValueScrub::default() };
            self.host.values.counters.scrubs += 1;
            return;
        }
        let per_heartbeat = timing.per_heartbeat(timing.scrub_bytes_per_second);
        scrub.credit_bytes = (scrub.credit_bytes + per_heartbeat.max(1)).min(READ_BYTES_MAX);
        if self.host.values.reads.len() < READS_MAX
            && let Some((name, offset, bytes)) = scrub.next_read()
        {
            scrub.is_pending = true;
            self.begin_read(now, name, offset, bytes, Reader::Scrub);
        }
    }

    /// A part was read. Whether the value may still be whole; one that was removed meanwhile does
    /// not count.
    pub(super) fn on_scrubbed_part(&mut self, bytes: Option<&[u8]>) -> bool {
        self.host.values.counters.scrubbed_bytes += bytes.map_or(0, <[u8]>::len) as u64;
        self.host.values.scrub.take(bytes)
    }
}
