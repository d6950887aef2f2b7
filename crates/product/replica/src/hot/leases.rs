//! Leases: until when holders may show the copies of an owner.
//!
//! ```text
//!   owner ──HotPulse (serial, clock, duration)──▶ holder    the lease runs on the holder's clock, from `clock` on
//!         ◀──HotPulsed (serial, clock)───────────           the holder's time: sent before it arrives, so such a lease ends at the holder first
//! ```
//!
//! To revoke copies the owner continues with another serial. A node that answers with the new
//! serial shows no copies of earlier serials any more. If a node does not answer, the owner waits
//! until that node's earlier lease has ended, even if the node's process has restarted.
//!
//! The switch is a holder like any other (H9): it gets `HotLease` and answers with `HotLeased`. But
//! its answer does not end an earlier lease, because pulses may reach it out of order; so its
//! leases are short. The owner need not know which switch it is: a switch whose nonce differs from
//! the pulse's takes no lease, and the owner keeps counting the lease of the switch before it.

use super::bounds::{Name, REFRESH_DOUBLINGS_MAX, REFRESH_NS};
use crate::node::outbox::Outbox;
use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;
use nicekv_proto::Now;
use nicekv_proto::hot::{HotLease, HotLeased, HotPulse, HotPulsed};

/// Longest time for which a node may show copies after it has sent its time. That is about the
/// length of the direct lease (R12), within which it lies. Nodes that hold copies of each other's
/// keys all exchange pulses; longer leases mean fewer pulses.
pub(super) const NODE_LEASE_NS: u64 = 120_000_000;
/// The same for the switch.
pub(super) const SWITCH_LEASE_NS: u64 = 30_000_000;
/// A lease is renewed after 1/3 of its length.
const PULSE_DIVISOR: u64 = 3;
/// A holder that answers with an old serial is asked again after this time.
const AGAIN_NS: u64 = 1_000_000;
/// Clocks may drift apart by 1/8 of the elapsed time, as with the serving lease (R12).
const DRIFT_DIVISOR: u64 = 8;
/// A holder to which no copy was sent for this long has none: each copy is renewed more often.
const USED_NS: u64 = (REFRESH_NS << REFRESH_DOUBLINGS_MAX) + REFRESH_NS;

/// A holder of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// A node.
    Node(SocketAddrV4),
    /// The switch that this node is attached to (H9).
    Switch,
}

impl Peer {
    fn lease_ns(self) -> u64 {
        if self == Self::Switch { SWITCH_LEASE_NS } else { NODE_LEASE_NS }
    }
}

/// The consequences of a holder's answer to a pulse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    /// The answer comes from a new process, which has no copies.
    pub(super) is_new: bool,
    /// It was the last answer needed: revoked copies are shown nowhere any more.
    pub(super) is_last: bool,
}

/// The owner's view of a holder.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    nonce: u64,
    /// The holder's time in its newest answer, and this node's time when that answer arrived.
    clock_ns: u64,
    heard_ns: u64,
    pulse_ns: u64,
    /// Until when the holder may show copies, on this node's clock: those of the current serial
    /// (`granted_ns`), those of earlier serials (`before_ns`), and those of earlier processes at
    /// its address (`former_ns`).
    granted_ns: u64,
    before_ns: u64,
    former_ns: u64,
    /// Number of names of which the holder should have copies.
    wanted_by: usize,
    /// When a copy was last sent to the holder.
    used_ns: u64,
}

impl Known {
    /// Whether the holder may have copies that are wanted.
    fn is_used(&self, now: Now) -> bool {
        self.wanted_by > 0 && self.used_ns > 0 && now.boot_ns < self.used_ns + USED_NS
    }

    /// Whether the owner sends it pulses.
    fn is_asked(&self, now: Now) -> bool {
        self.is_used(now) || self.has_others(now)
    }

    /// Whether it may show revoked copies.
    fn has_others(&self, now: Now) -> bool {
        now.boot_ns < self.before_ns.max(self.former_ns)
    }

    /// The length of the next lease, counted from the holder's last reported time; 0 if the pulse
    /// only asks for its time. The lease ends within this node's direct lease (R12), so other nodes
    /// need not know of it.
    fn grant(&mut self, now: Now, lease_ns: u64, direct_until_ns: u64) -> u64 {
        self.pulse_ns = now.boot_ns + lease_ns / PULSE_DIVISOR;
        let room_ns = direct_until_ns.saturating_sub(self.heard_ns);
        let lease_ns = lease_ns.min(room_ns - room_ns / (DRIFT_DIVISOR + 1));
        let bound_ns = (self.heard_ns + lease_ns + lease_ns / DRIFT_DIVISOR).min(direct_until_ns);
        if self.nonce == 0 || bound_ns <= now.boot_ns {
            return 0;
        }
        self.granted_ns = self.granted_ns.max(bound_ns);
        lease_ns
    }
}

#[derive(Clone, Debug)]
pub(super) struct Leases {
    peers: BTreeMap<Peer, Known>,
    /// Vring address and name of the key whose value was last sent to the switch. Leases are sent
    /// by the same address, so they reach the same switch.
    way: Option<(SocketAddrV4, Name)>,
    /// The current serial. A copy is shown only under a lease of the serial under which it was
    /// made.
    serial: u64,
    /// Whether copies of earlier serials may still be shown.
    awaits: bool,
}

impl Leases {
    pub(super) fn new(serial: u64) -> Self {
        Self { peers: BTreeMap::new(), way: None, serial, awaits: false }
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// A holder should have copies of one more name.
    pub(super) fn want(&mut self, holder: Peer) {
        self.peers.entry(holder).or_default().wanted_by += 1;
    }

    /// A copy is being sent to a holder.
    pub(super) fn note_copy(&mut self, now: Now, holder: Peer) {
        if let Some(known) = self.peers.get_mut(&holder) {
            known.used_ns = now.boot_ns;
        }
    }

    /// A copy is being sent to the switch, through an address of the key's vring.
    pub(super) fn note_value(&mut self, now: Now, vring: SocketAddrV4, name: Name) {
        self.way = Some((vring, name));
        self.note_copy(now, Peer::Switch);
    }

    /// A holder should have copies of one name less.
    pub(super) fn unwant(&mut self, holder: Peer) {
        if let Some(known) = self.peers.get_mut(&holder) {
            known.wanted_by = known.wanted_by.saturating_sub(1);
        }
    }

    /// A node answers a pulse with its nonce, its time and the serial it goes by.
    pub(super) fn on_pulsed(&mut self, now: Now, from: SocketAddrV4, pulsed: &HotPulsed) -> Answered {
        let HotPulsed { nonce, clock_ns, serial } = *pulsed;
        let (peer, is_current) = (Peer::Node(from), serial == self.serial);
        let is_new = self.on_answer(now, peer, nonce, clock_ns);
        let Some(known) = self.peers.get_mut(&peer) else { return Answered::default() };
        if is_current && known.nonce == nonce && !is_new {
            known.before_ns = 0;
        } else if known.has_others(now) {
            known.pulse_ns = known.pulse_ns.min(now.boot_ns + AGAIN_NS);
        }
        let is_last = self.awaits && !self.peers.values().any(|known| known.has_others(now));
        self.awaits &= !is_last;
        Answered { is_new, is_last }
    }

    /// The switch answers a pulse. Returns whether it is a new switch, which has no copies.
    pub(super) fn on_leased(&mut self, now: Now, leased: &HotLeased) -> bool {
        self.on_answer(now, Peer::Switch, leased.nonce, leased.clock_ns)
    }

    fn on_answer(&mut self, now: Now, from: Peer, nonce: u64, clock_ns: u64) -> bool {
        let Some(known) = self.peers.get_mut(&from).filter(|_| nonce != 0) else { return false };
        let is_new = known.nonce != nonce;
        // An answer that was overtaken by a newer one says nothing about the present.
        if is_new || clock_ns > known.clock_ns {
            (known.nonce, known.clock_ns, known.heard_ns) = (nonce, clock_ns, now.boot_ns);
        }
        if is_new {
            // Leases of the earlier process still have to be waited for.
            known.former_ns = known.former_ns.max(known.before_ns).max(known.granted_ns);
            (known.before_ns, known.granted_ns, known.pulse_ns) = (0, 0, 0);
        }
        is_new
    }

    /// Begins another serial, which revokes all copies. Returns until when copies of earlier
    /// serials may be shown if their holders do not confirm the revocation earlier.
    pub(super) fn renounce(&mut self) -> u64 {
        self.serial = self.serial.wrapping_add(1);
        self.awaits = true;
        for known in self.peers.values_mut() {
            (known.before_ns, known.granted_ns) = (known.before_ns.max(known.granted_ns), 0);
            known.pulse_ns = 0;
        }
        let before = self.peers.values().map(|known| known.before_ns.max(known.former_ns));
        before.max().unwrap_or(0)
    }

    /// Renews leases that are due, within this node's own direct lease.
    pub(super) fn pulse(&mut self, now: Now, direct_until_ns: u64, outbox: &mut Outbox) {
        let Self { peers, way, serial, .. } = self;
        let counts =
            |known: &Known| known.wanted_by > 0 || known.granted_ns > now.boot_ns || known.has_others(now);
        peers.retain(|_, known| counts(known));
        let due = |known: &Known| known.is_asked(now) && now.boot_ns >= known.pulse_ns;
        for (peer, known) in peers.iter_mut().filter(|(_, known)| due(known)) {
            let lease_ns = known.grant(now, peer.lease_ns(), direct_until_ns);
            let Known { nonce, clock_ns, .. } = *known;
            match (peer, *way) {
                (Peer::Node(address), _) => {
                    let pulse = HotPulse { serial: *serial, nonce, clock_ns, lease_ns };
                    outbox.send(*address, |out| pulse.encode(out));
                }
                (Peer::Switch, Some((vring, (keyspace, digest)))) => {
                    let (nonce, until_ns) = if lease_ns == 0 { (0, 0) } else { (nonce, clock_ns + lease_ns) };
                    let lease = HotLease { keyspace, digest, nonce, until_ns, serial: *serial };
                    outbox.send(vring, |out| lease.encode(out));
                }
                (Peer::Switch, None) => {}
            }
        }
    }

    /// When to call [`Self::pulse`] next.
    pub(super) fn next_ns(&self, now: Now) -> u64 {
        let asked = self.peers.values().filter(|known| known.is_asked(now));
        asked.map(|known| known.pulse_ns).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::holder::Holder;
    use super::*;
    use core::net::Ipv4Addr;
    use nicekv_proto::{Datagram, KeyDigest, KeyspaceId, NodeId};
    use std::vec::Vec;

    const START_NS: u64 = 1_000_000_000;

    fn now(after_ns: u64) -> Now {
        Now { boot_ns: START_NS + after_ns, unix_ms: 0 }
    }

    fn pulsed(leases: &mut Leases, after_ns: u64, direct_until_ns: u64) -> Option<HotLease> {
        let (mut outbox, mut bytes) = (Outbox::new(NodeId(1)), Vec::new());
        leases.pulse(now(after_ns), direct_until_ns, &mut outbox);
        outbox.poll(&mut bytes)?;
        match Datagram::decode(&bytes).expect("a valid datagram").1 {
            Datagram::HotLease(lease) => Some(lease),
            other => panic!("{other:?}"),
        }
    }

    fn of_switch(nonce: u64, clock_ns: u64) -> HotLeased {
        HotLeased { keyspace: KeyspaceId(1), digest: KeyDigest([7; 16]), nonce, clock_ns, serial: 0 }
    }

    fn told() -> Leases {
        let mut leases = Leases::new(1);
        leases.want(Peer::Switch);
        let vring = SocketAddrV4::new(Ipv4Addr::new(10, 10, 1, 2), 7400);
        leases.note_value(now(0), vring, (KeyspaceId(1), KeyDigest([7; 16])));
        leases
    }

    #[test]
    fn lease_of_a_former_switch_is_waited_for() {
        let mut leases = told();
        let asked = pulsed(&mut leases, 0, u64::MAX).expect("a pulse asks for the switch's time");
        assert_eq!((asked.nonce, asked.until_ns, asked.serial), (0, 0, 1), "the switch is not known yet");
        assert!(leases.on_leased(now(0), &of_switch(77, 500)));
        let granted = pulsed(&mut leases, 0, u64::MAX).expect("a lease");
        assert_eq!((granted.nonce, granted.until_ns), (77, 500 + SWITCH_LEASE_NS));
        assert!(
            leases.on_leased(now(1), &of_switch(78, 9)),
            "another nonce means a new switch without copies"
        );
        let bound_ns = START_NS + SWITCH_LEASE_NS + SWITCH_LEASE_NS / DRIFT_DIVISOR;
        assert_eq!(leases.renounce(), bound_ns, "the first switch may show copies until then");
        assert_eq!(pulsed(&mut leases, 2, u64::MAX).map(|lease| (lease.nonce, lease.serial)), Some((78, 2)));
    }

    #[test]
    fn leases_end_within_the_direct_lease() {
        let mut leases = told();
        leases.on_leased(now(0), &of_switch(77, 500));
        let asked = pulsed(&mut leases, 0, START_NS).expect("a pulse asks for the switch's time");
        assert_eq!((asked.nonce, asked.until_ns), (0, 0));
        assert_eq!(leases.renounce(), 0);
        let granted =
            pulsed(&mut leases, 0, START_NS + 9_000).expect("a lease that ends within the direct lease");
        assert_eq!((granted.nonce, granted.until_ns), (77, 500 + 8_000));
        assert_eq!(leases.renounce(), START_NS + 9_000);
    }

    /// An owner, a holder, and a network that reorders, delays and duplicates messages.
    struct Walk {
        leases: Leases,
        holder: Holder,
        after_ns: u64,
        pulses: Vec<HotPulse>,
        answers: Vec<HotPulsed>,
        /// Copies of serials below this one must not be shown any more.
        first: u64,
    }

    const OWNER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7400);
    const HOLDER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);

    impl Walk {
        fn new() -> Self {
            let mut leases = Leases::new(1);
            leases.want(Peer::Node(HOLDER));
            leases.note_copy(now(0), Peer::Node(HOLDER));
            let (pulses, answers) = (Vec::new(), Vec::new());
            Self { leases, holder: Holder::new(9), after_ns: 0, pulses, answers, first: 1 }
        }

        fn sent(outbox: &mut Outbox) -> Option<Datagram<'static>> {
            let mut bytes = Vec::new();
            outbox.poll(&mut bytes)?;
            Some(match Datagram::decode(&bytes).expect("a valid datagram").1 {
                Datagram::HotPulse(pulse) => Datagram::HotPulse(pulse),
                Datagram::HotPulsed(pulsed) => Datagram::HotPulsed(pulsed),
                other => panic!("{other:?}"),
            })
        }

        fn step(&mut self, random: u64) {
            let (now, mut outbox) = (now(self.after_ns), Outbox::new(NodeId(1)));
            let (which, place) = (random % 16, (random >> 8) as usize);
            match which {
                0..4 => self.after_ns += NODE_LEASE_NS / 12,
                4 => {
                    let until_ns = self.leases.renounce();
                    if until_ns <= now.boot_ns {
                        self.first = self.leases.serial();
                    }
                }
                // The holder's process restarts with another nonce.
                5 if place.is_multiple_of(8) => self.holder = Holder::new(random),
                5..9 => {
                    // The owner sends new copies and a pulse.
                    self.leases.note_copy(now, Peer::Node(HOLDER));
                    self.leases.pulse(now, u64::MAX, &mut outbox);
                    self.pulses.extend(Self::sent(&mut outbox).map(|sent| match sent {
                        Datagram::HotPulse(pulse) => pulse,
                        other => panic!("{other:?}"),
                    }));
                }
                9..13 if !self.pulses.is_empty() => {
                    let pulse = self.pulses[place % self.pulses.len()];
                    self.holder.on_pulse(now, OWNER, &pulse, &mut outbox);
                    self.answers.extend(Self::sent(&mut outbox).map(|sent| match sent {
                        Datagram::HotPulsed(pulsed) => pulsed,
                        other => panic!("{other:?}"),
                    }));
                }
                13..16 if !self.answers.is_empty() => {
                    let answer = self.answers[place % self.answers.len()];
                    if self.leases.on_pulsed(now, HOLDER, &answer).is_last {
                        self.first = self.leases.serial();
                    }
                }
                _ => {}
            }
        }

        /// Returns the number of correct steps, how often revoked copies were confirmed as gone,
        /// and how often copies were shown.
        fn run(&mut self, seed: u64) -> (usize, usize, usize) {
            let (mut random, mut taken_back, mut shown) = (seed, 0, 0);
            for step in 0..400 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let first = self.first;
                self.step(random >> 20);
                taken_back += usize::from(self.first > first);
                let serial = self.holder.shows(now(self.after_ns), OWNER);
                shown += usize::from(serial.is_some());
                if serial.is_some_and(|serial| serial < self.first) {
                    return (step, taken_back, shown);
                }
            }
            (400, taken_back, shown)
        }
    }

    #[test]
    fn holders_show_no_copies_after_confirming_revocation() {
        let (mut taken_back, mut shown) = (0, 0);
        for seed in 1..=5_000 {
            let run = Walk::new().run(seed);
            assert_eq!(run.0, 400, "seed {seed}");
            (taken_back, shown) = (taken_back + run.1, shown + run.2);
        }
        std::println!("taken back {taken_back} times, shown after {shown} steps");
        assert!(taken_back > 5_000 && shown > 100_000, "{taken_back}, {shown}");
    }
}
