//! The scrub of large values: slowly reads all of them, so that damage is found while another
//! member still has a whole copy. (`crate::node::scrub` does the same for entries, independently.)
//!
//! A pass goes through the used values in name order, a few parts at every heartbeat, and hashes
//! them. So it finds damage that the disk reports and damage that it does not. Comparing digests is
//! enough to agree with the other members: entries contain the digests of their values, and members
//! compare their entries. A value that does not match is fetched again (`fetch`).

use super::progress::{Current, READ_BYTES_MAX, ValueScrub};
use super::{READS_MAX, Reader};
use crate::node::Replica;
use nicekv_proto::Now;
use nicekv_transport::Checksum;

impl Replica {
    /// Reads the next parts if the scrub's rate allows it. Called at every heartbeat.
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

    /// A part was read for the scrub. Returns false if the value is damaged. A value that was
    /// removed meanwhile is skipped.
    pub(super) fn on_scrubbed_part(&mut self, bytes: Option<&[u8]>) -> bool {
        self.host.values.counters.scrubbed_bytes += bytes.map_or(0, <[u8]>::len) as u64;
        self.host.values.scrub.take(bytes)
    }
}
