//! What an initiator has been offered.

use crate::reservation::config::Config;
use crate::reservation::window::Window;

/// Most targets that a chunk goes to.
pub const COPIES_MAX: usize = 8;

/// A bid, by the initiator's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Who promises, by its place in the group or however the initiator names it.
    pub target: u16,
    /// What: [`Receipt::window`](crate::reservation::Receipt::window) of the bid's.
    pub window: Window,
    /// Drawn by the initiator. Targets that have nothing to do bid alike; in a fixed order the first of them would get everything.
    pub random: u64,
}

/// The earliest first; those that begin together, or nearly so, in an order of chance.
pub fn sort(config: &Config, offers: &mut [Offer]) {
    let begins = |offer: &Offer| offer.window.left_ns / config.alike_ns.max(1);
    offers.sort_unstable_by_key(|offer| (begins(offer), offer.random, offer.target));
}
