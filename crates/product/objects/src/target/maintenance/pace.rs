//! Limits maintenance to a small share of disk and network.

const SECOND_NS: u64 = 1_000_000_000;

/// The pace of checks.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    chunk_ns: u64,
    bytes_per_second: u64,
    /// When the next chunk may be checked.
    next_ns: u64,
}

impl Pace {
    pub(super) fn new(chunks_per_second: u32, bytes_per_second: u64) -> Self {
        let chunk_ns = SECOND_NS / u64::from(chunks_per_second.max(1));
        Self { chunk_ns, bytes_per_second: bytes_per_second.max(1), next_ns: 0 }
    }

    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Accounts for a check that reads or sends `bytes`.
    pub(super) fn charge(&mut self, now_ns: u64, bytes: u64) {
        let bytes_ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.bytes_per_second);
        self.next_ns = self.next_ns.max(now_ns).saturating_add(self.chunk_ns.max(bytes_ns as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_is_bounded_by_chunks_and_by_bytes() {
        let mut pace = Pace::new(100, 1_000_000);
        pace.charge(5, 10);
        assert_eq!(pace.next_ns(), 5 + 10_000_000);
        pace.charge(5, 50_000);
        assert_eq!(pace.next_ns(), 5 + 60_000_000);
        // Idle time is not accumulated.
        pace.charge(SECOND_NS, 0);
        assert_eq!(pace.next_ns(), SECOND_NS + 10_000_000);
    }
}
