//! Compares another member's listing of a key range with the local entries. Reports keys that
//! differ although no decision under way explains it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::recovery::Entry;
use nicekv_proto::scrub::ListedEntry;

/// A page listed by another member that has to be compared.
#[derive(Clone)]
pub(crate) struct Compare {
    pub(crate) logged: u64,
    pub(crate) is_last: bool,
    pub(crate) bytes: usize,
    pub(crate) listed: Vec<(Box<[u8]>, Option<ListedEntry>)>,
    /// How many pages of the engine may still be read for this comparison.
    pub(crate) pages_left: usize,
}

/// An entry in a page of the scrub.
pub(crate) fn listed_entry(stored: &[u8]) -> ListedEntry {
    let entry = Entry::decode(stored).expect("the engine returns what was stored");
    let digest = nicekv_proto::placement::key_digest(stored).0;
    let digest = u64::from_be_bytes(digest[..8].try_into().expect("16 bytes"));
    ListedEntry { index: entry.index, digest, is_tombstone: entry.value.is_none() }
}

impl Compare {
    /// The keys whose entries differ between the sender and this member. This member must have
    /// logged at least as much as the sender.
    pub(crate) fn suspects(&self, mine: &[(&[u8], &[u8])]) -> Vec<Box<[u8]>> {
        let mut suspects = Vec::new();
        let mut mine = mine.iter().peekable();
        for (key, theirs) in &self.listed {
            while let Some((other, stored)) = mine.next_if(|(other, _)| *other < &**key) {
                if self.differs(None, Some(stored)) {
                    suspects.push((*other).into());
                }
            }
            let stored = mine.next_if(|(other, _)| *other == &**key).map(|(_, stored)| *stored);
            if let Some(theirs) = theirs
                && self.differs(Some(*theirs), stored)
            {
                suspects.push(key.clone());
            }
        }
        suspects.extend(
            mine.filter(|(_, stored)| self.differs(None, Some(stored))).map(|(key, _)| (*key).into()),
        );
        suspects
    }

    fn differs(&self, theirs: Option<ListedEntry>, mine: Option<&[u8]>) -> bool {
        let mine = mine.map(listed_entry);
        match (theirs, mine) {
            // The key was written after the sender listed it.
            (_, Some(mine)) if mine.index > self.logged => false,
            (Some(theirs), Some(mine)) => theirs != mine,
            // A tombstone is dropped when every original member holds the deletion.
            (Some(alone), None) | (None, Some(alone)) => !alone.is_tombstone,
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{ClientId, Form, OpId};

    fn stored(index: u64, value: Option<&[u8]>) -> Vec<u8> {
        let version = OpId { client: ClientId(1), sequence: index };
        let mut bytes = Vec::new();
        Entry { index, version, expiry_ms: 0, form: Form::Plain, value }.append(&mut bytes);
        bytes
    }

    fn listed(key: &str, index: u64, value: Option<&[u8]>) -> (Box<[u8]>, Option<ListedEntry>) {
        (key.as_bytes().into(), Some(listed_entry(&stored(index, value))))
    }

    #[track_caller]
    fn check(
        theirs: &[(Box<[u8]>, Option<ListedEntry>)],
        mine: &[(&str, u64, Option<&[u8]>)],
        suspects: &[&str],
    ) {
        let compare = Compare { logged: 10, is_last: true, bytes: 0, listed: theirs.to_vec(), pages_left: 1 };
        let mine: Vec<_> =
            mine.iter().map(|(key, index, value)| (key.as_bytes(), stored(*index, *value))).collect();
        let mine: Vec<_> = mine.iter().map(|(key, stored)| (*key, &stored[..])).collect();
        let found = compare.suspects(&mine);
        let found: Vec<_> = found.iter().map(|key| std::str::from_utf8(key).unwrap()).collect();
        assert_eq!(found, suspects);
    }

    #[test]
    fn difference_without_a_decision_under_way_is_suspect() {
        let (one, other) = (Some(b"1".as_slice()), Some(b"2".as_slice()));
        let theirs = [listed("b", 4, one), listed("d", 7, one), ("f".as_bytes().into(), None)];
        check(&theirs, &[("b", 4, one), ("d", 7, one), ("f", 5, one)], &[]);
        check(&theirs, &[("b", 4, other), ("d", 7, one)], &["b"]);
        check(&theirs, &[("b", 4, one), ("d", 6, one)], &["d"]);
        check(&theirs, &[("b", 4, one)], &["d"]);
        check(
            &theirs,
            &[("a", 3, one), ("b", 4, one), ("c", 9, one), ("d", 7, one), ("g", 1, one)],
            &["a", "c", "g"],
        );
        check(&[], &[("a", 3, one)], &["a"]);
    }

    #[test]
    fn newer_writes_and_dropped_tombstones_are_not_suspect() {
        let one = Some(b"1".as_slice());
        let theirs = [listed("b", 4, one), listed("d", 7, None)];
        check(&theirs, &[("a", 11, one), ("b", 12, one), ("c", 13, None)], &[]);
        check(&theirs, &[("b", 12, None), ("c", 3, None), ("d", 7, None)], &[]);
        check(&theirs, &[("b", 4, one), ("d", 7, one)], &["d"]);
        check(&theirs, &[("b", 10, one), ("d", 5, one)], &["b", "d"]);
    }
}
