//! Gets, which the paper leaves out: a target reads chunks and sends them one after the other.

use super::disk::Disk;

/// A target's link in the direction of initiators.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Egress {
    free_ns: u64,
}

impl Egress {
    /// Reads a chunk and sends it; returns when the first frame leaves.
    pub(crate) fn send(&mut self, now_ns: u64, disk: &mut Disk, chunk_ns: u64) -> u64 {
        let begins_ns = disk.queue(now_ns).max(self.free_ns);
        self.free_ns = begins_ns + chunk_ns;
        begins_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_waits_for_the_disk_and_for_the_link() {
        let (mut disk, mut egress) = (Disk::new(100), Egress::default());
        let sends = [0, 0, 2_000].map(|now_ns| egress.send(now_ns, &mut disk, 500));
        assert_eq!(sends, [100, 600, 2_100]);
    }
}
