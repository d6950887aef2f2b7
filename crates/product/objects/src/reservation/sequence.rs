//! Unicast: windows of several targets, one after the other.

use crate::reservation::config::Config;
use crate::reservation::offers::{COPIES_MAX, Offer, sort_offers};
use crate::reservation::window::Window;

/// Offers after the earliest one that are searched for an idle target.
const IDLE_SEARCHED: usize = 2;
/// Largest gap between two windows of a sequence: the time of this many control messages, or of a frame.
const GAP_CONTROLS: u64 = 3;

/// A target that gets the chunk, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Index of the offer, in sorted order.
    pub at: usize,
    /// The window, within the offer.
    pub window: Window,
}

/// Picks in the order of time.
#[derive(Clone, Copy, Debug)]
pub struct Picks {
    picks: [Pick; COPIES_MAX],
    count: usize,
}

impl core::ops::Deref for Picks {
    type Target = [Pick];

    fn deref(&self) -> &[Pick] {
        &self.picks[..self.count]
    }
}

impl Picks {
    const NONE: Self = {
        let nothing = Pick { at: 0, window: Window { left_ns: 0, right_ns: 0 } };
        Self { picks: [nothing; COPIES_MAX], count: 0 }
    };

    fn push(&mut self, at: usize, window: Window) {
        self.picks[self.count] = Pick { at, window };
        self.count += 1;
    }

    fn has(&self, at: usize) -> bool {
        self.iter().any(|pick| pick.at == at)
    }
}

/// Picks the earliest offer and those that follow it without a gap, at most `copies`. If none follows, an idle target is
/// preferred to one that is hardly earlier, and gets all that it offers, so that it bids later windows to others. Empty if no
/// offer is long enough. No window begins before an accept that leaves now.
///
/// Sorts the offers.
pub fn sequence(config: &Config, now_ns: u64, bytes: u32, copies: usize, offers: &mut [Offer]) -> Picks {
    sort_offers(config, offers);
    let (used_ns, copies) = (config.widths(bytes).used_ns, copies.min(COPIES_MAX));
    let gap_ns = config.frame_ns().max(GAP_CONTROLS * config.control_ns());
    let mut picks = Picks::NONE;
    // The part of an offer that would be used, if it begins at this time or when the offer does.
    let used = |offer: &Offer, from_ns: u64| {
        let left_ns = offer.window.left_ns.max(from_ns);
        let right_ns = left_ns.checked_add(used_ns).filter(|right_ns| *right_ns <= offer.window.right_ns)?;
        Some(Window { left_ns, right_ns })
    };
    let accepted_ns = now_ns + config.control_ns();
    let mut from_ns = accepted_ns;
    let mut until_ns = u64::MAX;
    while picks.len() < copies {
        let soon = offers.iter().enumerate().take_while(|(_, offer)| offer.window.left_ns <= until_ns);
        let mut free = soon.filter(|(at, _)| !picks.has(*at));
        let Some((at, window)) = free.find_map(|(at, offer)| Some((at, used(offer, from_ns)?))) else {
            break;
        };
        picks.push(at, window);
        from_ns = window.right_ns;
        until_ns = from_ns.saturating_add(gap_ns);
    }
    if let [alone] = *picks
        && offers.len() > IDLE_SEARCHED
    {
        picks.picks[0] = prefer_idle(config.frame_ns(), accepted_ns, alone, offers);
    }
    picks
}

fn prefer_idle(frame_ns: u64, accepted_ns: u64, alone: Pick, offers: &[Offer]) -> Pick {
    let others = offers.iter().enumerate().skip(alone.at + 1).take(IDLE_SEARCHED);
    others.fold(alone, |best, (at, Offer { window, .. })| {
        let window = Window { left_ns: window.left_ns.max(accepted_ns), ..*window };
        let is_soon = window.left_ns < best.window.left_ns + frame_ns;
        let is_idle = window.width_ns() > alone.window.width_ns() + frame_ns;
        if is_soon && is_idle { Pick { at, window } } else { best }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const BYTES: u32 = 128 << 10;
    const CONFIG: Config = Config::UNICAST;

    fn offers(windows: &[(u64, u64)]) -> Vec<Offer> {
        let offer = |(target, (left_ns, width_ns)): (usize, &(u64, u64))| Offer {
            target: target as u16,
            window: Window { left_ns: *left_ns, right_ns: left_ns + width_ns },
            random: target as u64,
        };
        windows.iter().enumerate().map(offer).collect()
    }

    fn chosen(windows: &[(u64, u64)], copies: usize) -> Vec<(u16, u64, u64)> {
        let mut offers = offers(windows);
        let picks = sequence(&CONFIG, 0, BYTES, copies, &mut offers);
        let of = |pick: &Pick| (offers[pick.at].target, pick.window.left_ns, pick.window.width_ns());
        picks.iter().map(of).collect()
    }

    #[test]
    fn windows_follow_each_other_and_are_trimmed() {
        let (used, frame) = (CONFIG.widths(BYTES).used_ns, CONFIG.frame_ns());
        let window = used + CONFIG.trip_ns;
        let second = 10_000 + used;
        // The second offer is wide enough to begin where the first one ends; the third begins a
        // frame later; the fourth would fit, too.
        let third = second + used + frame;
        let bids = [(third, window), (10_000, window), (12_000, 2 * used), (third + 1, window)];
        assert_eq!(chosen(&bids, 3), [(1, 10_000, used), (2, second, used), (0, third, used)]);
        assert_eq!(chosen(&bids, 2), [(1, 10_000, used), (2, second, used)]);
        assert_eq!(chosen(&[(10_000, window), (second + frame + 1, window)], 3), [(0, 10_000, used)]);
        assert_eq!(chosen(&[(10_000, used - 1)], 3), [], "too short");
    }

    #[test]
    fn idle_target_is_preferred_and_gets_all_that_it_offers() {
        let (used, frame) = (CONFIG.widths(BYTES).used_ns, CONFIG.frame_ns());
        let (window, idle) = (used + CONFIG.trip_ns, used + frame + 1);
        let soon = 10_000 + frame - 1;
        assert_eq!(chosen(&[(10_000, window), (soon, idle), (50_000, window)], 3), [(1, soon, idle)]);
        assert_eq!(chosen(&[(10_000, window), (20_000, window), (soon, idle)], 1), [(2, soon, idle)]);
        assert_eq!(chosen(&[(10_000, window), (soon + 1, idle), (50_000, window)], 3), [(0, 10_000, used)]);
        assert_eq!(chosen(&[(10_000, window), (soon, idle)], 3), [(0, 10_000, used)], "of too few");
    }

    proptest! {
        #[test]
        fn picks_are_within_their_offers_and_follow_each_other(
            windows in prop::collection::vec((0_u64..400_000, 100_000_u64..500_000), 0..10),
            copies in 0_usize..10,
            now in 0_u64..500_000,
        ) {
            let mut bids = offers(&windows);
            let picks = sequence(&CONFIG, now, BYTES, copies, &mut bids);
            prop_assert!(picks.len() <= copies.min(COPIES_MAX));
            let used = CONFIG.widths(BYTES).used_ns;
            let accepted = now + CONFIG.control_ns();
            let is_short = |offer: &Offer| offer.window.right_ns < offer.window.left_ns.max(accepted) + used;
            prop_assert_eq!(picks.is_empty(), copies == 0 || bids.iter().all(is_short));
            prop_assert!(picks.iter().all(|pick| pick.window.left_ns >= accepted));
            prop_assert!(picks.iter().all(|pick| bids[pick.at].window.contains(&pick.window) && pick.window.width_ns() >= used));
            for pair in picks.windows(2) {
                prop_assert!(pair[0].at != pair[1].at && pair[0].window.right_ns <= pair[1].window.left_ns);
                prop_assert!(pair[1].window.left_ns <= pair[0].window.right_ns + CONFIG.frame_ns());
            }
        }
    }
}
