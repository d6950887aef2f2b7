//! Helpers for entries as the engine stores them.

use nicekv_proto::Now;
use nicekv_proto::recovery::Entry;

/// Decodes a stored entry. The engine has verified its checksum, so an undecodable entry is a bug.
pub(crate) fn decode_entry(bytes: &[u8]) -> Entry<'_> {
    Entry::decode(bytes).expect("the engine returns what was stored")
}

/// Whether an expiry time has passed on this node's wall clock.
pub(crate) fn is_overdue(expiry_ms: u64, now: Now) -> bool {
    expiry_ms != 0 && expiry_ms <= now.unix_ms
}
