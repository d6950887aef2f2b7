//! Multicast: the window that several targets have in common.

use crate::reservation::config::Config;
use crate::reservation::offers::{Offer, sort_offers};
use crate::reservation::window::Window;

/// The targets that get a chunk, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonWindow {
    /// Index of the first chosen offer; the chosen ones follow each other.
    pub first: usize,
    /// When the chunk is sent.
    pub window: Window,
}

/// The earliest window for a chunk of `bytes` that `copies` consecutive offers have in common. `None` if there is none: then
/// all bids must be cancelled and new ones requested.
///
/// Sorts the offers.
pub fn common_window(
    config: &Config,
    now_ns: u64,
    bytes: u32,
    copies: usize,
    offers: &mut [Offer],
) -> Option<CommonWindow> {
    sort_offers(config, offers);
    let used_ns = config.widths(bytes).used_ns;
    let accepted_ns = now_ns + config.control_ns();
    let together = offers.windows(copies.max(1));
    let tried = together.len().saturating_sub(usize::from(!config.is_last_tried));
    let common = |(first, chosen): (usize, &[Offer])| {
        let left_ns = chosen.iter().map(|offer| offer.window.left_ns).fold(accepted_ns, u64::max);
        let right_ns = chosen.iter().map(|offer| offer.window.right_ns).fold(u64::MAX, u64::min);
        let used_right_ns = left_ns.checked_add(used_ns)?;
        let window = Window { left_ns, right_ns: used_right_ns };
        (used_right_ns <= right_ns).then_some(CommonWindow { first, window })
    };
    together.take(tried).enumerate().find_map(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const BYTES: u32 = 128 << 10;

    fn offers(windows: &[(u64, u64)]) -> Vec<Offer> {
        let offer = |(target, (left_ns, right_ns)): (usize, &(u64, u64))| Offer {
            target: target as u16,
            window: Window { left_ns: *left_ns, right_ns: *right_ns },
            random: 0,
        };
        windows.iter().enumerate().map(offer).collect()
    }

    #[test]
    fn earliest_three_offers_with_enough_in_common_are_chosen() {
        let used = Config::MULTICAST.widths(BYTES).used_ns;
        let mut bids = offers(&[
            (400_000, 400_000 + used + 10),
            (100_000, 100_000 + used),
            (100_005, 100_006 + used),
            (400_010, 400_010 + used),
            (100_001, 100_005 + used),
            (400_005, 400_020 + used),
            (900_000, 900_000 + used),
        ]);
        // The first three offers have a nanosecond too little in common.
        let common = common_window(&Config::MULTICAST, 0, BYTES, 3, &mut bids).unwrap();
        let chosen: Vec<u16> = bids[common.first..][..3].iter().map(|offer| offer.target).collect();
        assert_eq!(chosen, [0, 5, 3]);
        assert_eq!(common.window, Window { left_ns: 400_010, right_ns: 400_010 + used });
    }

    #[test]
    fn window_begins_after_the_accept_has_left() {
        let (config, used) = (Config::MULTICAST, Config::MULTICAST.widths(BYTES).used_ns);
        let mut bids = offers(&[(0, used + config.control_ns() + 7); 4]);
        let common = common_window(&config, 7, BYTES, 3, &mut bids).unwrap();
        assert_eq!(common.window.left_ns, 7 + config.control_ns());
        assert_eq!(common_window(&config, 8, BYTES, 3, &mut bids), None);
    }

    #[test]
    fn last_offer_is_tried_only_if_configured() {
        let mut three = offers(&[(9_000, 900_000); 3]);
        let all = Config { is_last_tried: true, ..Config::MULTICAST };
        assert_eq!(common_window(&Config::MULTICAST, 0, BYTES, 3, &mut three), None);
        assert!(common_window(&all, 0, BYTES, 3, &mut three).is_some());
        assert_eq!(common_window(&all, 0, BYTES, 3, &mut three[..2]), None, "too few");
        assert_eq!(common_window(&all, 0, BYTES, 3, &mut []), None);
    }

    #[test]
    fn chance_decides_among_equal_bids() {
        let mut chosen = [0; 9];
        for seed in 0..900_u64 {
            let mut bids = offers(&[(9_000, 900_000); 9]);
            for offer in &mut bids {
                let mixed = (seed << 8 | u64::from(offer.target)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                offer.random = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8;
            }
            let common = common_window(&Config::MULTICAST, 0, BYTES, 3, &mut bids).unwrap();
            bids[common.first..][..3].iter().for_each(|offer| chosen[usize::from(offer.target)] += 1);
        }
        assert!(chosen.iter().all(|count| (200..400).contains(count)), "{chosen:?}");
    }

    proptest! {
        #[test]
        fn chosen_window_is_within_every_chosen_offer(
            windows in prop::collection::vec((0_u64..400_000, 100_000_u64..300_000), 0..10),
            now in 0_u64..200_000,
            copies in 1_usize..4,
        ) {
            let windows: Vec<_> = windows.into_iter().map(|(left, width)| (left, left + width)).collect();
            let mut bids = offers(&windows);
            let config = Config { is_last_tried: true, ..Config::MULTICAST };
            let used = config.widths(BYTES).used_ns;
            match common_window(&config, now, BYTES, copies, &mut bids) {
                Some(CommonWindow { first, window }) => {
                    prop_assert_eq!(window.width_ns(), used);
                    prop_assert!(window.left_ns >= now + config.control_ns());
                    prop_assert!(bids[first..][..copies].iter().all(|offer| offer.window.contains(&window)));
                }
                // If no choice was made, no window is common to that many consecutive offers.
                None => for chosen in bids.windows(copies) {
                    let left = chosen.iter().map(|offer| offer.window.left_ns).max().unwrap();
                    let right = chosen.iter().map(|offer| offer.window.right_ns).min().unwrap();
                    prop_assert!(left.max(now + config.control_ns()) + used > right);
                },
            }
        }
    }
}
