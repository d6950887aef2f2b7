//! Messages along a chain (TurboKV §4.1.2; rules C1 to C6).
//!
//! ```text
//!   head ──Forwards──▶ middle ──Forwards──▶ tail        entries in their order; last entry synced by the sender and all nodes before it
//!   head ◀───Acks───── middle ◀───Acks───── tail        `Progress`: last entry logged by the sender; last one synced by it and all nodes after it
//! ```
//!
//! An entry is a decision with the op that it decides: the client's own datagram, which nodes log.
//! If both do not fit a datagram, the op is sent first, in a
//! [`Resend`](crate::replication::Resend).

use crate::NodeId;
use crate::codec::{self, Bytes, Codec, Entries, ListOf};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::replication::{Decision, Watermark};
use alloc::vec::Vec;
use core::mem::size_of;

part! {
    /// An entry of a partition's decision sequence.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChainEntry<'a> {
        /// What is decided.
        decision: Decision<'a> as Decision<'static>,
        /// The op: the client's [`Update`](crate::Update) datagram; empty if it was sent before.
        prepare: &'a [u8] as Bytes<0, DATAGRAM_BYTES_MAX> => 2 zeros,
    }
}

impl<'a> ChainEntry<'a> {
    /// Length within a message, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<<ChainEntry<'static> as Codec>::Layout>() + self.decision.value.len() + self.prepare.len()
    }

    /// Appends the entry to a message.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<ChainEntry<'static>>(self, out);
    }
}

message! {
    /// From a node to its successor: the entries that it has logged.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Forwards<'a>: Forwards {
        header {}
        body {
            /// The predecessor.
            sender: NodeId,
            /// For each partition concerned: start of the epoch, and the last entry that is durable
            /// at the sender and all nodes before it.
            watermarks: Entries<'a, Watermark> as ListOf<Watermark>,
            /// Entries, in order within each partition.
            entries: Entries<'a, ChainEntry<'a>> as ListOf<ChainEntry<'static>> => 2 zeros,
        }
    }
}

/// Length of a [`Forwards`] message without entries, in bytes.
pub const FORWARDS_FIXED_BYTES: usize = Forwards::FIXED_BYTES;
/// Longest entry that fits a message with its watermark.
pub const CHAIN_ENTRY_BYTES_MAX: usize =
    DATAGRAM_BYTES_MAX - FORWARDS_FIXED_BYTES - crate::replication::WATERMARK_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::check_part;

    #[test]
    fn entry_codec_is_strict() {
        check_part::<ChainEntry<'static>>();
    }
}
