//! A target's disk: one queue, first come, first served.

use nicekv_objects::reservation::Backlog;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    write_ns: u64,
    /// When the queue will be empty.
    free_ns: u64,
    /// Time of all chunks queued so far.
    busy_ns: u64,
}

impl Disk {
    /// A disk that takes `write_ns` for a chunk.
    pub(crate) fn new(write_ns: u64) -> Self {
        Self { write_ns, free_ns: 0, busy_ns: 0 }
    }

    pub(crate) fn backlog(&self, now_ns: u64) -> Backlog {
        Backlog { queued_ns: self.free_ns.saturating_sub(now_ns), write_ns: self.write_ns }
    }

    /// Queues a chunk to be written or read; returns when it is done.
    pub(crate) fn queue(&mut self, now_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(now_ns) + self.write_ns;
        self.busy_ns += self.write_ns;
        self.free_ns
    }

    /// The disk's time as the paper's tool counts it: all chunks queued, in whole percent.
    pub(crate) fn share_percent(&self, elapsed_ns: u64) -> u64 {
        (self.busy_ns * 100 / elapsed_ns.max(1)).min(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_served_in_order() {
        let mut disk = Disk::new(100);
        assert_eq!([disk.queue(1_000), disk.queue(1_050)], [1_100, 1_200]);
        assert_eq!(disk.backlog(1_060), Backlog { queued_ns: 140, write_ns: 100 });
        assert_eq!((disk.queue(2_000), disk.backlog(3_000).queued_ns), (2_100, 0));
        assert_eq!(
            [disk.share_percent(1_009), disk.share_percent(100), disk.share_percent(0)],
            [29, 100, 100]
        );
    }
}
