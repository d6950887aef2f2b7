//! Until when holders may show the copies that they have of an owner.
//!
//! ```text
//!   owner ──HotPulse (serial, until)──▶ holder        the holder's own clock, so that it does not matter how long anything takes
//!         ◀──HotPulsed (clock)──────────               … it was that late there: within a lease from now on that is over there, too
//! ```

use crate::outbox::Outbox;
use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;
use nicekv_wire::Now;
use nicekv_wire::hot::{HotPulse, HotPulsed};

/// For so long a holder may show copies after it was asked for the time.
pub(super) const LEASE_NS: u64 = 30_000_000;
/// Clocks run apart by no more than this part of a time, as with the serving lease (R12).
const DRIFT_DIVISOR: u64 = 8;
/// A holder that was sent no copy for so long has none: each is made anew more often.
const USED_NS: u64 = 2 * super::bounds::REFRESH_NS;
/// Between two leases for a holder.
const PULSE_NS: u64 = LEASE_NS / 3;

/// A holder.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    nonce: u64,
    /// What time it was there when it answered last, and here when the answer came.
    clock_ns: u64,
    heard_ns: u64,
    pulse_ns: u64,
    /// Copies are shown there until then at most, on this node's clock.
    granted_ns: u64,
    /// Of how many names it is to have copies.
    wanted_by: usize,
    /// When it was sent a copy last.
    used_ns: u64,
}

impl Peer {
    /// Whether there is something that it may show.
    fn is_used(&self, now: Now) -> bool {
        self.wanted_by > 0 && self.used_ns > 0 && now.boot_ns < self.used_ns + USED_NS
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    peers: BTreeMap<SocketAddrV4, Peer>,
    /// Copies are shown under the leases of the serial that they were made under.
    serial: u64,
}

impl Leases {
    pub(super) fn new(serial: u64) -> Self {
        Self { peers: BTreeMap::new(), serial }
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// A holder is to have copies of one name more.
    pub(super) fn want(&mut self, holder: SocketAddrV4) {
        self.peers.entry(holder).or_default().wanted_by += 1;
    }

    /// It is sent a copy.
    pub(super) fn note_copy(&mut self, now: Now, holder: SocketAddrV4) {
        if let Some(peer) = self.peers.get_mut(&holder) {
            peer.used_ns = now.boot_ns;
        }
    }

    /// Of one less.
    pub(super) fn unwant(&mut self, holder: SocketAddrV4) {
        if let Some(peer) = self.peers.get_mut(&holder) {
            peer.wanted_by = peer.wanted_by.saturating_sub(1);
        }
    }

    /// A holder answers. Whether it is another process than before, which has nothing.
    pub(super) fn on_pulsed(&mut self, now: Now, from: SocketAddrV4, pulsed: &HotPulsed) -> bool {
        let Some(peer) = self.peers.get_mut(&from).filter(|_| pulsed.nonce != 0) else { return false };
        let is_new = peer.nonce != pulsed.nonce;
        // One that is late says nothing of now.
        if is_new || pulsed.clock_ns > peer.clock_ns {
            (peer.nonce, peer.clock_ns, peer.heard_ns) = (pulsed.nonce, pulsed.clock_ns, now.boot_ns);
        }
        peer.pulse_ns = if is_new { 0 } else { peer.pulse_ns };
        is_new
    }

    /// Begins another serial; until when copies of those before may be shown.
    pub(super) fn renounce(&mut self) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        self.peers.values().map(|peer| peer.granted_ns).max().unwrap_or(0)
    }

    /// Renews what is to be renewed, within this node's own direct lease.
    pub(super) fn pulse(&mut self, now: Now, direct_until_ns: u64, outbox: &mut Outbox) {
        let serial = self.serial;
        self.peers.retain(|_, peer| peer.wanted_by > 0 || peer.granted_ns > now.boot_ns);
        let due = |peer: &Peer| peer.is_used(now) && now.boot_ns >= peer.pulse_ns;
        for (address, peer) in self.peers.iter_mut().filter(|(_, peer)| due(peer)) {
            peer.pulse_ns = now.boot_ns + PULSE_NS;
            let bound_ns = peer.heard_ns + LEASE_NS + LEASE_NS / DRIFT_DIVISOR;
            let may = peer.nonce != 0 && bound_ns > now.boot_ns && bound_ns <= direct_until_ns;
            let (nonce, until_ns) = if may { (peer.nonce, peer.clock_ns + LEASE_NS) } else { (0, 0) };
            if may {
                peer.granted_ns = peer.granted_ns.max(bound_ns);
            }
            outbox.send(*address, |out| HotPulse { serial, nonce, until_ns }.encode(out));
        }
    }

    /// When [`Self::pulse`] is to be called next.
    pub(super) fn next_ns(&self, now: Now) -> u64 {
        let used = self.peers.values().filter(|peer| peer.is_used(now));
        used.map(|peer| peer.pulse_ns).min().unwrap_or(u64::MAX)
    }
}
