//! What a target's disk has to do, and how long that takes.

use crate::reservation::Backlog;

/// What was measured before loses one of so many parts with each chunk.
const SMOOTHING: u64 = 4;
/// What is known before anything was measured counts as so many parts of a second.
const KNOWN_PARTS: u64 = 8;
const SECOND_NS: u64 = 1_000_000_000;
/// Of what was measured one part is forgotten whenever nothing was written for so long: who was slow once would get no chunk any more, and so never be measured again.
const FORGET_NS: u64 = 2 * SECOND_NS;
/// So many times are enough to forget nearly all.
const FORGET_MAX: u64 = 32;
/// What a chunk takes on the disk beside its bytes, at most: its header and what lies between it and the next one.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// May be written, beside what is promised.
    pub(super) free_bytes: u64,
    /// To chunks that have a bid, or come.
    pub(super) promised_bytes: u64,
    /// Of chunks that have come and are not forced.
    queued_bytes: u64,
    /// When the disk began with what is at the front of the queue.
    busy_since_ns: u64,
    /// What was written of late, and how long that took: sums, as several chunks that are forced together are told of at once, the first after all of the time, the others after none.
    written_bytes: u64,
    written_ns: u64,
    /// When that was measured, or a part of it forgotten.
    measured_ns: u64,
    /// What is known before anything is measured.
    known_bytes: u64,
}

/// What a chunk of so many bytes takes.
fn on_disk(bytes: u32) -> u64 {
    u64::from(bytes) + OVERHEAD_BYTES
}

impl Disk {
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

    /// A chunk of so many bytes may come.
    pub(super) fn promise(&mut self, bytes: u32) {
        self.promised_bytes += on_disk(bytes);
    }

    /// It does not, or has come.
    pub(super) fn release(&mut self, bytes: u32) {
        self.promised_bytes = self.promised_bytes.saturating_sub(on_disk(bytes));
    }

    /// It has come: what is free is told anew from time to time; until then it is less by this.
    pub(super) fn used(&mut self, bytes: u32) {
        self.free_bytes = self.free_bytes.saturating_sub(on_disk(bytes));
    }

    /// What a chunk of so many bytes would find.
    pub(super) fn backlog(&mut self, now_ns: u64, bytes: u32) -> Backlog {
        self.forget(now_ns);
        Backlog { queued_ns: self.time_ns(self.queued_bytes), write_ns: self.time_ns(bytes.into()) }
    }

    fn time_ns(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.written_ns) / u128::from(self.written_bytes)) as u64
    }

    /// Bytes of chunks that have come and are not forced: they are in memory still.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// How long until half of them are forced, as far as is known.
    pub(super) fn half_queue_ns(&self) -> u64 {
        self.time_ns(self.queued_bytes / 2)
    }

    /// A chunk has come.
    pub(super) fn queued(&mut self, now_ns: u64, bytes: u32) {
        if self.queued_bytes == 0 {
            self.busy_since_ns = now_ns;
        }
        self.queued_bytes += u64::from(bytes);
    }

    /// One is forced, or is not going to be.
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

    /// What was measured long ago counts less than what was known before.
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
    fn the_backlog_is_what_is_queued_at_the_speed_that_was_measured() {
        let mut disk = Disk::new(100 << 20);
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
    fn chunks_that_are_forced_together_are_as_fast_as_one_after_the_other() {
        let mut disk = Disk::new(300 << 20);
        for at in 0..20 {
            (0..3).for_each(|_| disk.queued(at * 1_000 * MS, 1 << 20));
            (0..3).for_each(|_| disk.finished(at * 1_000 * MS + 300 * MS, 1 << 20));
        }
        let Backlog { write_ns, .. } = disk.backlog(20_000 * MS, 1 << 20);
        assert!((70 * MS..130 * MS).contains(&write_ns), "{write_ns}");
    }

    #[test]
    fn a_burst_does_not_make_it_infinitely_fast() {
        let mut disk = Disk::new(1_000);
        disk.queued(0, 100);
        disk.queued(0, 100);
        disk.finished(5, 100);
        disk.finished(5, 100);
        assert!(disk.backlog(5, 1_000).write_ns > SECOND_NS / 8);
    }

    /// One slow force made a target so slow that it got nothing any more, and so stayed slow.
    #[test]
    fn a_disk_that_was_slow_long_ago_is_tried_again() {
        let mut disk = Disk::new(100 << 20);
        disk.queued(0, 1 << 20);
        disk.finished(2_000 * MS, 1 << 20);
        let mut write_ms = |at_ms: u64| disk.backlog(at_ms * MS, 1 << 20).write_ns / MS;
        let slow = write_ms(3_900);
        assert!(slow > 150, "{slow}");
        let told = [6_000, 10_000, 18_000, 34_000, 10_000_000].map(&mut write_ms);
        assert!(told.is_sorted_by(|one, next| one > next) && told[0] < slow, "{told:?}");
        assert!((10..=11).contains(&told[4]), "{told:?}");
        disk.queued(10_000_000 * MS, 1 << 20);
        disk.finished(10_000_500 * MS, 1 << 20);
        assert!(disk.backlog(10_000_600 * MS, 1 << 20).write_ns > 40 * MS, "and is measured again");
    }
}
