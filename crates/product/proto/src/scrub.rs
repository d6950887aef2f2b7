//! A node-to-node message by which replicas find that they differ: what one of them has of a range of keys, as digests.
//!
//! A page says where its range begins and ends, so that what it does not list is known not to be there. Two long keys do not fit a datagram; then the range is
//! cut between them, at the bytes that they share and the first one by which they differ. Of either key that takes no more than a number:
//!
//! ```text
//!   keys            abcd…            abcf…
//!   page     ─────────┘                │            ends with a key
//!   page               ─── abcf        │            lists nothing, and ends there: 3 bytes of `after`, and an f
//!   page                   └───────────┴─────       begins there: with 4 bytes of the first key that it lists
//! ```

use crate::codec::{self, After, Codec, Key, Maybe, RestOf};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX};
use crate::scan::key_before;
use crate::{DecodeError, Epoch, NodeId, PartitionId};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::mem::size_of;

message! {
    /// From a member to another: this is what I have of the keys after `after`, up to and including the last one that is listed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScrubPage<'a>: ScrubPage where is_possible {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that lists.
            sender: NodeId,
            /// Only keys after this one; none: from the first, unless [`Self::begins_with`] says otherwise.
            after: Option<&'a [u8]> as After,
            /// How much the keys and entries are together, about.
            bytes: u32,
            /// The last decision that the sender had logged then.
            logged: u64,
            /// The last decision that it knew to be held by every member.
            released: u64,
            /// There are no more keys: the range goes to the end of the partition.
            is_last: bool,
            /// Only keys from so many bytes of the first listed one on; 0: `after` says it.
            begins_with: u16,
            /// Nothing is listed, and of this the next page tells.
            ends_before: Option<Cut> as Maybe<Cut> => 1 zeros,
            /// [`Listed`] ones, in the order of their keys.
            listed: &'a [u8] as RestOf<Listed<'static>>,
        }
    }
}

part! {
    /// A place between two keys.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Cut {
        /// So many bytes of both.
        shared: u16,
        /// And the next one of the second.
        next: u8,
    }
}

impl Cut {
    /// Between these keys, of which the first comes before the second.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn between(first: &[u8], second: &[u8]) -> Self {
        assert!(first < second, "in the order of keys");
        let shared = first.iter().zip(second).take_while(|(one, other)| one == other).count();
        Self { shared: shared as u16, next: second[shared] }
    }

    /// How many bytes of the second key come after the first.
    pub fn bytes(&self) -> u16 {
        self.shared + 1
    }

    /// These bytes; none if no key comes after `first` that it could be made of.
    fn after(&self, first: &[u8]) -> Option<Vec<u8>> {
        let (shared, rest) = first.split_at_checked(self.shared.into())?;
        let is_after = rest.first().is_none_or(|byte| *byte < self.next);
        is_after.then(|| [shared, &[self.next]].concat())
    }
}

part! {
    /// What a member has of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Listed<'a> {
        /// Its entry; `None`: it is being changed, or cannot be read.
        entry: Option<ListedEntry> as Maybe<ListedEntry>,
        /// The key.
        key: &'a [u8] as Key,
    }
}

part! {
    /// An entry, as a [`ScrubPage`] tells of it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ListedEntry {
        /// The decision that wrote it.
        index: u64,
        /// Of its stored form.
        digest: u64,
        /// Whether it is a tombstone.
        is_tombstone: bool,
    }
}

impl<'a> ScrubPage<'a> {
    /// Most bytes of [`Self::after`] and [`Self::listed`] together.
    pub const VARYING_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Self::FIXED_BYTES;
    /// Room that is kept for [`Self::after`], so that what a page lists depends on that for long keys alone.
    pub const AFTER_BYTES_MIN: usize = 256;

    /// The page tells of the keys after this one.
    pub fn begins_after(&self) -> Option<Cow<'a, [u8]>> {
        match self.entries().next() {
            Some(first) if self.begins_with > 0 => {
                key_before(&first.key[..usize::from(self.begins_with)]).map(Cow::Owned)
            }
            _ => self.after.map(Cow::Borrowed),
        }
    }

    /// Where the page ends that lists nothing: something may be there.
    pub fn ends_before(&self) -> Option<Vec<u8>> {
        self.ends_before?.after(self.after.unwrap_or_default())
    }

    fn is_possible(&self) -> Result<(), DecodeError> {
        let begins_with = usize::from(self.begins_with);
        let first_bytes = self.entries().next().map_or(0, |first| first.key.len());
        if begins_with > 0 && (begins_with > first_bytes || self.after.is_some()) {
            return Err(DecodeError::UnknownValue { field: "begins_with", value: begins_with as u64 });
        }
        match self.ends_before {
            Some(cut)
                if self.is_last
                    || !self.listed.is_empty()
                    || cut.after(self.after.unwrap_or_default()).is_none() =>
            {
                Err(DecodeError::UnknownValue { field: "ends_before", value: cut.shared.into() })
            }
            _ => Ok(()),
        }
    }

    /// What is listed.
    pub fn entries(&self) -> impl Iterator<Item = Listed<'a>> + use<'a> {
        codec::each::<Listed<'static>>(self.listed)
    }
}

/// One key at least fits a page, whatever its length.
const _: () = assert!(
    ScrubPage::AFTER_BYTES_MIN + size_of::<<Listed<'static> as Codec>::Layout>() + KEY_BYTES_MAX
        <= ScrubPage::VARYING_BYTES_MAX
);

impl Listed<'_> {
    /// Bytes of the encoded form.
    pub fn bytes(&self) -> usize {
        size_of::<<Listed<'static> as Codec>::Layout>() + self.key.len()
    }

    /// Appends it to [`ScrubPage::listed`].
    pub fn append(&self, out: &mut Vec<u8>) {
        codec::append::<Listed<'static>>(self, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datagram;

    fn page<'a>(after: Option<&'a [u8]>, listed: &'a [u8]) -> ScrubPage<'a> {
        ScrubPage {
            sender: NodeId(1),
            partition: PartitionId(2),
            epoch: Epoch(3),
            logged: 5,
            released: 4,
            after,
            is_last: false,
            bytes: 99,
            begins_with: 0,
            ends_before: None,
            listed,
        }
    }

    fn listed(told: &[Listed<'_>]) -> Vec<u8> {
        let mut listed = Vec::new();
        told.iter().for_each(|one| one.append(&mut listed));
        assert_eq!(listed.len(), told.iter().map(Listed::bytes).sum::<usize>());
        listed
    }

    fn is_decoded(page: &ScrubPage<'_>) -> bool {
        let mut bytes = Vec::new();
        page.encode(&mut bytes);
        Datagram::decode(&bytes).is_ok_and(|(_, decoded)| decoded == Datagram::ScrubPage(*page))
    }

    #[test]
    fn a_page_tells_what_was_listed() {
        let entry = ListedEntry { index: 7, digest: 9, is_tombstone: true };
        let told = [Listed { key: b"a", entry: Some(entry) }, Listed { key: b"bc", entry: None }];
        let listed = listed(&told);
        assert!(page(None, &listed).entries().eq(told));
    }

    #[test]
    fn what_is_cut_between_two_keys_is_told_by_one_page_or_the_other() {
        let long = |start: &str, byte| {
            let mut key = start.as_bytes().to_vec();
            key.resize(KEY_BYTES_MAX, byte);
            key
        };
        let alike = [long("a", b'x'), [&long("a", b'x')[..KEY_BYTES_MAX - 1], b"y"].concat()];
        for [first, second] in [[long("abd", 0xff), long("abf", 0)], alike] {
            let cut = Cut::between(&first, &second);
            let gap = ScrubPage { ends_before: Some(cut), ..page(Some(&first), &[]) };
            let listed = listed(&[Listed { key: &second, entry: None }]);
            let next = ScrubPage { begins_with: cut.bytes(), ..page(None, &listed) };
            assert!(is_decoded(&gap) && is_decoded(&next));
            let end = gap.ends_before().unwrap();
            assert!(first < end && end <= second, "{end:?}");
            assert_eq!(gap.begins_after().as_deref(), Some(&first[..]));
            assert_eq!(next.begins_after().as_deref(), key_before(&end).as_deref());
        }
    }

    #[test]
    fn a_cut_that_makes_no_sense_is_refused() {
        let listed = listed(&[Listed { key: b"abc", entry: None }]);
        let begins = |begins_with, after| is_decoded(&ScrubPage { begins_with, ..page(after, &listed) });
        assert_eq!([0, 1, 3, 4].map(|bytes| begins(bytes, None)), [true, true, true, false]);
        assert!(begins(0, Some(b"a")) && !begins(1, Some(b"a")) && !begins(1, Some(b"")));
        assert!(!is_decoded(&ScrubPage { begins_with: 1, ..page(None, &[]) }));
        let ends = |shared, next| {
            is_decoded(&ScrubPage { ends_before: Some(Cut { shared, next }), ..page(Some(b"abc"), &[]) })
        };
        assert!(ends(2, b'd') && ends(3, 0) && !ends(2, b'c') && !ends(4, 0));
        let ends_before = Some(Cut { shared: 0, next: b'b' });
        assert!(!is_decoded(&ScrubPage { ends_before, ..page(Some(b"a"), &listed) }));
        assert!(!is_decoded(&ScrubPage { ends_before, is_last: true, ..page(Some(b"a"), &[]) }));
        let empty = self::listed(&[Listed { key: b"", entry: None }]);
        assert!(is_decoded(&page(None, &empty)));
        assert!(!is_decoded(&ScrubPage { ends_before, ..page(None, &empty) }), "it lists the empty key");
    }
}
