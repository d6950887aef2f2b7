//! Builds a large value (`makings`) for ops that carry only what they add to it: the primary builds
//! the result, and the other members fetch it (L8).
//!
//! ```text
//!   partition ──make_value──▶ part: read ─▶ hashed, written ─▶ next ─▶ … whole, and named ──▶ partition: on_value_made
//! ```
//!
//! Only one piece of one part is in memory at a time.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nicekv_proto::large::Reference;
use nicekv_proto::{OpId, PartitionId};
use nicekv_transport::Checksum;

/// How many values may be built at once.
pub(crate) const MAKINGS_MAX: usize = 64;

/// A part of the value to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValuePart {
    Bytes(Vec<u8>),
    /// All of a large value on disk.
    Large(Reference),
}

impl ValuePart {
    /// Its length.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Large(reference) => reference.length.into(),
        }
    }
}

/// The parts of the value to build, and the key that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// The value's name: an op of the node's own client.
    pub name: OpId,
    pub partition: PartitionId,
    pub key: Box<[u8]>,
    /// The parts in order; together they are too long for a datagram.
    pub parts: VecDeque<ValuePart>,
}

#[derive(Clone)]
pub(super) struct Making {
    pub(super) recipe: Recipe,
    /// How many bytes of the first remaining part were read.
    pub(super) read: u32,
    /// The name and length of the result; the digest is set at the end.
    pub(super) made: Reference,
    written: u32,
    pub(super) checksum: Box<Checksum>,
}

pub(super) enum Step {
    Read(Reference, u32),
    Write(Vec<u8>),
    End,
}

impl Making {
    pub(super) fn new(recipe: Recipe) -> Self {
        let length: u64 = recipe.parts.iter().map(ValuePart::length).sum();
        let length = u32::try_from(length).expect("the length is within the limit of values");
        let made = Reference { name: recipe.name, length, checksum: 0 };
        Self { recipe, read: 0, made, written: 0, checksum: Box::new(Checksum::new()) }
    }

    pub(super) fn next_step(&mut self) -> Step {
        loop {
            match self.recipe.parts.front_mut() {
                None => return Step::End,
                Some(ValuePart::Large(part)) if self.read < part.length => {
                    return Step::Read(*part, self.read);
                }
                Some(ValuePart::Bytes(bytes)) if !bytes.is_empty() => {
                    return Step::Write(core::mem::take(bytes));
                }
                Some(_) => {
                    self.recipe.parts.pop_front();
                    self.read = 0;
                }
            }
        }
    }

    /// Appends bytes to the result; returns their offset in it.
    pub(super) fn take(&mut self, bytes: &[u8]) -> u32 {
        self.checksum.update(bytes);
        let offset = self.written;
        self.written += bytes.len() as u32;
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use nicekv_proto::ClientId;
    use nicekv_transport::checksum;

    fn op(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    /// Builds a value of these parts, reading pieces of this length. A large part is all sevens.
    fn made(parts: Vec<ValuePart>, piece: u32) -> (Vec<u8>, Making) {
        let (name, partition, key) = (op(9), PartitionId(3), b"k".as_slice().into());
        let mut making = Making::new(Recipe { name, partition, key, parts: parts.into() });
        let mut value = Vec::new();
        loop {
            let bytes = match making.next_step() {
                Step::Read(part, offset) => {
                    let bytes = piece.min(part.length - offset);
                    making.read += bytes;
                    vec![7; bytes as usize]
                }
                Step::Write(bytes) => bytes,
                Step::End => return (value, making),
            };
            assert_eq!(making.take(&bytes) as usize, value.len(), "pieces are contiguous");
            value.extend_from_slice(&bytes);
        }
    }

    #[test]
    fn built_value_is_its_parts_in_order() {
        let large = |length| ValuePart::Large(Reference { name: op(2), length, checksum: 0 });
        let bytes = |bytes: &[u8]| ValuePart::Bytes(bytes.to_vec());
        let whole = [vec![7; 5_000], b"end".to_vec()].concat();
        for piece in [1, 999, 1_000, 9_000] {
            let (value, making) = made(vec![large(5_000), bytes(b"end")], piece);
            assert_eq!((making.made.length, &value), (5_003, &whole));
            assert_eq!(making.checksum.finish(), checksum(&whole));
        }
        assert_eq!(made(vec![bytes(b""), bytes(b"a"), large(1_030)], 77).0.len(), 1_031);
        let (value, making) = made(vec![large(2_000), large(3_000)], 1_300);
        assert_eq!(
            (value.len(), making.made),
            (5_000, Reference { name: op(9), length: 5_000, checksum: 0 })
        );
    }
}
