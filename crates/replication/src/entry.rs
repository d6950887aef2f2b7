//! Entries as the engine returns them.

use nicekv_wire::recovery::Entry;

/// Decodes a stored entry; the engine checked its checksum, so anything else is a broken invariant.
pub(crate) fn decode_entry(bytes: &[u8]) -> Entry<'_> {
    Entry::decode(bytes).expect("the engine returns what was stored")
}
