//! Bounds and type names that owners and holders of hot keys share.

use nicekv_proto::{KeyDigest, KeyspaceId};

/// Keyspace and key digest: the name of a hot entry in the switch.
pub(crate) type Name = (KeyspaceId, KeyDigest);

/// Bounds the hot entries that the metadata service may assign to a node, and separately the keys
/// whose copies a node keeps.
pub(super) const HOT_KEYS_MAX: usize = 16_384;
/// The owner renews a copy after this time, because the copy message may have been lost, or because
/// the switch may have counted updates that never reached the owner. The time doubles while nothing
/// changes.
pub(super) const REFRESH_NS: u64 = 1_000_000_000;
/// How many times [`REFRESH_NS`] doubles at most.
pub(super) const REFRESH_DOUBLINGS_MAX: u32 = 4;
