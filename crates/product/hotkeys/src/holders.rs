//! How many servers hold a key, which ones, and which of them gets the next request (KVSwitch
//! §4.1.2, §4.2.2).

use crate::config::HOLDERS_MAX;
use crate::predict::MicroQueries;
use alloc::vec::Vec;

/// The servers over which load is spread, as places on a ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// For each place, whether its server may take copies now.
    pub available: &'a [bool],
}

impl Ring<'_> {
    /// M: the number of places on the ring.
    pub fn servers(&self) -> u16 {
        self.available.len() as u16
    }

    /// Whether a server may take copies now.
    pub fn is_available(&self, server: u16) -> bool {
        self.available.get(usize::from(server)).copied().unwrap_or(false)
    }

    /// The maximum number of holders that a key can have now, including its owner.
    fn most(&self) -> u16 {
        let others = self.available.iter().filter(|available| **available).count();
        others.clamp(1, usize::from(HOLDERS_MAX)) as u16
    }
}

/// r: the number of holders of a key with load L. While L ≤ T, the owner alone; otherwise ⌈L ÷ T⌉,
/// at most all servers.
pub fn holder_count(load: MicroQueries, threshold: MicroQueries, ring: &Ring<'_>) -> u16 {
    let wanted = load.0.div_ceil(threshold.0.max(1));
    wanted.clamp(1, u64::from(ring.most())) as u16
}

/// The holders of a key: its owner, then every ⌊M ÷ r⌋-th server of the ring. A server that is not
/// available is replaced by the next one that is available and not yet a holder. If there are fewer
/// than r servers, all of them are holders.
pub fn place_holders(owner: u16, copies: u16, ring: &Ring<'_>) -> Vec<u16> {
    let servers = ring.servers();
    let mut holders = Vec::from([owner]);
    if servers == 0 {
        return holders;
    }
    let copies = copies.clamp(1, servers.min(HOLDERS_MAX));
    let step = u32::from(servers / copies);
    for copy in 1..u32::from(copies) {
        let first = u32::from(owner) + copy * step;
        let from_there =
            (0..u32::from(servers)).map(|further| ((first + further) % u32::from(servers)) as u16);
        let next = |server: &u16| ring.is_available(*server) && !holders.contains(server);
        if let Some(server) = from_there.into_iter().find(next) {
            holders.push(server);
        }
    }
    holders
}

/// The holder that a get is sent to: the valid holders take turns, by the key's round-robin
/// register. `None` if none is valid: then the get goes to the owner.
///
/// Bit `i` of `valid` is set if holder `i` is valid. In the kernel, this is a loop over the bits of
/// the word.
pub fn choose_holder(turn: u32, valid: u64) -> Option<u16> {
    let valid_holders = valid.count_ones();
    if valid_holders == 0 {
        return None;
    }
    let mut left = turn % valid_holders;
    for holder in 0..HOLDERS_MAX {
        if valid >> holder & 1 == 1 {
            if left == 0 {
                return Some(holder);
            }
            left -= 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// KVSwitch's Fig. 4, with servers from 1 to 8.
    #[test]
    fn the_papers_figure() {
        let ring = Ring { available: &[true; 8] };
        let placed = |owner: u16, copies| {
            place_holders(owner - 1, copies, &ring).into_iter().map(|server| server + 1).collect::<Vec<_>>()
        };
        assert_eq!(placed(1, 4), [1, 3, 5, 7]);
        assert_eq!(placed(4, 5), [4, 5, 6, 7, 8]);
        assert_eq!(placed(7, 4), [7, 1, 3, 5], "places wrap around the ring");
    }

    #[test]
    fn key_at_the_threshold_is_not_copied() {
        let ring = Ring { available: &[true; 32] };
        let holder_count = |load| holder_count(MicroQueries(load), MicroQueries(100), &ring);
        assert_eq!([0, 100, 101, 200, 201, 3_100, u64::MAX].map(holder_count), [1, 1, 2, 2, 3, 31, 32]);
        assert_eq!(
            super::holder_count(MicroQueries(5), MicroQueries(0), &ring),
            5,
            "a threshold of 0 counts as 1"
        );
    }

    #[test]
    fn turns_are_even_among_valid_holders() {
        let valid = 0b1010_0110;
        let mut counts = [0; 8];
        (0..400).for_each(|turn| counts[usize::from(choose_holder(turn, valid).unwrap())] += 1);
        assert_eq!(counts, [0, 100, 100, 0, 0, 100, 0, 100]);
        assert_eq!(
            (choose_holder(7, 0), choose_holder(64, u64::MAX), choose_holder(u32::MAX, 1)),
            (None, Some(0), Some(0))
        );
    }

    proptest! {
        #[test]
        fn holders_are_distinct_and_available(
            available in prop::collection::vec(prop::bool::weighted(0.8), 1..100),
            owner in 0_u16..100,
            copies in 0_u16..200,
        ) {
            let ring = Ring { available: &available };
            let owner = owner % ring.servers();
            let holders = place_holders(owner, copies, &ring);
            let distinct: BTreeSet<_> = holders.iter().collect();
            prop_assert_eq!((holders[0], distinct.len()), (owner, holders.len()));
            prop_assert!(holders[1..].iter().all(|holder| available[usize::from(*holder)]));
            let others = (0..ring.servers()).filter(|server| *server != owner && available[usize::from(*server)]).count();
            let wanted = usize::from(copies.clamp(1, HOLDERS_MAX.min(ring.servers())));
            prop_assert_eq!(holders.len(), wanted.min(others + 1), "the wanted number, or all available servers");
        }
    }
}
