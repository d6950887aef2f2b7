//! Fragmentation of messages that are too long for one datagram.
//!
//! ```text
//!   sender ──Fragment 0, 1, 2 …──▶ each of its receivers       once each; all again, as they were, if the whole message is sent again
//!                                  ─▶ the message               when all are there, by its name
//! ```
//!
//! A lost fragment is not requested again: like any lost message, the whole message is sent again
//! by its sender. Receivers keep the fragments that they have, and since equal messages have equal
//! fragments, only lost ones matter then. Switches route a fragment like its message, as both have
//! the same keyspace, digest and op in their headers.

use crate::chain_header::ChainHeader;
use crate::codec::{Maybe, Rest};
use crate::declare::{codec_of, layout, message};
use crate::limits::{DATAGRAM_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::{ClientId, DecodeError, HeaderLayout, KeyDigest, KeyspaceId, NodeId, OpId};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

message! {
    /// A part of a message.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Fragment<'a>: Fragment or PeerFragment if sender where is_possible {
        header {
            /// Keyspace of the message.
            keyspace: KeyspaceId,
            /// Op of the message.
            op: OpId,
            /// Digest of the message's key.
            digest: KeyDigest,
            /// Reply address of the message, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// In a [`PeerFragment`](crate::Opcode::PeerFragment), a fragment of a message between
            /// nodes, the sending node; clients must not set it.
            sender: Option<NodeId> as Maybe<NodeId>,
            /// Number of fragments of the message.
            count: u8,
            /// Index of this fragment, from 0.
            index: u8 => 3 zeros,
            /// Digest of the message: equal messages have equal names.
            name: u64,
            /// Content: [`FRAGMENT_BYTES`] bytes, or the rest in the last fragment.
            bytes: &'a [u8] as Rest<FRAGMENT_BYTES>,
        }
    }
}

/// Message bytes per fragment: leaves room for a chain header.
pub const FRAGMENT_BYTES: usize = 1_280;
const _: () = assert!(Fragment::FIXED_BYTES + ChainHeader::BYTES + FRAGMENT_BYTES <= DATAGRAM_BYTES_MAX);
/// Most fragments of a message.
pub const FRAGMENTS_MAX: usize = MESSAGE_BYTES_MAX.div_ceil(FRAGMENT_BYTES);
const _: () = assert!(FRAGMENTS_MAX <= 64, "receivers keep which of them are there in 64 bits");

impl Fragment<'_> {
    fn is_possible(&self) -> Result<(), DecodeError> {
        if !(2..=FRAGMENTS_MAX).contains(&self.count.into()) {
            return Err(DecodeError::UnknownValue { field: "fragments", value: self.count.into() });
        }
        if self.index >= self.count {
            return Err(DecodeError::UnknownValue { field: "fragment", value: self.index.into() });
        }
        Ok(())
    }
}

/// A message that is being sent in fragments.
#[derive(Clone, Debug)]
pub struct Fragments {
    message: Vec<u8>,
    name: u64,
    sender: Option<NodeId>,
    next: usize,
}

impl Fragments {
    /// Starts a message that is too long for a datagram, with digest `name`; `sender` is set in
    /// messages between nodes.
    pub fn new(message: Vec<u8>, name: u64, sender: Option<NodeId>) -> Self {
        debug_assert!((DATAGRAM_BYTES_MAX + 1..=MESSAGE_BYTES_MAX).contains(&message.len()));
        Self { message, name, sender, next: 0 }
    }

    /// Writes the next fragment to `out`, which is cleared; `false` if there are no more.
    pub fn poll(&mut self, out: &mut Vec<u8>) -> bool {
        let mut parts = self.message.chunks(FRAGMENT_BYTES);
        let count = parts.len() as u8;
        let Some(bytes) = parts.nth(self.next) else { return false };
        let header = HeaderLayout::peek(&self.message).expect("a message begins with a header");
        let fragment = Fragment {
            keyspace: KeyspaceId(header.keyspace.get()),
            op: OpId { client: ClientId(header.client.get()), sequence: header.sequence.get() },
            digest: KeyDigest(header.digest),
            reply_to: header.reply_to(),
            sender: self.sender,
            count,
            index: self.next as u8,
            name: self.name,
            bytes,
        };
        fragment.encode(out);
        self.next += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Datagram, Operation, Update};
    use alloc::vec;

    #[test]
    fn fragments_reassemble_to_the_message() {
        let steps = vec![7; 3 * FRAGMENT_BYTES];
        let op = OpId { client: crate::ClientId(5), sequence: 9 };
        let (keyspace, digest) = (KeyspaceId(3), KeyDigest([4; 16]));
        let update = Update {
            keyspace,
            op,
            digest,
            reply_to: None,
            watermark: 1,
            condition: crate::Condition::Always,
            return_old: false,
            key: b"k",
            operation: Operation::Transaction(&steps),
        };
        let mut message = Vec::new();
        update.encode(&mut message);
        for has_room in [false, true] {
            let mut fragments = Fragments::new(message.clone(), 11, Some(NodeId(2)));
            let (mut whole, mut out, mut seen) = (Vec::new(), Vec::new(), 0);
            while fragments.poll(&mut out) {
                if has_room {
                    crate::route::leave_room(&mut out);
                }
                assert!(out.len() <= DATAGRAM_BYTES_MAX);
                let mut plain = Vec::new();
                if let Some(room) = crate::route::take_room(&out, &mut plain) {
                    room.unwrap();
                } else {
                    plain.clone_from(&out);
                }
                let Ok((header, Datagram::Fragment(fragment))) = Datagram::decode(&plain) else {
                    panic!("a fragment")
                };
                assert_eq!((header.keyspace, header.digest, header.op), (keyspace, digest, op));
                assert_eq!((fragment.index, fragment.count, fragment.name), (seen, 4, 11));
                whole.extend_from_slice(fragment.bytes);
                seen += 1;
            }
            assert_eq!((&whole, seen), (&message, 4));
        }
    }
}
