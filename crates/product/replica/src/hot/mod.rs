//! Copies of hot keys at nodes that are not members of the key's partition, and in the switch
//! (KVSwitch §3.2, §4.2; rules H1 to H9).
//!
//! ```text
//!   client ──Update──▶ switch ──Update, (i, s+1)──▶ owner: note, prepare … may it decide? … decide, show
//!                                                     └──HotCopy (i, s+1)──▶ holder ──HotConfirm──▶ switch
//!   client ──Get─────▶ switch ──Get, (i, s+1)──▶ holder: a copy of i, of s+1 or later, and a lease of its owner? ──Reply──▶ client
//!                                                                                                     no ──Get──▶ owner
//! ```
//!
//! The *owner* is the primary of the key's partition ([`Owner`]), a *holder* is any other node at
//! the owner's switch ([`Holder`]). The switch and the metadata service decide where copies should
//! be and which gets go there. Correctness does not depend on their choices, with two exceptions:
//! the numbers that a switch writes for an instance never decrease, and no two switches have the
//! same instance (H1, H8).
//!
//! A copy labelled (i, n) contains every update that the owner decided before it made the copy. It
//! may be shown to gets that were stamped with i and a number of at most n. So the owner must not
//! decide another op of the key while a get that leaves the switch may still get such a stamp (H4).
//! It decides when it has *evidence* that the switch counts above n: a stamp on an update, or
//! `HotClosed`. If the switch is silent, the owner revokes its copies, and waits until the holders
//! have confirmed that or their *leases* have ended (H7), which takes about a hundred milliseconds.
//! It renews leases only within its own direct lease (R12), so nodes that wait for the direct lease
//! (R6) need not know of copies.
//!
//! A lease covers all copies of one *serial*. To revoke copies, the owner continues with another
//! serial: leases of the old serial run out, unless the holder confirms the new serial earlier.
//! Only then does the owner acknowledge an epoch in which it no longer leads the partition (H5), so
//! the next primary need not know of copies.
//!
//! The switch to which the owner is attached may be a holder, too (H9). The owner sends it a
//! complete reply instead of an entry, and pulses that ask for its time, as with any holder. The
//! switch shows its copy only while its count equals the label's number, so the rules above hold
//! for it unchanged.

mod bounds;
#[cfg(test)]
mod exhaustive;
mod holder;
mod key;
mod keys;
mod leases;
mod owner;
mod shown;
mod spread;

pub(crate) use bounds::Name;
pub(crate) use holder::{Answer, Holder};
pub(crate) use owner::Owner;
pub use shown::{CopyOf, CopyShift, Lessor};

use crate::node::status::HotCounters;
use nicekv_proto::PartitionId;

/// A node's state of hot keys: of the keys that it owns, and of its copies of other nodes' keys.
#[derive(Clone, Debug)]
pub(crate) struct Hot {
    pub(crate) owner: Owner,
    pub(crate) holder: Holder,
    /// Counters for operators.
    pub counters: HotCounters,
}

impl Hot {
    pub(crate) fn new(incarnation: u64) -> Self {
        let (owner, holder) = (Owner::new(incarnation), Holder::new(incarnation));
        Self { owner, holder, counters: HotCounters::default() }
    }

    /// When [`Replica::handle_deadline`](crate::Replica::handle_deadline) must next be called for
    /// hot keys.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.owner.next_deadline()
    }

    /// Whether no copy of a key of the partition may be shown anywhere.
    pub(crate) fn is_quiet(&self, partition: PartitionId) -> bool {
        self.owner.is_quiet(partition)
    }
}
