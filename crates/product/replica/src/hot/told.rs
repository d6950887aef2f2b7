//! What a holder tells of its copies, so that gets that a switch has stamped may be answered from them elsewhere, such as in the node's kernel. What a
//! member shows [`Visibility`](crate::Visibility) tells.
//!
//! ```text
//!   HotCopy:   Kept ──▶ HotConfirm leaves
//!   HotPulse:  Leased ──▶ HotPulsed leaves
//!   HotDrop, an epoch in which the node is a member:  Dropped
//! ```
//!
//! A get is answered from the last copy that was kept of its key, as in H6, and while the lease of the copy's [`Lessor`] is in force (H7). Of a key of whose
//! partition the node is a member none is kept elsewhere.

use super::bounds::Name;
use alloc::boxed::Box;
use core::net::SocketAddrV4;
use nicekv_proto::hot::Stamp;

/// A key of which there is a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyOf {
    /// Keyspace and digest.
    pub name: Name,
    /// The whole key.
    pub key: Box<[u8]>,
}

/// Who gives leases, and for which of its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lessor {
    /// The owner of the keys.
    pub owner: SocketAddrV4,
    /// Copies that it made under this one.
    pub serial: u64,
}

/// A change of what may be shown of copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyShift {
    /// This is the copy of the key, whatever was told before.
    Kept {
        /// Of this key.
        of: CopyOf,
        /// For gets with a stamp of this instance, and up to this number.
        stamp: Stamp,
        /// Under its leases.
        lessor: Lessor,
        /// Encoded as [`Entry`](nicekv_proto::recovery::Entry).
        entry: Box<[u8]>,
    },
    /// There is none of the key any more.
    Dropped(CopyOf),
    /// Copies of this lessor may be shown before this time on the boot-time clock. Of other serials of the same owner none may.
    Leased {
        /// The lessor.
        lessor: Lessor,
        /// 0: not at all.
        until_ns: u64,
    },
}
