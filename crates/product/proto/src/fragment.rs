//! Messages that are too long for one datagram, in several.
//!
//! ```text
//!   sender ──Fragment 0, 1, 2 …──▶ each of its receivers       once each; all again, as they were, if the whole message is sent again
//!                                  ─▶ the message               when all are there, by its name
//! ```
//!
//! What is lost is not asked for: the message is lost then, as any may be, and its sender sends it again. Receivers keep what they have
//! got until then, and as fragments of equal messages are equal, only what was lost needs to come. Switches route a fragment as they do the message: it has the same
//! keyspace, digest and op in its header.

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
            /// Of the message.
            keyspace: KeyspaceId,
            /// Of the message.
            op: OpId,
            /// Of the message.
            digest: KeyDigest,
            /// Where replies to the message go, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Of a message of nodes to nodes, in a [`PeerFragment`](crate::Opcode::PeerFragment), which nobody else may send: who sends it.
            sender: Option<NodeId> as Maybe<NodeId>,
            /// In how many fragments the message is.
            count: u8,
            /// Which of them this is, from 0.
            index: u8 => 3 zeros,
            /// A digest of the message: equal ones have equal names.
            name: u64,
            /// What it has of the message: [`FRAGMENT_BYTES`], or in the last one the rest.
            bytes: &'a [u8] as Rest<FRAGMENT_BYTES>,
        }
    }
}

/// Bytes of a message in a fragment: there is room for a chain header beside them.
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
    /// Of a message that is too long for a datagram, whose digest is `name`. `sender`: of what nodes say to nodes.
    pub fn new(message: Vec<u8>, name: u64, sender: Option<NodeId>) -> Self {
        debug_assert!((DATAGRAM_BYTES_MAX + 1..=MESSAGE_BYTES_MAX).contains(&message.len()));
        Self { message, name, sender, next: 0 }
    }

    /// Writes the next fragment to `out`, which is cleared; there are no more if it does not.
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
    fn a_message_is_what_its_fragments_are_together() {
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
