//! Who is served alone, as it cannot keep up, in how many of the transfers of a process: a slow link has room for few.

use alloc::collections::BTreeMap;

/// Transfers that one peer is served alone at a time.
pub const STRAGGLERS_MAX: u8 = 4;
/// It is given up after this.
pub const STRAGGLER_NS: u64 = 10_000_000_000;

/// How many of all transfers of a process each peer is behind in.
#[derive(Clone, Debug)]
pub struct Stragglers<P> {
    behind: BTreeMap<P, u8>,
    /// Those that were given up at once.
    pub refused: u64,
}

impl<P: Ord> Stragglers<P> {
    /// Nobody is behind.
    pub fn new() -> Self {
        Self { behind: BTreeMap::new(), refused: 0 }
    }

    /// A peer is behind in one more; whether it is served on.
    pub fn begin(&mut self, peer: P) -> bool {
        let behind = self.behind.entry(peer).or_default();
        let is_served = *behind < STRAGGLERS_MAX;
        *behind += u8::from(is_served);
        self.refused += u64::from(!is_served);
        is_served
    }

    /// Whether nobody is behind.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// In one less.
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
    fn a_peer_is_served_in_four_transfers_at_a_time() {
        let mut stragglers = Stragglers::new();
        let begun: Vec<bool> = (0..6).map(|_| stragglers.begin("a")).collect();
        assert_eq!(begun, [true, true, true, true, false, false]);
        assert!(stragglers.begin("b"), "another peer is another matter");
        stragglers.end(&"a");
        assert_eq!((stragglers.begin("a"), stragglers.begin("a"), stragglers.refused), (true, false, 3));
        (0..9).for_each(|_| stragglers.end(&"a"));
        assert_eq!((stragglers.behind.len(), stragglers.is_empty()), (1, false));
    }
}
