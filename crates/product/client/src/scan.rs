//! A scan of a keyspace, assembled from pieces (rule C11).
//!
//! ```text
//!   match values   0 ─────────────────────────────────── max
//!   requested      [ everything                          ]
//!   piece          [ partition 1, up to key k ]
//!   left           [ partition 1, after k     ][ the rest ]
//! ```
//!
//! Clients do not know partitions. A part that may span several is requested in several pieces at once: a switch that knows
//! the borders sends the request to each partition (TurboKV §4.3). What no answer covers is left: a piece was lost, or lies
//! beyond the last one that the switch made. So the parts that are left and the pieces that have come always add up to the
//! whole, whatever is split or merged meanwhile. A key that exists throughout the scan is listed at least once, and exactly
//! once if no partition is split.
//!
//! There is no snapshot of a whole keyspace: each piece is consistent by itself, at its own time.

use crate::Request;
use alloc::vec::Vec;
use nicekv_proto::MatchRange;
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use nicekv_proto::scan::{self, ScanPiece, ScanWants};

/// Default number of pieces that are requested at once. With more of them, each has less room.
const PIECES_AT_ONCE: u8 = 8;

/// The state of a scan: what is left of it.
///
/// Take a part with [`Self::unasked`] and [`Self::ask`], submit the request, and pass the answer to [`Self::take`] (or call
/// [`Self::give_up`] if it failed), until [`Self::is_done`]. Several parts may be requested at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    wants: ScanWants,
    piece_bytes_max: usize,
    /// The last key that is wanted.
    last: Option<Vec<u8>>,
    /// In the order of their match values.
    parts: Vec<Part>,
    numbers: u32,
}

/// A part of the scan that is left: the keys after `after` with these match values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    number: u32,
    range: MatchRange,
    after: Option<Vec<u8>>,
    is_asked: bool,
    /// Number of pieces to request at once; 1: the part is, or was, known to be within one
    /// partition.
    pieces: u8,
}

impl Part {
    /// Whether a piece answers the request for this part.
    fn is_answered_by(&self, piece: &ScanPiece<'_>) -> bool {
        let (asked, covered) = (self.range, piece.range);
        let is_within = covered.first() >= asked.first() && covered.last() <= asked.last();
        match self.pieces {
            1 => is_within && covered.first() == asked.first() && self.is_advanced_by(piece),
            _ => is_within,
        }
    }

    /// Whether a piece covers further keys. A piece without room for a key still tells how far its
    /// partition extends.
    fn is_advanced_by(&self, piece: &ScanPiece<'_>) -> bool {
        !piece.more || piece.covered_through() > self.after.as_deref()
    }

    /// The match values of this part from `first` to below `end`; `None` if there are none.
    fn between(&self, first: Option<u128>, end: Option<u128>) -> Option<Self> {
        let last = end.map_or(Some(self.range.last()), |end| end.checked_sub(1))?;
        let range = MatchRange::new(first?, last).ok()?;
        Some(Self { range, is_asked: false, ..self.clone() })
    }

    /// The part of a piece's range after its last key.
    fn behind(&self, piece: &ScanPiece<'_>) -> Option<Self> {
        let after = if self.is_advanced_by(piece) { piece.covered_through() } else { self.after.as_deref() };
        piece.more.then(|| Self {
            range: piece.range,
            after: after.map(<[u8]>::to_vec),
            is_asked: false,
            pieces: 1,
            ..*self
        })
    }
}

impl Scan {
    /// A scan of a whole keyspace; in each partition, of the keys after `after`.
    pub fn new(wants: ScanWants, after: Option<&[u8]>) -> Self {
        let (range, after, pieces) = (MatchRange::ALL, after.map(<[u8]>::to_vec), PIECES_AT_ONCE);
        let whole = Part { number: 0, range, after, is_asked: false, pieces };
        Self { wants, piece_bytes_max: DATAGRAM_BYTES_MAX, last: None, parts: alloc::vec![whole], numbers: 1 }
    }

    /// Requests pieces of about `bytes`, at most a datagram.
    pub fn in_pieces_of(self, bytes: usize) -> Self {
        Self { piece_bytes_max: bytes, ..self }
    }

    /// Restricts the scan to these match values. Call it before the first request.
    pub fn within(mut self, range: MatchRange) -> Self {
        self.parts.iter_mut().for_each(|part| part.range = range);
        self
    }

    /// Requests `pieces` pieces at once, at least one. Call it before the first request.
    pub fn split_into(mut self, pieces: u8) -> Self {
        let pieces = pieces.clamp(1, scan::Scan::pieces_max());
        self.parts.iter_mut().for_each(|part| part.pieces = pieces);
        self
    }

    /// Ends the scan of each partition with the piece that reaches this key. That piece may list later keys.
    pub fn up_to(self, last: &[u8]) -> Self {
        Self { last: Some(last.into()), ..self }
    }

    /// Whether nothing is left.
    pub fn is_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether all keys up to this one, which has this match value, were covered; in a keyspace ordered by key.
    pub fn has_passed(&self, match_value: u128, key: &[u8]) -> bool {
        let is_before = |part: &Part| match_value < part.range.first() || Some(key) <= part.after.as_deref();
        self.parts.first().is_none_or(is_before)
    }

    /// Parts that are requested and not answered.
    pub fn asked(&self) -> usize {
        self.parts.iter().filter(|part| part.is_asked).count()
    }

    /// Bytes of heap memory.
    pub fn memory(&self) -> usize {
        let keys: usize = self.parts.iter().filter_map(|part| part.after.as_ref()).map(Vec::capacity).sum();
        keys + self.parts.capacity() * size_of::<Part>()
    }

    /// The number of the first part that is not requested.
    pub fn unasked(&self) -> Option<u32> {
        self.parts.iter().find(|part| !part.is_asked).map(|part| part.number)
    }

    /// The request for a part, which must exist. The part counts as requested until it is answered or given up.
    pub fn ask(&mut self, number: u32) -> Request<'_> {
        let part = self.parts.iter_mut().find(|part| part.number == number).expect("the part exists");
        part.is_asked = true;
        let (wants, bytes_max) = (self.wants, self.piece_bytes_max);
        Request::Scan {
            wants,
            range: part.range,
            after: part.after.as_deref(),
            bytes_max,
            pieces: part.pieces,
        }
    }

    /// The request for a part has failed.
    pub fn give_up(&mut self, number: u32) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.number == number) {
            part.is_asked = false;
        }
    }

    /// Takes the pieces that answer the request for a part. Calls `each` for those that are of use, in the order of their
    /// match values; no two of them overlap. Returns whether there were any.
    pub fn take<'a>(
        &mut self,
        number: u32,
        pieces: impl Iterator<Item = ScanPiece<'a>>,
        mut each: impl FnMut(&ScanPiece<'a>),
    ) -> bool {
        let Some(place) = self.parts.iter().position(|part| part.number == number) else { return false };
        self.parts[place].is_asked = false;
        let part = self.parts[place].clone();
        let mut useful: Vec<_> = pieces.filter(|piece| part.is_answered_by(piece)).collect();
        useful.sort_by_key(|piece| piece.range.first());
        if useful.is_empty() {
            return false;
        }
        // If the switch has made all the pieces, there may be as many partitions again beyond them.
        let is_full = useful.len() == usize::from(part.pieces) && part.pieces > 1;
        let (mut left, mut next) = (Vec::new(), Some(part.range.first()));
        for piece in useful {
            // It overlaps the piece before, because the switch's tables have changed in between.
            if next.is_none_or(|next| piece.range.first() < next) {
                continue;
            }
            each(&piece);
            left.extend(part.between(next, Some(piece.range.first())));
            let is_enough = self.last.as_ref().is_some_and(|last| piece.covered_through() >= Some(last));
            left.extend(part.behind(&piece).filter(|_| !is_enough));
            next = piece.range.last().checked_add(1);
        }
        let rest = part.between(next, None).map(|rest| Part {
            pieces: if is_full {
                part.pieces.saturating_mul(2).min(scan::Scan::pieces_max())
            } else {
                part.pieces
            },
            ..rest
        });
        left.extend(rest);
        for part in left.iter_mut().skip(1) {
            part.number = self.numbers;
            self.numbers += 1;
        }
        self.parts.splice(place..=place, left);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{Epoch, OpId, PartitionId};

    fn piece(first: u128, last: u128, through: Option<&[u8]>) -> ScanPiece<'_> {
        ScanPiece {
            op: OpId::NONE,
            partition: PartitionId(1),
            epoch: Epoch(1),
            range: MatchRange::new(first, last).unwrap(),
            more: through.is_some(),
            count: 0,
            through,
            listed: &[],
        }
    }

    /// A requested part: number, first and last match value, the key after which it continues,
    /// number of pieces.
    type Asked = (u32, u128, u128, Option<Vec<u8>>, u8);

    fn asked(scan: &mut Scan) -> Vec<Asked> {
        core::iter::from_fn(|| {
            let number = scan.unasked()?;
            let Request::Scan { range, after, pieces, .. } = scan.ask(number) else { panic!("a scan") };
            Some((number, range.first(), range.last(), after.map(<[u8]>::to_vec), pieces))
        })
        .collect()
    }

    fn after(key: &str) -> Option<Vec<u8>> {
        Some(key.into())
    }

    /// The first match values of the pieces that were of use.
    fn take(scan: &mut Scan, number: u32, pieces: &[ScanPiece<'_>]) -> Vec<u128> {
        let mut told = Vec::new();
        let is_told = scan.take(number, pieces.iter().copied(), |piece| told.push(piece.range.first()));
        assert_eq!(is_told, !told.is_empty());
        told
    }

    fn by_one() -> Scan {
        Scan::new(ScanWants::Keys, None).split_into(1)
    }

    #[test]
    fn pieces_and_what_is_left_add_up_to_the_whole() {
        let mut scan = by_one();
        assert_eq!(asked(&mut scan), [(0, 0, u128::MAX, None, 1)]);
        assert_eq!(take(&mut scan, 0, &[piece(0, 99, Some(b"k"))]), [0]);
        assert_eq!(asked(&mut scan), [(0, 0, 99, after("k"), 1), (1, 100, u128::MAX, None, 1)]);
        assert_eq!(take(&mut scan, 1, &[piece(100, u128::MAX, None)]), [100]);
        // The partition was split meanwhile: of both halves, the part after the key is left.
        assert_eq!(take(&mut scan, 0, &[piece(0, 49, None)]), [0]);
        assert_eq!(asked(&mut scan), [(0, 50, 99, after("k"), 1)]);
        assert!(!take(&mut scan, 0, &[piece(50, 99, None)]).is_empty() && scan.is_done());
    }

    #[test]
    fn scan_continues_after_the_empty_key() {
        let mut scan = by_one();
        asked(&mut scan);
        let nothing = ScanPiece { more: true, ..piece(0, u128::MAX, None) };
        assert_eq!(take(&mut scan, 0, &[nothing]), [0; 0], "not even the empty key is covered");
        assert_eq!(asked(&mut scan), [(0, 0, u128::MAX, None, 1)]);
        assert_eq!(take(&mut scan, 0, &[piece(0, u128::MAX, Some(b""))]), [0]);
        assert_eq!(asked(&mut scan), [(0, 0, u128::MAX, after(""), 1)]);
        assert!(!scan.has_passed(0, b"\0") && scan.has_passed(0, b""));
        assert_eq!(take(&mut scan, 0, &[piece(0, u128::MAX, Some(b""))]), [0; 0], "nothing new");
        assert_eq!(take(&mut scan, 0, &[piece(0, u128::MAX, Some(b"\0"))]), [0]);
    }

    #[test]
    fn uncovered_ranges_are_left() {
        let mut scan = Scan::new(ScanWants::Keys, Some(b"a")).split_into(4);
        asked(&mut scan);
        let came = [piece(200, 299, None), piece(0, 99, Some(b"k")), piece(400, 499, Some(b""))];
        assert_eq!(take(&mut scan, 0, &came), [0, 200, 400]);
        let left = [
            (0, 0, 99, after("k"), 1),
            (1, 100, 199, after("a"), 4),
            (2, 300, 399, after("a"), 4),
            // The piece had room for no key.
            (3, 400, 499, after("a"), 1),
            (4, 500, u128::MAX, after("a"), 4),
        ];
        assert_eq!(asked(&mut scan), left);
    }

    #[test]
    fn full_set_of_pieces_doubles_the_next_request() {
        let mut scan = by_one().split_into(2);
        asked(&mut scan);
        assert_eq!(take(&mut scan, 0, &[piece(0, 9, None), piece(10, 19, None)]), [0, 10]);
        assert_eq!(asked(&mut scan), [(0, 20, u128::MAX, None, 4)]);
        let rest =
            [(20, 29), (30, 39), (40, 49), (50, u128::MAX)].map(|(first, last)| piece(first, last, None));
        assert!(!take(&mut scan, 0, &rest).is_empty() && scan.is_done());
        let most = nicekv_proto::scan::Scan::pieces_max();
        let mut scan = by_one().split_into(255);
        assert_eq!(asked(&mut scan), [(0, 0, u128::MAX, None, most)]);
    }

    #[test]
    fn overlapping_pieces_are_taken_once() {
        let mut scan = by_one().split_into(8);
        asked(&mut scan);
        let came =
            [piece(0, 99, None), piece(0, 99, None), piece(50, 149, None), piece(100, u128::MAX, None)];
        assert_eq!(take(&mut scan, 0, &came), [0, 100]);
        assert!(scan.is_done());
    }

    #[test]
    fn scan_ends_at_the_last_wanted_key() {
        let mut scan = by_one().up_to(b"m");
        asked(&mut scan);
        take(&mut scan, 0, &[piece(0, 99, Some(b"l"))]);
        assert_eq!(asked(&mut scan).len(), 2);
        take(&mut scan, 0, &[piece(0, 99, Some(b"m"))]);
        assert!(!take(&mut scan, 1, &[piece(100, u128::MAX, Some(b"n"))]).is_empty() && scan.is_done());
    }

    #[test]
    fn covered_keys_are_known_in_key_order() {
        let mut scan = by_one().within(MatchRange::new(10, 99).unwrap());
        assert_eq!(asked(&mut scan), [(0, 10, 99, None, 1)]);
        assert!(!scan.has_passed(10, b"a"));
        take(&mut scan, 0, &[piece(10, 19, Some(b"k"))]);
        let passed =
            [(10, &b"k"[..]), (19, b"ka"), (20, b"m")].map(|(value, key)| scan.has_passed(value, key));
        assert_eq!(passed, [true, false, false]);
        asked(&mut scan);
        take(&mut scan, 1, &[piece(20, 99, None)]);
        assert!(!scan.has_passed(20, b"m"), "what is behind a hole waits");
        take(&mut scan, 0, &[piece(10, 19, None)]);
        assert!(scan.has_passed(20, b"m") && scan.is_done());
    }

    #[test]
    fn pieces_that_answer_nothing_are_ignored() {
        let mut scan = Scan::new(ScanWants::Keys, Some(b"m")).split_into(1);
        asked(&mut scan);
        for strange in [piece(1, 9, None), piece(0, 9, Some(b"a")), piece(0, 9, Some(b"m"))] {
            assert!(take(&mut scan, 0, &[strange]).is_empty(), "{strange:?}");
            assert_eq!(asked(&mut scan).len(), 1, "the part is requested again");
        }
        assert!(take(&mut scan, 7, &[piece(0, 9, None)]).is_empty());
        scan.give_up(0);
        assert_eq!((scan.asked(), scan.unasked()), (0, Some(0)));
        assert!(!take(&mut scan, 0, &[piece(0, 9, Some(b"n"))]).is_empty());
        scan.ask(0);
        assert!(
            take(&mut scan, 0, &[piece(0, 10, None)]).is_empty(),
            "the piece exceeds the requested range"
        );
    }
}
