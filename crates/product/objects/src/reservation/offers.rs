//! The offers that an initiator has: bids, by its own clock.

use crate::reservation::config::Config;
use crate::reservation::window::Window;

/// Targets that a chunk goes to, at most.
pub const COPIES_MAX: usize = 8;

/// A bid, by the initiator's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The target: its place in the group, or any number that the initiator uses for it.
    pub target: u16,
    /// The window: [`Receipt::window`](crate::reservation::Receipt::window) of the bid's offsets.
    pub window: Window,
    /// A random number of the initiator. Idle targets bid alike; in a fixed order the first one would get everything.
    pub random: u64,
}

/// Sorts offers by their start; offers that start at about the same time are in random order.
pub fn sort_offers(config: &Config, offers: &mut [Offer]) {
    let begins = |offer: &Offer| offer.window.left_ns / config.alike_ns.max(1);
    offers.sort_unstable_by_key(|offer| (begins(offer), offer.random, offer.target));
}
