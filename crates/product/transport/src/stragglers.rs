//! Limits how many transfers of a process serve the same slow receiver: its link has room for few.

use alloc::collections::BTreeMap;

/// Most transfers that serve one peer by unicast at the same time.
pub const STRAGGLERS_MAX: u8 = 4;
/// A straggler is dropped from a transfer after this time.
pub const STRAGGLER_NS: u64 = 10_000_000_000;

/// Counts for each peer the transfers of this process that serve it by unicast.
#[derive(Clone, Debug)]
pub struct Stragglers<P> {
    behind: BTreeMap<P, u8>,
    /// Number of times that [`Self::begin`] returned `false`.
    pub refused: u64,
}

impl<P: Ord> Stragglers<P> {
    /// No stragglers.
    pub fn new() -> Self {
        Self { behind: BTreeMap::new(), refused: 0 }
    }

    /// The peer has fallen behind in one more transfer. Returns whether that transfer may serve it
    /// by unicast.
    pub fn begin(&mut self, peer: P) -> bool {
        let behind = self.behind.entry(peer).or_default();
        let is_served = *behind < STRAGGLERS_MAX;
        *behind += u8::from(is_served);
        self.refused += u64::from(!is_served);
        is_served
    }

    /// Whether there are no stragglers.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// One of the peer's transfers no longer serves it by unicast.
    pub fn end(&mut self, peer: &P) {
        let Some(behind) = self.behind.get_mut(peer) else { return };
        *behind -= 1;
        if *behind == 0 {
            self.behind.remove(peer);
        }
    }
}

impl<P: Ord> Default for Stragglers<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_served_in_four_transfers_at_a_time() {
        let mut stragglers = Stragglers::new();
        let begun: Vec<bool> = (0..6).map(|_| stragglers.begin("a")).collect();
        assert_eq!(begun, [true, true, true, true, false, false]);
        assert!(stragglers.begin("b"), "peers are counted separately");
        stragglers.end(&"a");
        assert_eq!((stragglers.begin("a"), stragglers.begin("a"), stragglers.refused), (true, false, 3));
        (0..9).for_each(|_| stragglers.end(&"a"));
        assert_eq!((stragglers.behind.len(), stragglers.is_empty()), (1, false));
    }
}
