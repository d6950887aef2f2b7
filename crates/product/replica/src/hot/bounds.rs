//! What owner and holder have in common.

use nicekv_proto::{KeyDigest, KeyspaceId};

/// What a hot entry is of.
pub(crate) type Name = (KeyspaceId, KeyDigest);

/// Most hot entries of which a node is told, and most keys of which it keeps copies.
pub(super) const HOT_KEYS_MAX: usize = 16_384;
/// A copy is made anew after this, as it may have been lost, or the switch may have counted what never came; then after twice as long, while nothing changes.
pub(super) const REFRESH_NS: u64 = 1_000_000_000;
/// It is doubled so often.
pub(super) const REFRESH_DOUBLINGS_MAX: u32 = 4;
