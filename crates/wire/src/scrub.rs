//! A node-to-node message by which replicas find that they differ: what one of them has of a range of keys, as digests.

use crate::codec::{self, Bytes, Codec, Key, Maybe, RestOf};
use crate::declare::{codec_of, layout, message, part};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX};
use crate::{Epoch, NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;

message! {
    /// From a member to another: this is what I have of the keys after `after`, up to and including the last one that is listed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ScrubPage<'a>: ScrubPage {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the message.
            epoch: Epoch,
            /// The member that lists.
            sender: NodeId,
            /// Only keys after this one; empty: from the first.
            after: &'a [u8] as Bytes<0, KEY_BYTES_MAX>,
            /// How much the keys and entries are together, about.
            bytes: u32,
            /// The last decision that the sender had logged then.
            logged: u64,
            /// The last decision that it knew to be held by every member.
            released: u64,
            /// There are no more keys: the range goes to the end of the partition.
            is_last: bool => 7 zeros,
            /// [`Listed`] ones, in the order of their keys: at most [`Self::LISTED_BYTES_MAX`].
            listed: &'a [u8] as RestOf<Listed<'static>>,
        }
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
    /// Most bytes of [`Self::listed`].
    pub const LISTED_BYTES_MAX: usize = DATAGRAM_BYTES_MAX - Self::FIXED_BYTES - KEY_BYTES_MAX;

    /// What is listed.
    pub fn entries(&self) -> impl Iterator<Item = Listed<'a>> + use<'a> {
        codec::each::<Listed<'static>>(self.listed)
    }
}

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

    #[test]
    fn a_page_tells_what_was_listed() {
        let entry = ListedEntry { index: 7, digest: 9, is_tombstone: true };
        let told = [Listed { key: b"a", entry: Some(entry) }, Listed { key: b"bc", entry: None }];
        let mut listed = Vec::new();
        told.iter().for_each(|one| one.append(&mut listed));
        assert_eq!(listed.len(), told.iter().map(Listed::bytes).sum::<usize>());
        let (sender, partition, epoch) = (NodeId(1), PartitionId(2), Epoch(3));
        let (logged, released, bytes, is_last, after) = (5, 4, 99, false, &[][..]);
        let page =
            ScrubPage { sender, partition, epoch, logged, released, after, is_last, bytes, listed: &listed };
        assert!(page.entries().eq(told));
    }
}
