//! Range scans (TurboKV §4.3, rule C11): what a partition holds, piece by piece.
//!
//! ```text
//!   client ──Scan──▶ unicast vnode ─▶ a member ──ForwardedScan──▶ the primary ──ScanPiece──▶ client
//! ```
//!
//! A piece says what it covers: match values, and of the keys that have one of these, those after the key that was named, up to the last one that was
//! looked at. At one moment between question and answer the partition held, of what is covered, exactly what the piece lists. Pieces are joined by the client.
//!
//! **Nobody is made to shout.** An answer has at most three times the bytes of its question, so a client that wants long pieces pads its question.

use crate::bytes::{Reader, reserved_bytes};
use crate::codec::{self, Bytes, Codec, Key, OptionalValue, RestOf};
use crate::declare::{code, codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::request::Forwarded;
#[cfg(test)]
use crate::samples::Random;
use crate::{DecodeError, Epoch, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::SocketAddrV4;

/// An answer has at most so many times the bytes of its question.
pub const AMPLIFICATION_MAX: usize = 3;

code! {
    /// What a scan is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ScanWants {
        /// Only how many keys there are.
        Count = 1,
        /// The keys.
        Keys = 2,
        /// The keys and their values.
        Values = 3,
    }
}

message! {
    /// Asks for a piece of what a keyspace holds: of the partition in which [`Self::range`] begins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scan<'a>: Scan or ForwardedScan if forwarded where is_possible {
        header {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// Names the request, so that its answer is recognised.
            op: OpId,
            /// The first match value of the range, by which a switch routes.
            digest: KeyDigest,
            /// Where the answer goes, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// In a [`ForwardedScan`](crate::Opcode::ForwardedScan), the forwarding replica's partition, epoch and name.
            forwarded: Option<(PartitionId, Epoch, NodeId)> as Forwarded,
            /// What for.
            wants: ScanWants => 3 zeros,
            /// Only keys with these match values.
            range: MatchRange,
            /// Of each partition only keys after this one; empty: all.
            after: &'a [u8] as Bytes<0, KEY_BYTES_MAX>,
            /// Bytes that are there so that the answer may be longer.
            padding: usize as Zeros,
        }
    }
}

/// Zeros to the end of the message.
pub struct Zeros;

impl Codec for Zeros {
    type Value<'a> = usize;
    type Layout = [u8; 0];

    fn layout(_: &usize) -> [u8; 0] {
        []
    }

    fn append_tail(count: &usize, out: &mut Vec<u8>) {
        out.resize(out.len() + count, 0);
    }

    fn read<'a>(field: &'static str, _: &[u8; 0], tail: &mut Reader<'a>) -> Result<usize, DecodeError> {
        let zeros = tail.rest();
        reserved_bytes(field, zeros).map(|()| zeros.len())
    }

    #[cfg(test)]
    fn sample(random: &mut Random) -> usize {
        random.bytes(0, VALUE_BYTES_MAX).len()
    }
}

const _: () = assert!(Scan::FIXED_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX <= DATAGRAM_BYTES_MAX);

impl Scan<'_> {
    /// The padding with which an answer may have so many bytes.
    pub fn padding_for(after: &[u8], answer_bytes: usize) -> usize {
        let bytes = Self::FIXED_BYTES + after.len();
        answer_bytes.min(DATAGRAM_BYTES_MAX).div_ceil(AMPLIFICATION_MAX).saturating_sub(bytes)
    }

    /// The most bytes of an answer's datagram.
    pub fn answer_bytes_max(&self) -> usize {
        let bytes = Self::FIXED_BYTES + self.after.len() + self.padding;
        (AMPLIFICATION_MAX * bytes).min(DATAGRAM_BYTES_MAX)
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        match self.digest.match_value() == self.range.first() {
            true => Ok(()),
            false => Err(DecodeError::UnknownValue { field: "digest", value: self.digest.vnode().into() }),
        }
    }
}

message! {
    /// The answer to a [`Scan`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScanPiece<'a>: ScanPiece {
        header {
            /// The scan that is answered.
            op: OpId,
        }
        body {
            /// Of which partition.
            partition: PartitionId,
            /// In which epoch.
            epoch: Epoch,
            /// The match values that are covered: those that were asked for, as far as the partition has them.
            range: MatchRange,
            /// There may be keys after those that are covered.
            more: bool => 3 zeros,
            /// How many keys there are of those that are covered.
            count: u32,
            /// With `more`, the last key that is covered; empty: it is the last one that is listed.
            through: &'a [u8] as Bytes<0, KEY_BYTES_MAX>,
            /// [`Scanned`] ones, in the order of their keys; none if only their count was asked for.
            listed: &'a [u8] as RestOf<Scanned<'static>>,
        }
    }
}

part! {
    /// A key that there is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scanned<'a> {
        /// The key.
        key: &'a [u8] as Key,
        /// Its value, if values were asked for.
        value: Option<&'a [u8]> as OptionalValue,
    }
}

impl<'a> ScanPiece<'a> {
    /// With [`Self::more`], the last key that is covered.
    pub fn covered_through(&self) -> &'a [u8] {
        match self.through {
            [] => self.entries().last().map_or(&[], |last| last.key),
            through => through,
        }
    }

    /// What is listed.
    pub fn entries(&self) -> impl Iterator<Item = Scanned<'a>> + use<'a> {
        codec::each::<Scanned<'static>>(self.listed)
    }
}

impl Scanned<'_> {
    /// Bytes of the encoded form.
    pub fn bytes(&self) -> usize {
        let tails = self.key.len() + self.value.map_or(0, <[u8]>::len);
        size_of::<<Scanned<'static> as Codec>::Layout>() + tails
    }

    /// Appends it to [`ScanPiece::listed`].
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Scanned<'static>>(self, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientId, Datagram};

    fn scan(after: &[u8], padding: usize) -> Scan<'_> {
        let range = MatchRange::new(7, 9).unwrap();
        Scan {
            keyspace: KeyspaceId(0),
            op: OpId { client: ClientId(1), sequence: 1 },
            digest: KeyDigest(range.first().to_be_bytes()),
            reply_to: None,
            forwarded: None,
            wants: ScanWants::Keys,
            range,
            after,
            padding,
        }
    }

    #[test]
    fn an_answer_fills_a_datagram_if_the_question_is_a_third_of_it() {
        for after in [&b""[..], b"key", &[7; KEY_BYTES_MAX]] {
            let padded = scan(after, Scan::padding_for(after, DATAGRAM_BYTES_MAX));
            let mut bytes = Vec::new();
            padded.encode(&mut bytes);
            assert_eq!(padded.answer_bytes_max(), DATAGRAM_BYTES_MAX, "{after:?}");
            assert!(bytes.len() * AMPLIFICATION_MAX >= DATAGRAM_BYTES_MAX);
            let bare = scan(after, 0);
            bare.encode(&mut bytes);
            assert_eq!(bare.answer_bytes_max(), (AMPLIFICATION_MAX * bytes.len()).min(DATAGRAM_BYTES_MAX));
        }
    }

    #[test]
    fn a_scan_is_routed_by_where_it_begins() {
        let mut bytes = Vec::new();
        Scan { digest: KeyDigest([1; 16]), ..scan(b"", 0) }.encode(&mut bytes);
        assert!(Datagram::decode(&bytes).is_err(), "by the digest a switch would route it elsewhere");
    }

    #[test]
    fn what_is_listed_is_read_as_it_was() {
        let listed = [Scanned { key: b"a", value: None }, Scanned { key: b"b", value: Some(b"") }];
        let mut bytes = Vec::new();
        listed.iter().for_each(|one| one.append(&mut bytes));
        assert_eq!(bytes.len(), listed.iter().map(Scanned::bytes).sum::<usize>());
        let piece = ScanPiece {
            op: OpId::NONE,
            partition: PartitionId(1),
            epoch: Epoch(1),
            range: MatchRange::ALL,
            more: false,
            count: 2,
            through: b"",
            listed: &bytes,
        };
        assert!(piece.entries().eq(listed));
    }
}
