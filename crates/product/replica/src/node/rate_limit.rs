//! Rate limit of a node's copies over all partitions, which leaves the rest of network and disk to
//! requests.

use nicekv_proto::Now;

/// Limits how soon more bytes may be requested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateLimit {
    free_ns: u64,
}

impl RateLimit {
    /// Accounts for bytes that have arrived. A rate of 0 means no limit.
    pub(crate) fn take(&mut self, now: Now, bytes: usize, bytes_per_second: u64) {
        let takes_ns =
            (bytes as u64).saturating_mul(1_000_000_000).checked_div(bytes_per_second).unwrap_or(0);
        self.free_ns = self.free_ns.max(now.boot_ns).saturating_add(takes_ns);
    }

    /// When more may be requested; `None`: now.
    pub(crate) fn pause(&self, now: Now) -> Option<u64> {
        (self.free_ns > now.boot_ns).then_some(self.free_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_delay_the_next_request() {
        let now = |boot_ns| Now { boot_ns, unix_ms: 0 };
        let mut pace = RateLimit::default();
        assert_eq!(pace.pause(now(5)), None);
        pace.take(now(1_000), 500, 1_000_000_000);
        pace.take(now(1_000), 500, 1_000_000_000);
        assert_eq!((pace.pause(now(1_999)), pace.pause(now(2_000))), (Some(2_000), None));
        pace.take(now(5_000), 1 << 40, 0);
        assert_eq!(pace.pause(now(5_000)), None);
    }
}
