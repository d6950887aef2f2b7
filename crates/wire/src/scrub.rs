//! A node-to-node message by which replicas find that they differ: what one of them has of a range of keys, as digests.

use crate::bytes::{Reader, flag, in_range, put, reserved, reserved_bytes};
use crate::header::{Header, Opcode};
use crate::limits::{DATAGRAM_BYTES_MAX, KEY_BYTES_MAX};
use crate::{DecodeError, Epoch, NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// From a member to another: this is what I have of the keys after `after`, up to and including the last one that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPage<'a> {
    /// The member that lists.
    pub sender: NodeId,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the message.
    pub epoch: Epoch,
    /// The last decision that the sender had logged then.
    pub logged: u64,
    /// The last decision that it knew to be held by every member.
    pub released: u64,
    /// Only keys after this one; empty: from the first.
    pub after: &'a [u8],
    /// There are no more keys: the range goes to the end of the partition.
    pub is_last: bool,
    /// How much the keys and entries are together, about.
    pub bytes: u32,
    /// [`Listed`] ones, in the order of their keys.
    pub listed: &'a [u8],
}

/// What a member has of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its entry; `None`: it is being changed, or cannot be read.
    pub entry: Option<ListedEntry>,
}

/// An entry, as a [`ScrubPage`] tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The decision that wrote it.
    pub index: u64,
    /// Of its stored form.
    pub digest: u64,
    /// Whether it is a tombstone.
    pub is_tombstone: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PageLayout {
    partition: U32,
    epoch: U32,
    sender: U16,
    after_length: U16,
    bytes: U32,
    logged: U64,
    released: U64,
    is_last: u8,
    reserved: [u8; 7],
}
const _: () = assert!(size_of::<PageLayout>() == 40);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListedLayout {
    index: U64,
    digest: U64,
    key_length: U16,
    state: u8,
    reserved: u8,
}

const UNKNOWN: u8 = 0;
const VALUE: u8 = 1;
const TOMBSTONE: u8 = 2;

impl<'a> ScrubPage<'a> {
    /// Most bytes of [`Self::listed`].
    pub const LISTED_BYTES_MAX: usize =
        DATAGRAM_BYTES_MAX - Header::BYTES - size_of::<PageLayout>() - KEY_BYTES_MAX;

    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.after.len() <= KEY_BYTES_MAX && self.listed.len() <= Self::LISTED_BYTES_MAX);
        Header::internal(Opcode::ScrubPage).encode(out, |out| {
            let layout = PageLayout {
                partition: self.partition.0.into(),
                epoch: self.epoch.0.into(),
                sender: self.sender.0.into(),
                after_length: (self.after.len() as u16).into(),
                bytes: self.bytes.into(),
                logged: self.logged.into(),
                released: self.released.into(),
                is_last: self.is_last.into(),
                reserved: [0; 7],
            };
            put(out, &layout);
            out.extend_from_slice(self.after);
            out.extend_from_slice(self.listed);
        });
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: PageLayout = reader.layout("scrub page")?;
        reserved_bytes("reserved", &layout.reserved)?;
        let after_length = in_range("after_length", layout.after_length.get().into(), 0, KEY_BYTES_MAX)?;
        let after = reader.bytes(after_length, "after_length")?;
        let listed = reader.rest();
        in_range("listed", listed.len(), 0, Self::LISTED_BYTES_MAX)?;
        let mut rest = Reader::new(listed);
        while !rest.is_empty() {
            Listed::read(&mut rest)?;
        }
        Ok(Self {
            sender: NodeId(layout.sender.get()),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            logged: layout.logged.get(),
            released: layout.released.get(),
            after,
            is_last: flag("is_last", layout.is_last)?,
            bytes: layout.bytes.get(),
            listed,
        })
    }

    /// What is listed.
    pub fn entries(&self) -> impl Iterator<Item = Listed<'a>> + use<'a> {
        let mut reader = Reader::new(self.listed);
        core::iter::from_fn(move || {
            (!reader.is_empty()).then(|| Listed::read(&mut reader).expect("checked when it was decoded"))
        })
    }
}

impl<'a> Listed<'a> {
    /// Bytes of the encoded form.
    pub fn bytes(&self) -> usize {
        size_of::<ListedLayout>() + self.key.len()
    }

    /// Appends it to [`ScrubPage::listed`].
    pub fn append(&self, out: &mut Vec<u8>) {
        let state = match self.entry {
            None => UNKNOWN,
            Some(entry) if entry.is_tombstone => TOMBSTONE,
            Some(_) => VALUE,
        };
        let layout = ListedLayout {
            index: self.entry.map_or(0, |entry| entry.index).into(),
            digest: self.entry.map_or(0, |entry| entry.digest).into(),
            key_length: (self.key.len() as u16).into(),
            state,
            reserved: 0,
        };
        put(out, &layout);
        out.extend_from_slice(self.key);
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let layout: ListedLayout = reader.layout("listed key")?;
        reserved("reserved", layout.reserved.into())?;
        let (index, digest) = (layout.index.get(), layout.digest.get());
        let entry = match layout.state {
            UNKNOWN => {
                reserved("index", index)?;
                reserved("digest", digest)?;
                None
            }
            state @ (VALUE | TOMBSTONE) => {
                Some(ListedEntry { index, digest, is_tombstone: state == TOMBSTONE })
            }
            other => return Err(DecodeError::UnknownValue { field: "listed state", value: other.into() }),
        };
        let length = in_range("key_length", layout.key_length.get().into(), 1, KEY_BYTES_MAX)?;
        Ok(Self { key: reader.bytes(length, "key_length")?, entry })
    }
}
