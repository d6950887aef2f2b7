//! Copies of hot keys at nodes that are no members of their partition, and in the switch (KVSwitch
//! §3.2, §4.2; rules H1 to H9).
//!
//! ```text
//!   client ──Update──▶ switch ──Update, (i, s+1)──▶ owner: note, prepare … may it decide? … decide, show
//!                                                     └──HotCopy (i, s+1)──▶ holder ──HotConfirm──▶ switch
//!   client ──Get─────▶ switch ──Get, (i, s+1)──▶ holder: a copy of i, of s+1 or later, and a lease of its owner? ──Reply──▶ client
//!                                                                                                     no ──Get──▶ owner
//! ```
//!
//! The *owner* is the primary of the key's partition ([`Owner`]), a *holder* is any other node at
//! its switch ([`Holder`]). Switch and metadata service decide where copies should be and which
//! gets go there. Correctness does not depend on their choices, except that the numbers which a
//! switch writes for an instance never go back, and no two switches have the same instance (H1,
//! H8).
//!
//! A copy labelled (i, n) holds every update that the owner decided before it was made. It may be
//! shown to gets that were stamped with i and at most n. So the owner must not decide another op of
//! the key while a get that leaves the switch may still have such a stamp (H4). It decides when it
//! has *evidence* that the switch counts above n: a stamp, or `HotClosed`. If the switch is silent,
//! the owner revokes its copies, and waits until its holders have confirmed or their *lease* has
//! ended (H7): about a hundred milliseconds. It renews leases only within its own direct lease
//! (R12), so others that wait for that lease (R6) need not know of copies.
//!
//! A lease covers all copies of one *serial*. To revoke some, the owner goes on under another
//! serial: leases under the old one run out, unless their holder says before that it goes by the
//! new one. Only then does the owner acknowledge an epoch in which it leads the partition no more
//! (H5), so the next primary need not know of copies.
//!
//! The switch that the owner is attached to may be a holder, too (H9): it is sent the reply to give
//! instead of the entry, and asked for the time in the same way. It shows its copy while its count
//! is the label's number, so all of the above holds for it unchanged.

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

/// A node's state of hot keys, its own and others'.
#[derive(Clone, Debug)]
pub(crate) struct Hot {
    pub(crate) owner: Owner,
    pub(crate) holder: Holder,
    /// For operators.
    pub counters: HotCounters,
}

impl Hot {
    pub(crate) fn new(incarnation: u64) -> Self {
        let (owner, holder) = (Owner::new(incarnation), Holder::new(incarnation));
        Self { owner, holder, counters: HotCounters::default() }
    }

    /// When [`Replica::handle_deadline`](crate::Replica::handle_deadline) has something to do about
    /// them.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.owner.next_deadline()
    }

    /// Whether no copy of a key of the partition may be shown anywhere.
    pub(crate) fn is_quiet(&self, partition: PartitionId) -> bool {
        self.owner.is_quiet(partition)
    }
}
