//! Until when holders may show the copies that they have of an owner.
//!
//! ```text
//!   owner ──HotPulse (serial, until)──▶ holder        the holder's own clock, so that it does not matter how long anything takes
//!         ◀──HotPulsed (clock)──────────               … it was that late there: within a lease from now on that is over there, too
//! ```
//!
//! The switch is a holder like any other (H9), which is asked by `HotLease` and answers by `HotLeased`. Which switch that is nobody asks: one of another nonce than the
//! pulse's takes no lease, and what was granted to the one before counts on.

use super::bounds::{Name, REFRESH_DOUBLINGS_MAX, REFRESH_NS};
use crate::outbox::Outbox;
use crate::plant::Plant;
use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;
use nicekv_wire::Now;
use nicekv_wire::hot::{HotLease, HotPulse};

/// For so long a holder may show copies after it was asked for the time.
pub(super) const LEASE_NS: u64 = 30_000_000;
/// Clocks run apart by no more than this part of a time, as with the serving lease (R12).
const DRIFT_DIVISOR: u64 = 8;
/// A holder that was sent no copy for so long has none: each is made anew more often.
const USED_NS: u64 = (REFRESH_NS << REFRESH_DOUBLINGS_MAX) + REFRESH_NS;
/// Between two leases for a holder.
const PULSE_NS: u64 = LEASE_NS / 3;

/// Who may show copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// A node.
    Node(SocketAddrV4),
    /// The switch where this node hangs (H9).
    Switch,
}

/// What is known of a holder.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
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

impl Known {
    /// Whether there is something that it may show.
    fn is_used(&self, now: Now) -> bool {
        self.wanted_by > 0 && self.used_ns > 0 && now.boot_ns < self.used_ns + USED_NS
    }

    /// The next lease: for whom, and until when on the clock there; zeros if it is only asked for the time.
    fn grant(&mut self, now: Now, direct_until_ns: u64) -> (u64, u64) {
        self.pulse_ns = now.boot_ns + PULSE_NS;
        let bound_ns = self.heard_ns + LEASE_NS + LEASE_NS / DRIFT_DIVISOR;
        if self.nonce == 0 || bound_ns <= now.boot_ns || bound_ns > direct_until_ns {
            return (0, 0);
        }
        self.granted_ns = self.granted_ns.max(bound_ns);
        (self.nonce, self.clock_ns + LEASE_NS)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Leases {
    peers: BTreeMap<Peer, Known>,
    /// By which key the switch was told last: what is said there again meets it.
    way: Option<(SocketAddrV4, Name)>,
    /// Copies are shown under the leases of the serial that they were made under.
    serial: u64,
}

impl Leases {
    pub(super) fn new(serial: u64) -> Self {
        Self { peers: BTreeMap::new(), way: None, serial }
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// A holder is to have copies of one name more.
    pub(super) fn want(&mut self, holder: Peer) {
        self.peers.entry(holder).or_default().wanted_by += 1;
    }

    /// It is sent a copy.
    pub(super) fn note_copy(&mut self, now: Now, holder: Peer) {
        if let Some(known) = self.peers.get_mut(&holder) {
            known.used_ns = now.boot_ns;
        }
    }

    /// The switch is sent a copy, by an address of the key's vring.
    pub(super) fn note_value(&mut self, now: Now, vring: SocketAddrV4, name: Name) {
        self.way = Some((vring, name));
        self.note_copy(now, Peer::Switch);
    }

    /// Of one less.
    pub(super) fn unwant(&mut self, holder: Peer) {
        if let Some(known) = self.peers.get_mut(&holder) {
            known.wanted_by = known.wanted_by.saturating_sub(1);
        }
    }

    /// A holder says its name and the time. Whether it is another process than before, which has nothing.
    pub(super) fn on_answer(&mut self, now: Now, from: Peer, nonce: u64, clock_ns: u64) -> bool {
        let Some(known) = self.peers.get_mut(&from).filter(|_| nonce != 0) else { return false };
        let is_new = known.nonce != nonce;
        // One that is late says nothing of now.
        if is_new || clock_ns > known.clock_ns {
            (known.nonce, known.clock_ns, known.heard_ns) = (nonce, clock_ns, now.boot_ns);
        }
        known.pulse_ns = if is_new { 0 } else { known.pulse_ns };
        is_new
    }

    /// Begins another serial; until when copies of those before may be shown.
    pub(super) fn renounce(&mut self, plant: Option<Plant>) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        let counts = |peer: &Peer| *peer != Peer::Switch || plant != Some(Plant::HotSwitchGrantForgotten);
        let granted = self.peers.iter().filter(|(peer, _)| counts(peer)).map(|(_, known)| known.granted_ns);
        granted.max().unwrap_or(0)
    }

    /// Renews what is to be renewed, within this node's own direct lease.
    pub(super) fn pulse(&mut self, now: Now, direct_until_ns: u64, outbox: &mut Outbox) {
        let Self { peers, way, serial } = self;
        peers.retain(|_, known| known.wanted_by > 0 || known.granted_ns > now.boot_ns);
        let due = |known: &Known| known.is_used(now) && now.boot_ns >= known.pulse_ns;
        for (peer, known) in peers.iter_mut().filter(|(_, known)| due(known)) {
            let (nonce, until_ns) = known.grant(now, direct_until_ns);
            match (peer, *way) {
                (Peer::Node(address), _) => {
                    outbox.send(*address, |out| HotPulse { serial: *serial, nonce, until_ns }.encode(out));
                }
                (Peer::Switch, Some((vring, (keyspace, digest)))) => {
                    let lease = HotLease { keyspace, digest, nonce, until_ns, serial: *serial };
                    outbox.send(vring, |out| lease.encode(out));
                }
                (Peer::Switch, None) => {}
            }
        }
    }

    /// When [`Self::pulse`] is to be called next.
    pub(super) fn next_ns(&self, now: Now) -> u64 {
        let used = self.peers.values().filter(|known| known.is_used(now));
        used.map(|known| known.pulse_ns).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use nicekv_wire::{Datagram, KeyDigest, KeyspaceId, NodeId};
    use std::vec::Vec;

    const START_NS: u64 = 1_000_000_000;

    fn now(after_ns: u64) -> Now {
        Now { boot_ns: START_NS + after_ns, unix_ms: 0 }
    }

    fn pulsed(leases: &mut Leases, after_ns: u64, direct_until_ns: u64) -> Option<HotLease> {
        let (mut outbox, mut bytes) = (Outbox::new(NodeId(1)), Vec::new());
        leases.pulse(now(after_ns), direct_until_ns, &mut outbox);
        outbox.poll(&mut bytes)?;
        match Datagram::decode(&bytes).expect("one of ours").1 {
            Datagram::HotLease(lease) => Some(lease),
            other => panic!("{other:?}"),
        }
    }

    fn told() -> Leases {
        let mut leases = Leases::new(1);
        leases.want(Peer::Switch);
        let vring = SocketAddrV4::new(Ipv4Addr::new(10, 10, 1, 2), 7400);
        leases.note_value(now(0), vring, (KeyspaceId(1), KeyDigest([7; 16])));
        leases
    }

    #[test]
    fn what_a_switch_was_granted_counts_when_the_node_hangs_at_another_one() {
        let mut leases = told();
        let asked = pulsed(&mut leases, 0, u64::MAX).expect("the time is asked for");
        assert_eq!((asked.nonce, asked.until_ns, asked.serial), (0, 0, 1), "nothing is known of it yet");
        assert!(leases.on_answer(now(0), Peer::Switch, 77, 500));
        let granted = pulsed(&mut leases, 0, u64::MAX).expect("a lease");
        assert_eq!((granted.nonce, granted.until_ns), (77, 500 + LEASE_NS));
        assert!(leases.on_answer(now(1), Peer::Switch, 78, 9), "another one has nothing");
        let bound_ns = START_NS + LEASE_NS + LEASE_NS / DRIFT_DIVISOR;
        assert_eq!(leases.renounce(None), bound_ns, "the first one may show copies until then");
        assert_eq!(pulsed(&mut leases, 2, u64::MAX).map(|lease| (lease.nonce, lease.serial)), Some((78, 2)));
    }

    #[test]
    fn the_switch_gets_no_lease_beyond_the_direct_one() {
        let mut leases = told();
        leases.on_answer(now(0), Peer::Switch, 77, 500);
        let asked = pulsed(&mut leases, 0, START_NS + LEASE_NS).expect("the time is asked for");
        assert_eq!((asked.nonce, asked.until_ns), (0, 0));
        assert_eq!(leases.renounce(None), 0);
    }
}
