//! What a node of a chain forwards to its successor (TurboKV §4.1.2 with rules C1 to C6).
//!
//! ```text
//!   head ──Forwards──▶ middle ──Forwards──▶ tail        entries in their order; how far the sender, and all before it, have forced
//!   head ◀───Acks───── middle ◀───Acks───── tail        `Progress`: logged here; forced from here to the end
//! ```
//!
//! An entry is a decision and the op that it decides: the client's own datagram, which is what nodes log. One that does not fit a datagram with both goes
//! in two: the op first, as a [`Resend`](crate::replication::Resend).

use crate::NodeId;
use crate::codec::{self, Bytes, Codec, Entries, ListOf};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::replication::{Decision, Watermark};
use alloc::vec::Vec;
use core::mem::size_of;

part! {
    /// One place of a partition's sequence.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChainEntry<'a> {
        /// What is decided.
        decision: Decision<'a> as Decision<'static>,
        /// Of which op: the client's [`Update`](crate::Update) datagram; empty: it went before.
        prepare: &'a [u8] as Bytes<0, DATAGRAM_BYTES_MAX> => 2 zeros,
    }
}

impl<'a> ChainEntry<'a> {
    /// Bytes of this entry within a message.
    pub fn bytes(&self) -> usize {
        size_of::<<ChainEntry<'static> as Codec>::Layout>() + self.decision.value.len() + self.prepare.len()
    }

    /// Appends the entry to a message.
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<ChainEntry<'static>>(self, out);
    }
}

message! {
    /// What a node of a chain has logged, for its successor.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Forwards<'a>: Forwards {
        header {}
        body {
            /// The predecessor.
            sender: NodeId,
            /// Of the partitions that it is about: where their epochs begin, and how far the sender, and all before it, have forced.
            watermarks: Entries<'a, Watermark> as ListOf<Watermark>,
            /// Entries, each partition's in their order.
            entries: Entries<'a, ChainEntry<'a>> as ListOf<ChainEntry<'static>> => 2 zeros,
        }
    }
}

/// Bytes of a [`Forwards`] message without entries.
pub const FORWARDS_FIXED_BYTES: usize = Forwards::FIXED_BYTES;
/// Largest entry that fits a message with its watermark.
pub const CHAIN_ENTRY_BYTES_MAX: usize =
    DATAGRAM_BYTES_MAX - FORWARDS_FIXED_BYTES - crate::replication::WATERMARK_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::check_part;

    #[test]
    fn every_bit_of_an_entry_counts() {
        check_part::<ChainEntry<'static>>();
    }
}
