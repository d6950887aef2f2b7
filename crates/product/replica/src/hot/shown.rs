//! Changes of a holder's copies, for gets that are answered outside of the core, such as by the
//! node's kernel. What members show is in [`Visibility`](crate::Visibility).
//!
//! ```text
//!   HotCopy:   Kept ──▶ HotConfirm leaves
//!   HotPulse:  Leased ──▶ HotPulsed leaves
//!   HotDrop, an epoch in which the node is a member:  Dropped
//! ```
//!
//! A get is answered from the last copy kept of its key, as in H6, and while the lease of the
//! copy's [`Lessor`] is in force (H7). No copy is kept outside of a key that the node is a member
//! for.

use super::bounds::Name;
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use nicekv_proto::hot::Stamp;

/// A key with a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyOf {
    /// Keyspace and digest.
    pub name: Name,
    /// The whole key.
    pub key: Box<[u8]>,
}

/// An owner that grants leases, and for which of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lessor {
    /// The owner of the keys.
    pub owner: SocketAddrV4,
    /// For copies made under this serial.
    pub serial: u64,
}

/// A change of what may be shown of copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyShift {
    /// The copy of the key, in place of an earlier one.
    Kept {
        /// The key.
        of: CopyOf,
        /// For gets stamped with this instance, and up to this number.
        stamp: Stamp,
        /// Under its leases.
        lessor: Lessor,
        /// Encoded as [`Entry`](nicekv_proto::recovery::Entry).
        entry: Box<[u8]>,
    },
    /// The key has no copy any more.
    Dropped(CopyOf),
    /// Copies of this lessor may be shown until this time on the boot-time clock. Copies of other
    /// serials of the same owner may not be shown.
    Leased {
        /// The lessor.
        lessor: Lessor,
        /// 0: not at all.
        until_ns: u64,
    },
}
