//! The load of a target's disk: what is promised and queued, and how long that takes.

use crate::reservation::Backlog;

/// With each chunk, earlier measurements lose one part in this many of their weight.
const SMOOTHING: u64 = 4;
/// The assumed rate weighs as much as a measurement over one second divided by this.
const KNOWN_PARTS: u64 = 8;
const SECOND_NS: u64 = 1_000_000_000;
/// After each idle time of this length, measurements lose a part of their weight. Otherwise a disk
/// that was slow once would get no more chunks, and would never be measured again.
const FORGET_NS: u64 = 2 * SECOND_NS;
/// After this many such times nearly everything is forgotten.
const FORGET_MAX: u64 = 32;
/// Space that a chunk takes in addition to its bytes, at most: its header, and alignment.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// The load of the disk.
#[derive(Clone, Debug)]
pub(super) struct DiskLoad {
    /// Free bytes, including those that are promised.
    pub(super) free_bytes: u64,
    /// Promised to bids and transfers.
    pub(super) promised_bytes: u64,
    /// Bytes of complete chunks that are not durable yet.
    queued_bytes: u64,
    /// When the disk began with the front of its queue.
    busy_since_ns: u64,
    /// Recently written bytes, and the time that took. They are sums, because chunks that are
    /// synced together complete together: the first after the whole time, the others after none.
    written_bytes: u64,
    written_ns: u64,
    /// When these sums were last updated.
    measured_ns: u64,
    /// Weight of the assumed rate, in bytes.
    known_bytes: u64,
}

/// Space that a chunk of `bytes` takes.
fn on_disk(bytes: u32) -> u64 {
    u64::from(bytes) + OVERHEAD_BYTES
}

impl DiskLoad {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        let known_bytes = (bytes_per_second / KNOWN_PARTS).max(1);
        Self {
            free_bytes: 0,
            promised_bytes: 0,
            queued_bytes: 0,
            busy_since_ns: 0,
            written_bytes: known_bytes,
            written_ns: SECOND_NS / KNOWN_PARTS,
            measured_ns: 0,
            known_bytes,
        }
    }

    pub(super) fn has_room(&self, bytes: u32) -> bool {
        self.promised_bytes + on_disk(bytes) <= self.free_bytes
    }

    /// Reserves space for a chunk.
    pub(super) fn promise(&mut self, bytes: u32) {
        self.promised_bytes += on_disk(bytes);
    }

    /// Releases the reservation: the chunk is stored, or will not come.
    pub(super) fn release(&mut self, bytes: u32) {
        self.promised_bytes = self.promised_bytes.saturating_sub(on_disk(bytes));
    }

    /// A chunk was stored: reduces the free space until it is measured again.
    pub(super) fn used(&mut self, bytes: u32) {
        self.free_bytes = self.free_bytes.saturating_sub(on_disk(bytes));
    }

    /// The queue that a chunk of `bytes` would find.
    pub(super) fn backlog(&mut self, now_ns: u64, bytes: u32) -> Backlog {
        self.forget(now_ns);
        Backlog { queued_ns: self.time_ns(self.queued_bytes), write_ns: self.time_ns(bytes.into()) }
    }

    fn time_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.written_ns) / u128::from(self.written_bytes)) as u64
    }

    /// Bytes of complete chunks that are not durable yet, and so still in memory.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Estimated time until half of the queued bytes are durable.
    pub(super) fn half_queue_ns(&self) -> u64 {
        self.time_ns(self.queued_bytes / 2)
    }

    /// A chunk is complete and waits for the disk.
    pub(super) fn queued(&mut self, now_ns: u64, bytes: u32) {
        if self.queued_bytes == 0 {
            self.busy_since_ns = now_ns;
        }
        self.queued_bytes += u64::from(bytes);
    }

    /// The disk is done with a chunk.
    pub(super) fn finished(&mut self, now_ns: u64, bytes: u32) {
        self.queued_bytes -= u64::from(bytes);
        let took_ns = now_ns.saturating_sub(self.busy_since_ns);
        self.busy_since_ns = now_ns;
        self.measured_ns = now_ns;
        self.measured(bytes.into(), took_ns);
    }

    fn measured(&mut self, bytes: u64, took_ns: u64) {
        let kept = |sum: u64| sum - sum / SMOOTHING;
        self.written_bytes = kept(self.written_bytes).saturating_add(bytes).max(1);
        self.written_ns = kept(self.written_ns).saturating_add(took_ns);
    }

    /// Reduces the weight of old measurements relative to the assumed rate.
    fn forget(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.measured_ns);
        if self.queued_bytes > 0 || idle_ns < FORGET_NS {
            return;
        }
        self.measured_ns = now_ns;
        for _ in 0..(idle_ns / FORGET_NS).min(FORGET_MAX) {
            self.measured(self.known_bytes / SMOOTHING, SECOND_NS / KNOWN_PARTS / SMOOTHING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn backlog_is_the_queue_at_the_measured_rate() {
        let mut disk = DiskLoad::new(100 << 20);
        disk.free_bytes = 10 << 20;
        assert_eq!(disk.backlog(0, 1 << 20), Backlog { queued_ns: 0, write_ns: 10 * MS });
        for at in 0..40 {
            disk.queued(at * 100 * MS, 1 << 20);
            disk.finished(at * 100 * MS + 50 * MS, 1 << 20);
        }
        let Backlog { write_ns, .. } = disk.backlog(4_000 * MS, 1 << 20);
        assert!((49 * MS..51 * MS).contains(&write_ns), "{write_ns}");
        disk.queued(0, 2 << 20);
        let Backlog { queued_ns, .. } = disk.backlog(4_000 * MS, 1 << 20);
        assert!((98 * MS..102 * MS).contains(&queued_ns), "{queued_ns}");
    }

    #[test]
    fn chunks_synced_together_measure_the_same_rate() {
        let mut disk = DiskLoad::new(300 << 20);
        for at in 0..20 {
            (0..3).for_each(|_| disk.queued(at * 1_000 * MS, 1 << 20));
            (0..3).for_each(|_| disk.finished(at * 1_000 * MS + 300 * MS, 1 << 20));
        }
        let Backlog { write_ns, .. } = disk.backlog(20_000 * MS, 1 << 20);
        assert!((70 * MS..130 * MS).contains(&write_ns), "{write_ns}");
    }

    #[test]
    fn burst_does_not_make_the_rate_infinite() {
        let mut disk = DiskLoad::new(1_000);
        disk.queued(0, 100);
        disk.queued(0, 100);
        disk.finished(5, 100);
        disk.finished(5, 100);
        assert!(disk.backlog(5, 1_000).write_ns > SECOND_NS / 8);
    }

    /// Regression: after one slow sync a target got no more chunks, so it counted as slow for ever.
    #[test]
    fn disk_that_was_slow_long_ago_is_tried_again() {
        let mut disk = DiskLoad::new(100 << 20);
        disk.queued(0, 1 << 20);
        disk.finished(2_000 * MS, 1 << 20);
        let mut write_ms = |at_ms: u64| disk.backlog(at_ms * MS, 1 << 20).write_ns / MS;
        let slow = write_ms(3_900);
        assert!(slow > 150, "{slow}");
        let later = [6_000, 10_000, 18_000, 34_000, 10_000_000].map(&mut write_ms);
        assert!(later.is_sorted_by(|one, next| one > next) && later[0] < slow, "{later:?}");
        assert!((10..=11).contains(&later[4]), "{later:?}");
        disk.queued(10_000_000 * MS, 1 << 20);
        disk.finished(10_000_500 * MS, 1 << 20);
        assert!(disk.backlog(10_000_600 * MS, 1 << 20).write_ns > 40 * MS, "the disk is measured again");
    }
}
