//! The share of the sender's link for receivers that are not among the k best.
//!
//! Their repairs and unicast chunks compete with the required receivers for the link. They get a
//! sixteenth of it, and all of it while nothing is sent to the required receivers.

/// One chunk may be sent to other receivers per this many chunks to required receivers.
const SHARE: u32 = 16;
/// Most chunks of the share that are saved up while it is not used.
const SAVED_MAX: u32 = 8;
/// After this many idle round trips the other receivers get the whole link. They do not get it as
/// soon as the required receivers have everything: the sender's next value may follow, and the
/// other receivers can fetch this value from the required ones.
const IDLE_ROUND_TRIPS: u64 = 2;
/// Minimum idle time while more chunks for required receivers are waiting. A shorter idle time is
/// only the gap between two reports on a full link.
const IDLE_NS: u64 = 20_000_000;

/// The share of other receivers; see the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareShare {
    /// Saved-up share, in 16ths of a chunk.
    saved: u32,
    busy_ns: u64,
}

impl SpareShare {
    /// A chunk is sent to required receivers.
    pub(crate) fn on_required(&mut self, now_ns: u64) {
        self.saved = (self.saved + 1).min(SHARE * SAVED_MAX);
        self.busy_ns = now_ns;
    }

    /// A chunk is sent to another receiver.
    pub(crate) fn on_other(&mut self) {
        self.saved = self.saved.saturating_sub(SHARE);
    }

    /// When the next chunk may be sent to another receiver if nothing is sent before. `has_more`:
    /// new chunks for required receivers are waiting.
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
        assert_ne!(spare.next_ns(0, false), 0, "the saved-up share is bounded");
    }
}
