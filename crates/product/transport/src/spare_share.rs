//! The share of the sender's link for receivers that are not among the k best.
//!
//! Their repairs and unicast chunks use the link that the required receivers need. They get a sixteenth of it, and all of it
//! while nothing is sent to the required ones.

/// One chunk for the others, for this many for required receivers.
const SHARE: u32 = 16;
/// Chunks that may be saved up for the others.
const SAVED_MAX: u32 = 8;
/// After this many idle round trips the required receivers do not need the link. Not as soon as they have everything: the
/// sender's next value may follow, and the others can fetch this one from them.
const IDLE_ROUND_TRIPS: u64 = 2;
/// While there is more to send to them, a shorter idle time is just the gap between two reports on a full link.
const IDLE_NS: u64 = 20_000_000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareShare {
    /// In 16ths of a chunk.
    saved: u32,
    busy_ns: u64,
}

impl SpareShare {
    /// A chunk leaves for required receivers.
    pub(crate) fn on_required(&mut self, now_ns: u64) {
        self.saved = (self.saved + 1).min(SHARE * SAVED_MAX);
        self.busy_ns = now_ns;
    }

    /// A chunk leaves for another receiver.
    pub(crate) fn on_other(&mut self) {
        self.saved = self.saved.saturating_sub(SHARE);
    }

    /// When the next chunk may leave for another receiver, if nothing leaves before. `has_more`: there are new chunks for the
    /// required ones.
    pub(crate) fn next_ns(&self, round_trip_ns: u64, has_more: bool) -> u64 {
        if self.saved >= SHARE {
            return 0;
        }
        let least_ns = if has_more { IDLE_NS } else { 0 };
        self.busy_ns.saturating_add(least_ns.max(IDLE_ROUND_TRIPS * round_trip_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_a_sixteenth_and_all_idle_time() {
        let mut spare = SpareShare::default();
        let mut others = 0;
        for now_ns in 1..=800 {
            spare.on_required(now_ns);
            while spare.next_ns(1_000, true) == 0 {
                spare.on_other();
                others += 1;
            }
        }
        assert_eq!((others, spare.next_ns(1_000, false)), (50, 2_800));
        assert_eq!(spare.next_ns(1_000, true), 800 + IDLE_NS);
        assert_eq!(spare.next_ns(IDLE_NS, true), 800 + 2 * IDLE_NS);
        (0..1_000).for_each(|_| spare.on_required(800));
        (0..SAVED_MAX).for_each(|_| spare.on_other());
        assert_ne!(spare.next_ns(0, false), 0, "savings are bounded");
    }
}
