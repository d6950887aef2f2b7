//! The small worlds that are explored completely: scripts of two clients, and bounds on the faults.

use super::{Bounds, Call, op};
use crate::checker::model::{Action, Change, When};

/// Only syncs may be delayed.
pub const SLOW_DISKS: Bounds = Bounds { slow_disks: true, ..Bounds::NONE };
/// A datagram may be lost.
pub const LOSS: Bounds = Bounds { losses: 1, ..Bounds::NONE };
/// A datagram may be lost, and its sender retries.
pub const LOSS_AND_SWEEP: Bounds = Bounds { losses: 1, sweeps: 1, ..Bounds::NONE };
/// A node may crash and be removed.
pub const FAILOVER: Bounds = Bounds { crashes: 1, removals: 1, ..Bounds::NONE };
/// A node may crash and restart.
pub const RESTART: Bounds = Bounds { crashes: 1, restarts: 1, ..Bounds::NONE };
/// A live node may be removed.
pub const SUSPICION: Bounds = Bounds { removals: 1, removes_live: true, ..Bounds::NONE };

/// A script, and the bounds within which every state of it is visited.
pub struct Part {
    /// The clients' calls, in words.
    pub name: &'static str,
    /// The clients' calls.
    pub script: fn() -> Vec<Call>,
    /// The bounds, each explored by itself.
    pub bounds: &'static [Bounds],
}

/// Two updates.
pub const UPDATES: &[Part] = &[
    Part { name: "set, set", script: two_sets, bounds: &[SLOW_DISKS, LOSS] },
    Part { name: "set, delete", script: set_and_delete, bounds: &[SLOW_DISKS, LOSS] },
    Part { name: "increment, increment", script: increments, bounds: &[SLOW_DISKS, LOSS, FAILOVER] },
    Part { name: "put-if-absent twice", script: puts_if_absent, bounds: &[SLOW_DISKS, LOSS, FAILOVER] },
];

/// An update and a get.
pub const GETS: &[Part] = &[
    Part {
        name: "set, get",
        script: set_and_get,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION],
    },
    Part {
        name: "increment, get",
        script: increment_and_get,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION],
    },
];

/// Two updates, one of them in a transaction.
pub const TRANSACTIONS: &[Part] = &[
    Part {
        name: "increment, transaction",
        script: increment_and_transaction,
        bounds: &[SLOW_DISKS, LOSS, FAILOVER],
    },
    Part {
        name: "chain: increment, transaction",
        script: increment_and_transaction,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART],
    },
];

/// Scripts for a chain.
pub const CHAINS: &[Part] = &[
    Part {
        name: "chain: set, set",
        script: two_sets,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION],
    },
    Part {
        name: "chain: increment, increment",
        script: increments,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION],
    },
    Part {
        name: "chain: set, get",
        script: set_and_get,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION],
    },
    Part {
        name: "chain: increment, get",
        script: increment_and_get,
        bounds: &[SLOW_DISKS, LOSS_AND_SWEEP, FAILOVER, RESTART, SUSPICION],
    },
];

fn update(client: usize, condition: When, change: Change) -> Call {
    Call::Update(Action::Update { op: op(client), condition, return_old: false, change })
}

fn set(client: usize) -> Call {
    update(client, When::Always, Change::Set(vec![b'0' + client as u8]))
}

fn increment(client: usize) -> Call {
    update(client, When::Always, Change::Increment(1))
}

/// Two sets.
pub fn two_sets() -> Vec<Call> {
    vec![set(0), set(1)]
}

/// A set and a delete of an existing key.
pub fn set_and_delete() -> Vec<Call> {
    vec![set(0), update(1, When::IfPresent, Change::Delete)]
}

/// Two increments.
pub fn increments() -> Vec<Call> {
    vec![increment(0), increment(1)]
}

/// An increment, and a transaction that first adds to another key, then to the same key.
pub fn increment_and_transaction() -> Vec<Call> {
    let Call::Update(second) = increment(1) else { unreachable!("it is an update") };
    vec![increment(0), Call::Transaction(second)]
}

/// Two sets that require the key to be absent.
pub fn puts_if_absent() -> Vec<Call> {
    let put = |client| update(client, When::IfAbsent, Change::Set(vec![b'0' + client as u8]));
    vec![put(0), put(1)]
}

/// A set and a get.
pub fn set_and_get() -> Vec<Call> {
    vec![set(0), Call::Get]
}

/// An increment and a get.
pub fn increment_and_get() -> Vec<Call> {
    vec![increment(0), Call::Get]
}
