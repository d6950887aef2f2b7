//! Bounds and names that owners and holders share.

use nicekv_proto::{KeyDigest, KeyspaceId};

/// Names a hot entry.
pub(crate) type Name = (KeyspaceId, KeyDigest);

/// Hot entries that a node is assigned, and keys of which it keeps copies.
pub(super) const HOT_KEYS_MAX: usize = 16_384;
/// A copy is renewed after this, because it may be lost, or the switch may have counted lost
/// stamps. The time doubles while nothing changes.
pub(super) const REFRESH_NS: u64 = 1_000_000_000;
/// How often it doubles.
pub(super) const REFRESH_DOUBLINGS_MAX: u32 = 4;
