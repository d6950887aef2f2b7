//! Range scans (TurboKV §4.3, rule C11): the content of a partition, piece by piece.
//!
//! ```text
//!   client ──Scan──▶ unicast vnode ─▶ a member ──ForwardedScan──▶ the primary ──ScanPiece──▶ client
//! ```
//!
//! A piece names the range that it covers: match values and, among the keys with these, those after
//! the given key up to the last one that was examined. At some moment between request and answer,
//! the partition held exactly the listed keys in that range. The client joins the pieces.
//!
//! **Splitting** (Algorithm 1; rule C11). A scan of a keyspace with records may ask for several
//! pieces at once: a switch sends a copy to each record that the range overlaps, up to
//! [`Scan::pieces`] of them, each cut at the record's borders and marked as cut ([`Scan::is_cut`]).
//! The first switch overwrites the mark, whatever the client wrote, and later switches do not cut
//! again. The client asks on its own for the range behind the last copy.
//!
//! **No amplification.** All answers together have at most three times the bytes of the request, so
//! a client that wants long pieces pads its request, and a request for n pieces must be as long as
//! n requests for one. Therefore no sender address needs to be verified before it is answered.

use crate::c_layout::{c_type, layout_for_c};
use crate::chain_header::ChainHeader;
use crate::codec::{self, After, Codec, Key, OptionalValue, RestOf, Zeros};
use crate::declare::{code, codec_of, layout, message, part};
use crate::forwarded::Forwarded;
use crate::header::{HeaderLayout, ROOM_CHAIN};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX, PAIR_BYTES_MAX};
use crate::{DecodeError, Epoch, Form, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId, Opcode, PartitionId};
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::net::SocketAddrV4;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most bytes of all answers to a request, as a multiple of the request's.
pub const AMPLIFICATION_MAX: usize = 3;
/// Most pieces into which a switch splits a scan (TurboKV's circles).
pub const PIECES_MAX: u8 = 64;
/// Longest request: a switch may need room in it.
const QUESTION_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - ChainHeader::BYTES;

code! {
    /// What a scan returns.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ScanWants {
        /// The number of keys only.
        Count = 1,
        /// The keys.
        Keys = 2,
        /// The keys with their values.
        Values = 3,
    }
}

message! {
    /// Asks for a piece of a keyspace: from the partition in which [`Self::range`] begins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scan<'a>: Scan or ForwardedScan if forwarded where is_possible {
        header {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// Names the request and its answers.
            op: OpId,
            /// First match value of the range, by which a switch routes.
            digest: KeyDigest,
            /// Address for the answers, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// In a [`ForwardedScan`](crate::Opcode::ForwardedScan), the forwarding replica's partition, epoch and name.
            forwarded: Option<(PartitionId, Epoch, NodeId)> as Forwarded,
            /// What to return.
            wants: ScanWants,
            /// Most pieces, 1 to [`PIECES_MAX`]; the byte limit of the answers is divided evenly.
            pieces: u8,
            /// Whether a switch has cut this piece off a scan, so that no other switch splits it
            /// again. Written by switches, whatever the client wrote.
            is_cut: bool => 1 zeros,
            /// Match values to be scanned.
            range: MatchRange,
            /// Only keys after this one, in every partition.
            after: Option<&'a [u8]> as After,
            /// Padding, so that answers may be longer.
            padding: usize as Zeros,
        }
    }
}

const _: () = assert!(Scan::FIXED_BYTES + KEY_BYTES_MAX <= QUESTION_BYTES_MAX);

impl Scan<'_> {
    /// Padding needed so that each of `pieces` answers may have `answer_bytes` bytes, within the
    /// limits of a datagram.
    pub fn padding_for(after: Option<&[u8]>, answer_bytes: usize, pieces: u8) -> usize {
        let bytes = Self::FIXED_BYTES + after.map_or(0, <[u8]>::len);
        let least = if pieces > 1 { ScanPiece::FIXED_BYTES } else { 0 };
        let answers = answer_bytes.clamp(least, DATAGRAM_BYTES_MAX) * usize::from(pieces);
        answers.div_ceil(AMPLIFICATION_MAX).min(QUESTION_BYTES_MAX).saturating_sub(bytes)
    }

    /// Most pieces that may answer this request, since each needs room for its fixed part.
    pub const fn pieces_max() -> u8 {
        (AMPLIFICATION_MAX * QUESTION_BYTES_MAX / ScanPiece::FIXED_BYTES) as u8
    }

    /// Longest answer, in bytes of the datagram.
    pub fn answer_bytes_max(&self) -> usize {
        let bytes = Self::FIXED_BYTES + self.after.map_or(0, <[u8]>::len) + self.padding;
        (AMPLIFICATION_MAX * bytes / usize::from(self.pieces).max(1)).min(DATAGRAM_BYTES_MAX)
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        let refused = |field, value| Err(DecodeError::UnknownValue { field, value });
        if self.digest.match_value() != self.range.first() {
            return refused("digest", self.digest.vnode().into());
        }
        let is_told = (1..=PIECES_MAX).contains(&self.pieces);
        if !is_told || self.answer_bytes_max() < ScanPiece::FIXED_BYTES {
            return refused("pieces", self.pieces.into());
        }
        Ok(())
    }
}

const _: () = assert!(Scan::pieces_max() <= PIECES_MAX && Scan::pieces_max() > 32);

layout_for_c! {
    /// Layout of a scan for switches: behind the header, or behind the room.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub struct ScanLayout {
        /// Not used by switches.
        pub forwarded: [u8; 10],
        /// A [`ScanWants`].
        pub wants: u8,
        /// [`Scan::pieces`].
        pub pieces: u8,
        /// [`Scan::is_cut`].
        pub is_cut: u8,
        /// Zero.
        pub reserved: u8,
        /// Start of [`Scan::range`].
        pub first: [u8; 16],
        /// End of it.
        pub last: [u8; 16],
    }
}

const _: () = assert!(size_of::<ScanLayout>() == 46);

impl ScanLayout {
    /// Layout of an encoded datagram, with its header; `None` if it is not a complete scan.
    pub fn of(datagram: &mut [u8]) -> Option<(&mut HeaderLayout, &mut Self)> {
        let has_room = HeaderLayout::peek(datagram)?.room == ROOM_CHAIN;
        let (header, rest) = HeaderLayout::mut_from_prefix(datagram).ok()?;
        let rest = if has_room { rest.get_mut(ChainHeader::BYTES..)? } else { rest };
        let (scan, _) = Self::mut_from_prefix(rest).ok()?;
        (header.opcode == Opcode::Scan as u8).then_some((header, scan))
    }
}

message! {
    /// The answer to a [`Scan`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScanPiece<'a>: ScanPiece {
        header {
            /// The request.
            op: OpId,
        }
        body {
            /// Partition that answers.
            partition: PartitionId,
            /// Its epoch.
            epoch: Epoch,
            /// Covered match values: the intersection of the requested range with the partition's.
            range: MatchRange,
            /// There may be more keys after the covered ones.
            more: bool => 3 zeros,
            /// Number of covered keys.
            count: u32,
            /// If `more`, the last covered key, unless it is the last listed one.
            through: Option<&'a [u8]> as After,
            /// [`Scanned`] keys in order; empty if only the count was requested.
            listed: &'a [u8] as RestOf<Scanned<'static>>,
        }
    }
}

part! {
    /// A key that exists.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Scanned<'a> {
        /// The key.
        key: &'a [u8] as Key,
        /// Form of the value.
        form: Form,
        /// The value, if values were requested; empty for large values and hashes, which only a get
        /// returns.
        value: Option<&'a [u8]> as OptionalValue,
    }
}

/// The longest answer has room for any key with its value.
const _: () = assert!(
    ScanPiece::FIXED_BYTES + size_of::<<Scanned<'static> as Codec>::Layout>() + PAIR_BYTES_MAX
        <= DATAGRAM_BYTES_MAX
);

/// The greatest key before this one; `None` for the empty key.
pub fn key_before(key: &[u8]) -> Option<Vec<u8>> {
    let mut before = key.to_vec();
    match before.last_mut()? {
        0 => drop(before.pop()),
        last => {
            *last -= 1;
            before.resize(KEY_BYTES_MAX.max(key.len()), 0xff);
        }
    }
    Some(before)
}

impl<'a> ScanPiece<'a> {
    /// If [`Self::more`], the last covered key, if any.
    pub fn covered_through(&self) -> Option<&'a [u8]> {
        self.through.or_else(|| self.entries().last().map(|last| last.key))
    }

    /// Iterates over the listed keys.
    pub fn entries(&self) -> impl Iterator<Item = Scanned<'a>> + use<'a> {
        codec::each::<Scanned<'static>>(self.listed)
    }
}

impl Scanned<'_> {
    /// Length of the encoded form, in bytes.
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

    fn scan(after: Option<&[u8]>, padding: usize) -> Scan<'_> {
        let range = MatchRange::new(7, 9).unwrap();
        Scan {
            keyspace: KeyspaceId(0),
            op: OpId { client: ClientId(1), sequence: 1 },
            digest: KeyDigest(range.first().to_be_bytes()),
            reply_to: None,
            forwarded: None,
            wants: ScanWants::Keys,
            pieces: 1,
            is_cut: false,
            range,
            after,
            padding,
        }
    }

    #[test]
    fn answer_may_have_three_times_the_request_length() {
        for after in [None, Some(&b""[..]), Some(b"key"), Some(&[7; KEY_BYTES_MAX])] {
            let padded = scan(after, Scan::padding_for(after, DATAGRAM_BYTES_MAX, 1));
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
    fn no_key_lies_between_a_key_and_its_predecessor() {
        assert_eq!((key_before(b""), key_before(b"\0")), (None, Some(b"".to_vec())));
        assert_eq!(key_before(b"a\0"), Some(b"a".to_vec()));
        let before = key_before(b"ab").unwrap();
        assert!(before.as_slice() < &b"ab"[..] && before.as_slice() > &b"aaz"[..]);
        assert_eq!(before.len(), KEY_BYTES_MAX);
    }

    #[test]
    fn answers_have_at_most_three_times_the_request_length() {
        for (pieces, answer_bytes) in [(2, 0), (8, 300), (8, DATAGRAM_BYTES_MAX), (Scan::pieces_max(), 0)] {
            let padding = Scan::padding_for(Some(b"key"), answer_bytes, pieces);
            let scan = Scan { pieces, ..scan(Some(b"key"), padding) };
            let mut bytes = Vec::new();
            scan.encode(&mut bytes);
            assert!(Datagram::decode(&bytes).is_ok() && bytes.len() <= QUESTION_BYTES_MAX, "{pieces}");
            let each = scan.answer_bytes_max();
            assert!(
                each >= ScanPiece::FIXED_BYTES
                    && each * usize::from(pieces) <= AMPLIFICATION_MAX * bytes.len()
            );
            assert!(each >= answer_bytes.min(AMPLIFICATION_MAX * QUESTION_BYTES_MAX / usize::from(pieces)));
        }
    }

    #[test]
    fn too_short_request_for_many_pieces_is_refused() {
        for pieces in [0, 3, PIECES_MAX, PIECES_MAX + 1, 255] {
            let mut bytes = Vec::new();
            Scan { pieces, ..scan(None, 0) }.encode(&mut bytes);
            assert!(Datagram::decode(&bytes).is_err(), "{pieces}");
        }
    }

    #[test]
    fn switch_layout_matches_the_codec() {
        let range = MatchRange::new(7, 9).unwrap();
        let mut bytes = Vec::new();
        Scan { pieces: 2, ..scan(Some(b"key"), 100) }.encode(&mut bytes);
        for leaves_room in [false, true] {
            if leaves_room {
                crate::route::leave_room(&mut bytes);
            }
            let (header, found) = ScanLayout::of(&mut bytes).unwrap();
            assert_eq!((u128::from_be_bytes(header.digest), found.pieces, found.is_cut), (7, 2, 0));
            assert_eq!([found.first, found.last], [range.first(), range.last()].map(u128::to_be_bytes));
            let whole = HeaderLayout::peek(&bytes).map_or(0, |_| bytes.len() - 103 - 2);
            assert!(ScanLayout::of(&mut bytes[..whole - 1]).is_none());
        }
    }

    #[test]
    fn scan_is_routed_by_its_start() {
        let mut bytes = Vec::new();
        Scan { digest: KeyDigest([1; 16]), ..scan(None, 0) }.encode(&mut bytes);
        assert!(Datagram::decode(&bytes).is_err(), "the digest would route it to another partition");
    }

    #[test]
    fn listed_keys_round_trip() {
        let listed = [
            Scanned { key: b"a", form: Form::Hash, value: None },
            Scanned { key: b"b", form: Form::Plain, value: Some(b"") },
        ];
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
            through: None,
            listed: &bytes,
        };
        assert!(piece.entries().eq(listed));
    }
}
