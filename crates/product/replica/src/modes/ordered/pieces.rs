//! Pieces of scans (C11): what an answer lists of a page of the engine, and how much of the page it
//! covers.
//!
//! ```text
//!   page     a   b(deleted)   c   d(overdue)   e
//!   piece    a                c │                 covers everything through c; d is deleted first, as for a get (R11)
//! ```
//!
//! Invariants: a key that is covered and not listed did not exist. A piece covers at least one key
//! after the one asked for, or the whole rest, unless the first key is overdue or does not fit.

use crate::modes::entry::{decode_entry, is_overdue};
use crate::{Page, stored_entries};
use alloc::vec::Vec;
use nicekv_proto::scan::{ScanWants, Scanned};
use nicekv_proto::{Form, KeyOrder, MatchRange, Now, OpId};

/// The bounds of an answer to a scan: its keys, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) wants: ScanWants,
    /// Only keys with match values in this range.
    pub(crate) range: MatchRange,
    /// How keys map to match values.
    pub(crate) order: KeyOrder,
    /// Bytes available for the list plus the last covered key.
    pub(crate) bytes_max: usize,
}

/// The part of a page that goes into the answer.
#[derive(Debug, Default)]
pub(crate) struct Piece<'a> {
    pub(crate) listed: Vec<u8>,
    pub(crate) count: u32,
    /// The last covered key, if it is not the last listed one.
    pub(crate) through: Option<&'a [u8]>,
    /// Whether the piece ends before the page does.
    pub(crate) is_cut: bool,
    /// Whether the piece covers no key of the page.
    pub(crate) is_empty: bool,
    /// Overdue keys of the page, with the versions that have to be deleted.
    pub(crate) overdue: Vec<(&'a [u8], OpId)>,
}

impl<'a> Piece<'a> {
    /// Cuts a piece of a page.
    pub(crate) fn of(page: &Page<'a>, frame: Frame, now: Now) -> Self {
        let mut piece = Self { is_empty: true, ..Self::default() };
        for (key, entry) in stored_entries(page.entries) {
            let entry = decode_entry(entry);
            let is_asked =
                frame.range.contains(nicekv_proto::placement::match_digest(frame.order, key).match_value());
            let value = entry.value.filter(|_| is_asked);
            if value.is_some() && is_overdue(entry.expiry_ms, now) {
                piece.overdue.push((key, entry.version));
                piece.is_cut = true;
            }
            // Go on behind the cut: overdue keys there are deleted now, too.
            if !piece.is_cut {
                piece.is_cut = !piece.cover(key, entry.form, value, frame);
            }
        }
        piece
    }

    /// Covers one more key. Returns false if there is no room.
    fn cover(&mut self, key: &'a [u8], form: Form, value: Option<&[u8]>, frame: Frame) -> bool {
        // Only plain values are listed; clients read others with gets.
        let is_listed = frame.wants == ScanWants::Values && form == Form::Plain;
        let value = value.map(|value| Scanned { key, form, value: Some(value).filter(|_| is_listed) });
        let listed = value.filter(|_| frame.wants != ScanWants::Count);
        let through = Some(key).filter(|_| listed.is_none());
        let bytes =
            self.listed.len() + listed.map_or(0, |listed| listed.bytes()) + through.map_or(0, <[u8]>::len);
        if bytes > frame.bytes_max {
            return false;
        }
        if let Some(listed) = listed {
            listed.append(&mut self.listed);
        }
        self.count += u32::from(value.is_some());
        (self.through, self.is_empty) = (through, false);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::large::Reference;
    use nicekv_proto::recovery::{Entry, put_keyed_entry};
    use nicekv_proto::scan::ScanPiece;
    use nicekv_proto::{ClientId, Datagram};

    const NOW: Now = Now { boot_ns: 1, unix_ms: 1_000 };

    /// Key, value, time of expiry.
    type Held<'a> = (&'a [u8], Option<&'a [u8]>, u64);

    fn page(entries: &[Held<'_>]) -> Vec<u8> {
        let mut page = Vec::new();
        for (key, value, expiry_ms) in entries {
            let version = OpId { client: ClientId(1), sequence: 1 };
            let mut bytes = Vec::new();
            Entry { index: 1, version, expiry_ms: *expiry_ms, form: Form::Plain, value: *value }
                .append(&mut bytes);
            put_keyed_entry(&mut page, key, &bytes);
        }
        page
    }

    fn keys(piece: &Piece<'_>) -> Vec<Vec<u8>> {
        told(piece, |piece| piece.entries().map(|entry| entry.key.to_vec()).collect())
    }

    /// The part of the piece that a client reads.
    fn told<T>(piece: &Piece<'_>, read: impl Fn(&ScanPiece<'_>) -> T) -> T {
        let told = ScanPiece {
            op: OpId::NONE,
            partition: nicekv_proto::PartitionId(1),
            epoch: nicekv_proto::Epoch(1),
            range: MatchRange::ALL,
            more: true,
            count: piece.count,
            through: piece.through,
            listed: &piece.listed,
        };
        let mut datagram = Vec::new();
        told.encode(&mut datagram);
        let (_, decoded) = Datagram::decode(&datagram).unwrap();
        let Datagram::ScanPiece(decoded) = decoded else { panic!("{decoded:?}") };
        read(&decoded)
    }

    fn cut<'a>(entries: &'a [u8], wants: ScanWants, bytes_max: usize) -> Piece<'a> {
        let page = Page { entries, corrupt: &[], more: true };
        Piece::of(&page, Frame { wants, range: MatchRange::ALL, order: KeyOrder::Hash, bytes_max }, NOW)
    }

    #[test]
    fn deleted_key_is_covered_and_not_listed() {
        let entries =
            page(&[(b"a", Some(b"1"), 0), (b"b", None, 0), (b"c", Some(b"3"), 2_000), (b"d", None, 0)]);
        let piece = cut(&entries, ScanWants::Keys, 1_000);
        assert_eq!(keys(&piece), [b"a", b"c"]);
        assert_eq!((piece.through, piece.is_cut, piece.count), (Some(&b"d"[..]), false, 2));
        let counted = cut(&entries, ScanWants::Count, 1_000);
        assert_eq!((counted.count, counted.listed.len(), counted.through), (2, 0, Some(&b"d"[..])));
    }

    #[test]
    fn piece_lists_forms_and_plain_values_only() {
        let (mut fields, mut entries) = (Vec::new(), Vec::new());
        nicekv_proto::hash::Field { name: b"n", value: b"1" }.append(&mut fields);
        let name = OpId { client: ClientId(1), sequence: 2 };
        let reference = Reference { name, length: 5_000, checksum: 9 }.bytes();
        let held = [(Form::Plain, &b"1"[..]), (Form::Large, &reference), (Form::Hash, &fields)];
        for (number, (form, value)) in held.into_iter().enumerate() {
            let (version, mut bytes) = (OpId { client: ClientId(1), sequence: 1 }, Vec::new());
            Entry { index: 1, version, expiry_ms: 0, form, value: Some(value) }.append(&mut bytes);
            put_keyed_entry(&mut entries, &[number as u8], &bytes);
        }
        let listed = |wants| {
            let piece = cut(&entries, wants, 1_000);
            told(&piece, |piece| {
                piece.entries().map(|one| (one.form, one.value.is_some())).collect::<Vec<_>>()
            })
        };
        let forms = held.map(|(form, _)| form);
        assert_eq!(listed(ScanWants::Keys), forms.map(|form| (form, false)));
        assert_eq!(listed(ScanWants::Values), forms.map(|form| (form, form == Form::Plain)));
    }

    #[test]
    fn piece_ends_before_a_key_that_does_not_fit() {
        let entries = page(&[(b"a", Some(&[7; 100]), 0), (b"b", Some(&[7; 100]), 0), (b"c", None, 0)]);
        let one = Scanned { key: b"a", form: Form::Plain, value: Some(&[7; 100]) }.bytes();
        let piece = cut(&entries, ScanWants::Values, 2 * one - 1);
        assert_eq!((keys(&piece).len(), piece.is_cut, piece.through), (1, true, None));
        let both = cut(&entries, ScanWants::Values, 2 * one);
        assert_eq!(
            (both.count, both.is_cut, both.through),
            (2, true, None),
            "no room for c as the last covered key"
        );
        let none = cut(&entries, ScanWants::Values, one - 1);
        assert!(none.is_empty && none.is_cut);
    }

    #[test]
    fn overdue_value_is_deleted_first() {
        let entries = page(&[
            (b"a", Some(b"1"), 0),
            (b"b", Some(b"2"), 999),
            (b"c", Some(b"3"), 1_000),
            (b"d", Some(b"4"), 0),
        ]);
        let piece = cut(&entries, ScanWants::Keys, 1_000);
        assert_eq!((keys(&piece).len(), piece.is_cut), (1, true));
        let overdue: Vec<_> = piece.overdue.iter().map(|(key, _)| *key).collect();
        assert_eq!(overdue, [b"b", b"c"]);
    }

    #[test]
    fn keys_with_other_match_values_are_skipped() {
        let entries = page(&[(b"a", Some(b"1"), 0), (b"b", Some(b"2"), 0)]);
        let at = nicekv_proto::placement::key_digest(b"b").match_value();
        let (order, range) = (KeyOrder::Hash, MatchRange::new(at, at).unwrap());
        let frame = Frame { wants: ScanWants::Keys, range, order, bytes_max: 100 };
        let piece = Piece::of(&Page { entries: &entries, corrupt: &[], more: false }, frame, NOW);
        assert_eq!(keys(&piece), [b"b"]);
    }
}
