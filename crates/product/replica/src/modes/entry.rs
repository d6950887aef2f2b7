//! Entries as the engine returns them.

use nicekv_proto::Now;
use nicekv_proto::recovery::Entry;

/// Decodes a stored entry; the engine checked its checksum, so anything else is a broken invariant.
pub(crate) fn decode_entry(bytes: &[u8]) -> Entry<'_> {
    Entry::decode(bytes).expect("the engine returns what was stored")
}

/// Whether an expiry time has passed on this node's wall clock.
pub(crate) fn is_overdue(expiry_ms: u64, now: Now) -> bool {
    expiry_ms != 0 && expiry_ms <= now.unix_ms
}
