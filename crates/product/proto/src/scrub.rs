//! Comparison of replicas: a page lists the digests of a member's entries in a range of keys.
//!
//! A page states where its range begins and ends, so that an unlisted key is known to be absent.
//! Two long keys do not fit a datagram; then the range is cut between them, after the bytes that
//! they share and the first byte by which they differ. One number is enough to say how much of
//! either key that is:
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
    /// From a member to another: its entries after `after`, up to and including the last listed
    /// one.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScrubPage<'a>: ScrubPage where is_possible {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The sender.
            sender: NodeId,
            /// Start of the range, exclusive; `None`: the first key, unless [`Self::begins_with`]
            /// is set.
            after: Option<&'a [u8]> as After,
            /// Approximate bytes of the keys and entries.
            bytes: u32,
            /// Last decision in the sender's log at that time.
            logged: u64,
            /// Last decision that the sender knew to be held by every member.
            released: u64,
            /// No more keys: the range extends to the end of the partition.
            is_last: bool,
            /// The range begins with this many bytes of the first listed key; 0: `after` applies.
            begins_with: u16,
            /// `Some` if nothing is listed: the border at which the range ends.
            ends_before: Option<Cut> as Maybe<Cut> => 1 zeros,
            /// [`Listed`] entries in order of their keys.
            listed: &'a [u8] as RestOf<Listed<'static>>,
        }
    }
}

part! {
    /// A border between two keys.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Cut {
        /// Number of bytes that both keys share.
        shared: u16,
        /// Next byte of the second key.
        next: u8,
    }
}

impl Cut {
    /// The border between two keys; the first must be before the second.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn between(first: &[u8], second: &[u8]) -> Self {
        assert!(first < second, "in the order of keys");
        let shared = first.iter().zip(second).take_while(|(one, other)| one == other).count();
        Self { shared: shared as u16, next: second[shared] }
    }

    /// Length of the second key's part of the border.
    pub fn bytes(&self) -> u16 {
        self.shared + 1
    }

    /// The border as bytes; `None` if no key after `first` can begin with them.
    fn after(&self, first: &[u8]) -> Option<Vec<u8>> {
        let (shared, rest) = first.split_at_checked(self.shared.into())?;
        let is_after = rest.first().is_none_or(|byte| *byte < self.next);
        is_after.then(|| [shared, &[self.next]].concat())
    }
}

part! {
    /// A member's entry of a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Listed<'a> {
        /// The entry; `None` if it is being changed, or cannot be read.
        entry: Option<ListedEntry> as Maybe<ListedEntry>,
        /// The key.
        key: &'a [u8] as Key,
    }
}

part! {
    /// An entry as listed in a [`ScrubPage`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ListedEntry {
        /// Decision that wrote it.
        index: u64,
        /// Digest of its stored form.
        digest: u64,
        /// Whether it is a tombstone.
        is_tombstone: bool,
    }
}

impl<'a> ScrubPage<'a> {
    /// Most bytes of [`Self::after`] and [`Self::listed`] together.
    pub const VARYING_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Self::FIXED_BYTES;
    /// Bytes reserved for [`Self::after`], so that only long keys affect how much a page lists.
    pub const AFTER_BYTES_MIN: usize = 256;

    /// Start of a page after this key.
    pub fn begins_after(&self) -> Option<Cow<'a, [u8]>> {
        match self.entries().next() {
            Some(first) if self.begins_with > 0 => {
                key_before(&first.key[..usize::from(self.begins_with)]).map(Cow::Owned)
            }
            _ => self.after.map(Cow::Borrowed),
        }
    }

    /// End of a page that lists nothing.
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

    /// Iterates over the listed entries.
    pub fn entries(&self) -> impl Iterator<Item = Listed<'a>> + use<'a> {
        codec::each::<Listed<'static>>(self.listed)
    }
}

/// A page has room for at least one key of any length.
const _: () = assert!(
    ScrubPage::AFTER_BYTES_MIN + size_of::<<Listed<'static> as Codec>::Layout>() + KEY_BYTES_MAX
        <= ScrubPage::VARYING_BYTES_MAX
);

impl Listed<'_> {
    /// Length of the encoded form, in bytes.
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
    fn page_round_trips() {
        let entry = ListedEntry { index: 7, digest: 9, is_tombstone: true };
        let told = [Listed { key: b"a", entry: Some(entry) }, Listed { key: b"bc", entry: None }];
        let listed = listed(&told);
        assert!(page(None, &listed).entries().eq(told));
    }

    #[test]
    fn border_between_keys_belongs_to_one_page() {
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
    fn inconsistent_border_is_refused() {
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
