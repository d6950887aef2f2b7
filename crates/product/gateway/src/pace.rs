//! How long a peer may hold what others wait for.
//!
//! Who has a claim and does not send, or read, keeps others from theirs. While somebody waits, a peer that holds a claim spends its patience as long as it is its turn,
//! and earns it again by bytes. So a peer that says nothing for five seconds is too slow, and one that trickles is after a while.

use nicekv_proto::Duration;

/// What a peer may spend at most.
const PATIENCE: Duration = Duration::from_secs(5);
/// What moves in a second if no patience is to be lost.
const BYTES_PER_SECOND: u64 = 256 << 10;
/// How often it is looked at, while somebody waits.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks in a row without a byte, after which an argument that has begun gives back what it was granted beyond.
const QUIET_LOOKS: u32 = 1;

const _: () = assert!(PATIENCE.as_nanos() < u64::MAX as u128 && LOOK_EVERY.as_nanos() < u64::MAX as u128);

/// Of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    looked_ns: u64,
    moved: u64,
    spent_ns: u64,
    quiet_looks: u32,
}

/// What a look says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Going,
    /// Nothing has moved for a moment, though it is the peer's turn.
    Quiet,
    TooSlow,
}

impl Pace {
    /// `moved`: bytes so far, in both directions.
    pub(crate) fn look(&mut self, now_ns: u64, moved: u64, is_peers_turn: bool) -> Seen {
        // What was before somebody waited does not count.
        let since_ns = now_ns.saturating_sub(self.looked_ns).min(2 * LOOK_EVERY.as_nanos() as u64);
        let earned_ns = (moved - self.moved).saturating_mul(1_000_000_000) / BYTES_PER_SECOND;
        let is_quiet = is_peers_turn && moved == self.moved;
        self.spent_ns += if is_peers_turn && self.looked_ns > 0 { since_ns } else { 0 };
        self.spent_ns = self.spent_ns.saturating_sub(earned_ns);
        self.quiet_looks = if is_quiet { self.quiet_looks + 1 } else { 0 };
        (self.looked_ns, self.moved) = (now_ns, moved);
        match self.spent_ns >= PATIENCE.as_nanos() as u64 {
            true => Seen::TooSlow,
            false if self.quiet_looks > QUIET_LOOKS => Seen::Quiet,
            false => Seen::Going,
        }
    }

    /// It holds nothing that others wait for.
    pub(crate) fn reset(&mut self) {
        *self = Self { moved: self.moved, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_NS: u64 = LOOK_EVERY.as_nanos() as u64;

    /// Of a peer that sends so many bytes between two looks: when it is too slow, in looks.
    fn slow_after(bytes: u64) -> Option<u64> {
        let mut pace = Pace::default();
        (0..1_000).find(|look| pace.look((1 + look) * LOOK_NS, look * bytes, true) == Seen::TooSlow)
    }

    #[test]
    fn silence_is_borne_for_five_seconds_and_trickling_not_for_ever() {
        assert_eq!(slow_after(0), Some(100));
        assert_eq!(slow_after(BYTES_PER_SECOND / 40), Some(200), "at half the rate twice as long");
        assert_eq!(slow_after(BYTES_PER_SECOND / 20 + 1), None);
    }

    #[test]
    fn only_the_peers_turn_counts_and_only_while_it_is_looked_at() {
        let mut pace = Pace::default();
        for look in 1..=1_000 {
            assert_eq!(pace.look(look * LOOK_NS, 0, false), Seen::Going, "{look}");
        }
        for look in 2..=51 {
            assert_eq!(
                pace.look(look * 1_000 * LOOK_NS, look, true),
                Seen::Going,
                "two looks' time each: {look}"
            );
        }
        assert_eq!(pace.look(52_000 * LOOK_NS, 51, true), Seen::TooSlow);
        pace.reset();
        assert_eq!(pace.look(52_001 * LOOK_NS, 51, true), Seen::Going);
    }

    #[test]
    fn a_moment_without_a_byte_is_told_before() {
        let mut pace = Pace::default();
        let mut look = 0;
        let mut seen = |moved| {
            look += 1;
            pace.look(look * LOOK_NS, moved, true)
        };
        assert_eq!([5, 5, 5].map(&mut seen), [Seen::Going, Seen::Going, Seen::Quiet]);
        assert_eq!([5, 6, 6].map(&mut seen), [Seen::Quiet, Seen::Going, Seen::Going]);
    }
}
