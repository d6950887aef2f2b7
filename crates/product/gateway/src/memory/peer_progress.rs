//! How long a slow peer may hold memory that others wait for.
//!
//! A peer that has a grant and neither sends nor reads keeps others waiting. While a request is
//! queued, such a peer uses up a time budget whenever the gateway waits for it, and earns time back
//! for each byte. So a silent peer is too slow after five seconds, and one that trickles bytes is
//! later.

use nicekv_proto::Duration;

/// The time budget of a peer.
const BUDGET: Duration = Duration::from_secs(5);
/// A peer that moves this many bytes a second keeps its budget constant.
const BYTES_PER_SECOND: u64 = 256 << 10;
/// How often peers are checked while requests are queued.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// If more checks than this in a row find no byte moved, the unfilled part of an argument's grant
/// is returned.
const QUIET_CHECKS: u32 = 1;

const _: () = assert!(BUDGET.as_nanos() < u64::MAX as u128 && CHECK_INTERVAL.as_nanos() < u64::MAX as u128);

/// The state of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerProgress {
    checked_ns: u64,
    moved: u64,
    used_ns: u64,
    quiet_checks: u32,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerCheck {
    Moving,
    /// No byte has moved for a moment, though the gateway waits for the peer.
    Quiet,
    TooSlow,
}

impl PeerProgress {
    /// `moved`: bytes sent and received so far. `is_peers_turn`: the gateway waits for the peer.
    pub(crate) fn check(&mut self, now_ns: u64, moved: u64, is_peers_turn: bool) -> PeerCheck {
        // Limits the elapsed time: the time before a request was queued does not count.
        let since_ns = now_ns.saturating_sub(self.checked_ns).min(2 * CHECK_INTERVAL.as_nanos() as u64);
        let earned_ns = (moved - self.moved).saturating_mul(1_000_000_000) / BYTES_PER_SECOND;
        let is_quiet = is_peers_turn && moved == self.moved;
        self.used_ns += if is_peers_turn && self.checked_ns > 0 { since_ns } else { 0 };
        self.used_ns = self.used_ns.saturating_sub(earned_ns);
        self.quiet_checks = if is_quiet { self.quiet_checks + 1 } else { 0 };
        (self.checked_ns, self.moved) = (now_ns, moved);
        match self.used_ns >= BUDGET.as_nanos() as u64 {
            true => PeerCheck::TooSlow,
            false if self.quiet_checks > QUIET_CHECKS => PeerCheck::Quiet,
            false => PeerCheck::Moving,
        }
    }

    /// The peer no longer holds memory that others wait for: restores its budget.
    pub(crate) fn reset(&mut self) {
        *self = Self { moved: self.moved, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK_NS: u64 = CHECK_INTERVAL.as_nanos() as u64;

    /// Number of checks after which a peer that sends `bytes` bytes between two checks is too slow.
    fn slow_after(bytes: u64) -> Option<u64> {
        let mut peer = PeerProgress::default();
        (0..1_000).find(|check| peer.check((1 + check) * CHECK_NS, check * bytes, true) == PeerCheck::TooSlow)
    }

    #[test]
    fn silent_peers_are_too_slow_after_five_seconds_and_trickling_ones_later() {
        assert_eq!(slow_after(0), Some(100));
        assert_eq!(slow_after(BYTES_PER_SECOND / 40), Some(200), "at half the rate twice as long");
        assert_eq!(slow_after(BYTES_PER_SECOND / 20 + 1), None);
    }

    #[test]
    fn only_the_peers_turn_counts_and_only_while_it_is_checked() {
        let mut peer = PeerProgress::default();
        for check in 1..=1_000 {
            assert_eq!(peer.check(check * CHECK_NS, 0, false), PeerCheck::Moving, "{check}");
        }
        for check in 2..=51 {
            assert_eq!(
                peer.check(check * 1_000 * CHECK_NS, check, true),
                PeerCheck::Moving,
                "two checks' time each: {check}"
            );
        }
        assert_eq!(peer.check(52_000 * CHECK_NS, 51, true), PeerCheck::TooSlow);
        peer.reset();
        assert_eq!(peer.check(52_001 * CHECK_NS, 51, true), PeerCheck::Moving);
    }

    #[test]
    fn a_moment_without_bytes_is_reported_first() {
        let mut peer = PeerProgress::default();
        let mut check = 0;
        let mut seen = |moved| {
            check += 1;
            peer.check(check * CHECK_NS, moved, true)
        };
        assert_eq!([5, 5, 5].map(&mut seen), [PeerCheck::Moving, PeerCheck::Moving, PeerCheck::Quiet]);
        assert_eq!([5, 6, 6].map(&mut seen), [PeerCheck::Quiet, PeerCheck::Moving, PeerCheck::Moving]);
    }
}
