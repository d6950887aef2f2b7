//! Chooses the bids by which a chunk is durable first (Replicast §I-A): when its window is over and the slowest of the chosen
//! disks has written it.
//!
//! Disks that need less time than the chunk takes on the link count as equally fast. Chance decides among them, so that they
//! fill evenly.

use super::shared::Shared;
use crate::reservation::{
    COPIES_MAX, Config, Delivery as How, Offer, Receipt, Window, common_window, sequence,
};
use alloc::vec::Vec;

/// A bid, with the estimated time when its target received the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered {
    pub(super) place: u8,
    pub(super) bid: u64,
    pub(super) receipt: Receipt,
    pub(super) window: Window,
    pub(super) disk_ns: u64,
}

/// A chosen bid, and the window within it.
pub(super) type Taken = (Offered, Window);

/// How many targets must and may get a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) bytes: u32,
    pub(super) least: usize,
    pub(super) most: usize,
}

/// Chooses as many bids as are wanted, if possible; of several such choices, the one that is durable first.
pub(super) fn choose(now_ns: u64, wanted: Wanted, offered: &[Offered], shared: &mut Shared) -> Vec<Taken> {
    let config = shared.config.reservation;
    let of = |(at, of): (usize, &Offered)| Offer {
        target: at as u16,
        window: of.window,
        random: shared.random.bits(),
    };
    let offers: Vec<Offer> = offered.iter().enumerate().map(of).collect();
    let chunk_ns = config.widths(wanted.bytes).chunk_ns.max(1);
    let slowness = |offer: &Offer| offered[usize::from(offer.target)].disk_ns / chunk_ns;
    let mut slowest: Vec<u64> = offers.iter().map(slowness).collect();
    slowest.sort_unstable();
    slowest.dedup();
    let choices = slowest.into_iter().map(|slowest| {
        let among: Vec<Offer> = offers.iter().copied().filter(|offer| slowness(offer) <= slowest).collect();
        let taken = choose_among(&config, now_ns, wanted, offered, among);
        let durable_ns = taken.iter().map(|(of, window)| window.right_ns.saturating_add(of.disk_ns)).max();
        (taken, durable_ns)
    });
    let best = choices.min_by_key(|(taken, durable_ns)| (core::cmp::Reverse(taken.len()), *durable_ns));
    best.map(|(taken, _)| taken).unwrap_or_default()
}

fn choose_among(
    config: &Config,
    now_ns: u64,
    wanted: Wanted,
    offered: &[Offered],
    mut offers: Vec<Offer>,
) -> Vec<Taken> {
    let Wanted { bytes, least, most } = wanted;
    let of = |offer: &Offer| offered[usize::from(offer.target)];
    match config.delivery {
        How::Multicast => {
            let found = (least..=most).rev().filter(|copies| *copies > 0).find_map(|copies| {
                let common = common_window(config, now_ns, bytes, copies, &mut offers)?;
                Some((copies, common))
            });
            let Some((copies, common)) = found else { return Vec::new() };
            offers[common.first..][..copies].iter().map(|offer| (of(offer), common.window)).collect()
        }
        How::Unicast => {
            let picks = sequence(config, now_ns, bytes, most.min(COPIES_MAX), &mut offers);
            picks.iter().map(|pick| (of(&offers[pick.at]), pick.window)).collect()
        }
    }
}
