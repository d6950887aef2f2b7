//! What receivers that are not needed may cost those that are.
//!
//! Who is not among the k best gets repairs and chunks of its own by the same link by which the others get theirs. It has a sixteenth of it, and all while nothing is sent to those that are needed.

/// A chunk for who is not needed, for so many for those who are.
const SHARE: u32 = 16;
/// Chunks that may be saved up.
const SAVED_MAX: u32 = 8;
/// Nothing has left for those who are needed for so many round trips: they do not need the link. Not as soon as they have everything: what follows then are the next values of
/// the same sender, and others could get this one from them.
const QUIET_ROUND_TRIPS: u64 = 2;
/// As long as there is more for them, a silence is one between two reports of a full link, if it is not longer than this.
const QUIET_NS: u64 = 20_000_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare {
    /// In parts of a chunk.
    saved: u32,
    busy_ns: u64,
}

impl Spare {
    /// A chunk leaves for those who are needed.
    pub(crate) fn earned(&mut self, now_ns: u64) {
        self.saved = (self.saved + 1).min(SHARE * SAVED_MAX);
        self.busy_ns = now_ns;
    }

    /// One leaves for another.
    pub(crate) fn spent(&mut self) {
        self.saved = self.saved.saturating_sub(SHARE);
    }

    /// When the next may leave for another, if nothing leaves before. `has_more`: there are new chunks for those who are needed.
    pub(crate) fn next_ns(&self, round_trip_ns: u64, has_more: bool) -> u64 {
        if self.saved >= SHARE {
            return 0;
        }
        let least_ns = if has_more { QUIET_NS } else { 0 };
        self.busy_ns.saturating_add(least_ns.max(QUIET_ROUND_TRIPS * round_trip_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_a_sixteenth_and_what_nobody_needs() {
        let mut spare = Spare::default();
        let mut others = 0;
        for now_ns in 1..=800 {
            spare.earned(now_ns);
            while spare.next_ns(1_000, true) == 0 {
                spare.spent();
                others += 1;
            }
        }
        assert_eq!((others, spare.next_ns(1_000, false)), (50, 2_800));
        assert_eq!(spare.next_ns(1_000, true), 800 + QUIET_NS);
        assert_eq!(spare.next_ns(QUIET_NS, true), 800 + 2 * QUIET_NS);
        (0..1_000).for_each(|_| spare.earned(800));
        (0..SAVED_MAX).for_each(|_| spare.spent());
        assert_ne!(spare.next_ns(0, false), 0, "what was saved is no burst");
    }
}
