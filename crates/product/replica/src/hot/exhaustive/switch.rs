//! Model of the switch: it counts updates, and may hold a copy itself (H9).
//!
//! It accepts every value of its instance, in whatever order values arrive. Its answers are correct
//! because it checks the count twice (before and after it copies the value) and checks the lease.

use super::world::{Bugs, INSTANCE, owner_of};
use nicekv_proto::Now;
use nicekv_proto::hot::{HotLease, HotLeased, HotValue, Stamp};

const NONCE: u64 = 77;

#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) seen: u64,
    kept: Option<Kept>,
    /// For each owner: the serial of its lease, and the time when the lease ends.
    leases: [(u64, u64); 2],
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    stamp: Stamp,
    serial: u64,
    value: u32,
}

impl Default for Switch {
    fn default() -> Self {
        Self { seen: 1, kept: None, leases: [(0, 0); 2] }
    }
}

impl Switch {
    pub(super) fn stamp(&self) -> Stamp {
        Stamp { instance: INSTANCE, seen: self.seen }
    }

    pub(super) fn keep(&mut self, value: &HotValue<'_>) {
        let shown = value.reply.last().expect("a value of one byte");
        let (stamp, serial) = (value.stamp, value.serial);
        self.kept = Some(Kept { stamp, serial, value: u32::from(*shown) });
    }

    pub(super) fn on_lease(&mut self, now: Now, lease: &HotLease) -> HotLeased {
        let HotLease { keyspace, digest, nonce, until_ns, serial } = *lease;
        if nonce == NONCE {
            self.leases[owner_of(serial)] = (serial, until_ns);
        }
        HotLeased { keyspace, digest, nonce: NONCE, clock_ns: now.boot_ns, serial }
    }

    /// The first check, when a get passes: may the stored value be shown? Returns its label and
    /// serial.
    pub(super) fn look(&self, now: Now, bugs: Bugs) -> Option<(Stamp, u64)> {
        let Kept { stamp, serial, .. } = self.kept?;
        let (leased, until_ns) = self.leases[owner_of(serial)];
        let has_lease = (leased == serial && now.boot_ns < until_ns) || bugs.switch_lease_unchecked;
        let is_newest = stamp == self.stamp() || bugs.stale_shown;
        (has_lease && is_newest).then_some((stamp, serial))
    }

    /// The value is copied, then the second check: neither the stored value nor the count has
    /// changed since the first.
    pub(super) fn answer(&self, found: (Stamp, u64), bugs: Bugs) -> Option<u32> {
        let Kept { stamp, serial, value } = self.kept?;
        let is_same = (stamp, serial) == found && (stamp == self.stamp() || bugs.stale_shown);
        (is_same || bugs.looks_once).then_some(value)
    }
}
