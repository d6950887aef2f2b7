//! Reports changes of a holder's copies to code outside of the core that answers gets, such as the
//! node's kernel program. (What members show is reported by [`Visibility`](crate::Visibility).)
//!
//! ```text
//!   HotCopy:   Kept ──▶ HotConfirm leaves
//!   HotPulse:  Leased ──▶ HotPulsed leaves
//!   HotDrop, an epoch in which the node is a member:  Dropped
//! ```
//!
//! A get is answered from the newest copy of its key as H6 says, and only while the lease of the
//! copy's [`Lessor`] runs (H7). The kernel keeps no copy of a key if the node is a member of the
//! key's partition.

use super::bounds::Name;
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use nicekv_proto::hot::Stamp;

/// A key of which this node holds a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyOf {
    /// Keyspace and digest.
    pub name: Name,
    /// The whole key.
    pub key: Box<[u8]>,
}

/// An owner and a serial: leases are granted for all copies of that owner with that serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lessor {
    /// Address of the owner.
    pub owner: SocketAddrV4,
    /// The serial under which the copies were made.
    pub serial: u64,
}

/// A change of what a holder may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyShift {
    /// This copy of the key replaces an earlier one.
    Kept {
        /// The key.
        of: CopyOf,
        /// The copy may answer gets stamped with this instance and a number up to this one.
        stamp: Stamp,
        /// Whose lease the copy needs.
        lessor: Lessor,
        /// Encoded as [`Entry`](nicekv_proto::recovery::Entry).
        entry: Box<[u8]>,
    },
    /// The copy of this key is gone.
    Dropped(CopyOf),
    /// Copies of this lessor may be shown until `until_ns` on the boot-time clock. Copies of other
    /// serials of the same owner may no longer be shown.
    Leased {
        /// The owner and serial of the lease.
        lessor: Lessor,
        /// 0: these copies may not be shown at all.
        until_ns: u64,
    },
}
