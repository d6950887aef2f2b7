//! A scan, joined of pieces (rule C11).
//!
//! ```text
//!   match values   0 ─────────────────────────────────── all
//!   asked          [ the whole, after nothing            ]
//!   a piece        [ partition 1, up to key k ]
//!   left           [ partition 1, after k     ][ the rest ]
//! ```
//!
//! Clients know no partitions: a piece says how far the one goes in which the question begins, and the rest is asked on its own. So the parts that
//! are left and those that were covered are always the whole, whatever is split or merged meanwhile. A key that is there all the while is listed at least
//! once; once only, if no partition was split.
//!
//! There is no snapshot of a whole keyspace: each piece is one of its own moment.

use crate::Request;
use alloc::vec::Vec;
use nicekv_wire::MatchRange;
use nicekv_wire::limits::DATAGRAM_BYTES_MAX;
use nicekv_wire::scan::{ScanPiece, ScanWants};

/// What is left of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    wants: ScanWants,
    piece_bytes_max: usize,
    /// Nothing after this key.
    last: Option<Vec<u8>>,
    /// In the order of their match values.
    parts: Vec<Part>,
    numbers: u32,
}

/// Of these match values, the keys after that one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    number: u32,
    range: MatchRange,
    after: Vec<u8>,
    is_asked: bool,
}

impl Scan {
    /// Of a whole keyspace, of each partition the keys after `after`.
    pub fn new(wants: ScanWants, after: &[u8]) -> Self {
        let whole = Part { number: 0, range: MatchRange::ALL, after: after.into(), is_asked: false };
        Self { wants, piece_bytes_max: DATAGRAM_BYTES_MAX, last: None, parts: alloc::vec![whole], numbers: 1 }
    }

    /// The same in pieces of about so many bytes, no longer than a datagram.
    pub fn in_pieces_of(self, bytes: usize) -> Self {
        Self { piece_bytes_max: bytes, ..self }
    }

    /// The same up to this key: of each partition the piece with which that is reached is the last, which may list keys after it.
    pub fn up_to(self, last: &[u8]) -> Self {
        Self { last: Some(last.into()), ..self }
    }

    /// Whether everything is covered.
    pub fn is_done(&self) -> bool {
        self.parts.is_empty()
    }

    /// Parts that are asked for and not answered.
    pub fn asked(&self) -> usize {
        self.parts.iter().filter(|part| part.is_asked).count()
    }

    /// Bytes that it occupies beside itself.
    pub fn memory(&self) -> usize {
        let keys: usize = self.parts.iter().map(|part| part.after.capacity()).sum();
        keys + self.parts.capacity() * size_of::<Part>()
    }

    /// The first part that nobody has been asked for, by its number.
    pub fn unasked(&self) -> Option<u32> {
        self.parts.iter().find(|part| !part.is_asked).map(|part| part.number)
    }

    /// The request for a part that there is. It counts as asked for until it is answered, or given up.
    pub fn ask(&mut self, number: u32) -> Request<'_> {
        let part = self.parts.iter_mut().find(|part| part.number == number).expect("such a part is left");
        part.is_asked = true;
        let (wants, bytes_max) = (self.wants, self.piece_bytes_max);
        Request::Scan { wants, range: part.range, after: &part.after, bytes_max }
    }

    /// The request for a part has failed.
    pub fn give_up(&mut self, number: u32) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.number == number) {
            part.is_asked = false;
        }
    }

    /// A piece answers the request for a part; whether it says something of it.
    pub fn take(&mut self, number: u32, piece: &ScanPiece<'_>) -> bool {
        let Some(place) = self.parts.iter().position(|part| part.number == number) else { return false };
        let part = &mut self.parts[place];
        part.is_asked = false;
        let (asked, covered) = (part.range, piece.range);
        let through = piece.covered_through();
        let goes_on = !piece.more || through > part.after.as_slice();
        if covered.first() != asked.first() || covered.last() > asked.last() || !goes_on {
            return false;
        }
        let rest = covered.last().checked_add(1).and_then(|first| MatchRange::new(first, asked.last()).ok());
        let rest = rest.map(|range| Part {
            number: self.numbers,
            range,
            after: part.after.clone(),
            is_asked: false,
        });
        self.numbers += u32::from(rest.is_some());
        let is_enough = self.last.as_ref().is_some_and(|last| through >= last.as_slice());
        let left = (piece.more && !is_enough).then(|| Part {
            range: covered,
            after: through.into(),
            ..part.clone()
        });
        self.parts.splice(place..=place, left.into_iter().chain(rest));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_wire::{Epoch, OpId, PartitionId};

    fn piece(first: u128, last: u128, through: Option<&[u8]>) -> ScanPiece<'_> {
        ScanPiece {
            op: OpId::NONE,
            partition: PartitionId(1),
            epoch: Epoch(1),
            range: MatchRange::new(first, last).unwrap(),
            more: through.is_some(),
            count: 0,
            through: through.unwrap_or_default(),
            listed: &[],
        }
    }

    fn asked(scan: &mut Scan) -> Vec<(u32, u128, u128, Vec<u8>)> {
        core::iter::from_fn(|| {
            let number = scan.unasked()?;
            let Request::Scan { range, after, .. } = scan.ask(number) else { panic!("a scan") };
            Some((number, range.first(), range.last(), after.to_vec()))
        })
        .collect()
    }

    #[test]
    fn pieces_and_what_is_left_are_the_whole() {
        let mut scan = Scan::new(ScanWants::Keys, b"");
        assert_eq!(asked(&mut scan), [(0, 0, u128::MAX, Vec::new())]);
        assert!(scan.take(0, &piece(0, 99, Some(b"k"))));
        assert_eq!(asked(&mut scan), [(0, 0, 99, b"k".to_vec()), (1, 100, u128::MAX, Vec::new())]);
        assert!(scan.take(1, &piece(100, u128::MAX, None)) && !scan.is_done());
        // The partition was split meanwhile: what is after the key is left of both halves.
        assert!(scan.take(0, &piece(0, 49, None)));
        assert_eq!(asked(&mut scan), [(2, 50, 99, b"k".to_vec())]);
        assert!(scan.take(2, &piece(50, 99, None)) && scan.is_done());
    }

    #[test]
    fn nothing_is_asked_after_the_last_key() {
        let mut scan = Scan::new(ScanWants::Keys, b"").up_to(b"m");
        asked(&mut scan);
        assert!(scan.take(0, &piece(0, 99, Some(b"l"))));
        assert_eq!(asked(&mut scan).len(), 2);
        assert!(scan.take(0, &piece(0, 99, Some(b"m"))));
        assert!(scan.take(1, &piece(100, u128::MAX, Some(b"n"))) && scan.is_done());
    }

    #[test]
    fn what_says_nothing_of_a_part_is_not_believed() {
        let mut scan = Scan::new(ScanWants::Keys, b"m");
        asked(&mut scan);
        for strange in [piece(1, 9, None), piece(0, 9, Some(b"a")), piece(0, 9, Some(b"m"))] {
            assert!(!scan.take(0, &strange), "{strange:?}");
            assert_eq!(asked(&mut scan).len(), 1, "it is asked for again");
        }
        assert!(!scan.take(7, &piece(0, 9, None)));
        scan.give_up(0);
        assert_eq!((scan.asked(), scan.unasked()), (0, Some(0)));
        assert!(scan.take(0, &piece(0, 9, Some(b"n"))));
        scan.ask(0);
        assert!(!scan.take(0, &piece(0, 10, None)), "more than was asked for");
    }
}
