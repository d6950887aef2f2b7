//! Versions on their way to the log and the engine, and who waits for them.

use crate::Host;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::bytes::Reader;
use nicekv_proto::large::Reference;
use nicekv_proto::quorum::Timestamp;
use nicekv_proto::recovery::{Entry, put_keyed_entry, read_keyed_entry};
use nicekv_proto::{DecodeError, Epoch, Form, NodeId, OpId};

/// A version of a key, on its way to the log.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) timestamp: Timestamp,
    /// `None`: a deletion.
    pub(super) value: Option<Box<[u8]>>,
    /// The value is the reference of a large one.
    pub(super) is_large: bool,
}

impl Version {
    pub(super) fn of_entry(entry: &Entry<'_>) -> Self {
        let (timestamp, value) = (timestamp_of(entry), entry.value.map(Box::from));
        Self { timestamp, value, is_large: entry.form == Form::Large }
    }

    pub(super) fn entry(&self) -> Entry<'_> {
        let Timestamp { counter, op } = self.timestamp;
        let value = self.value.as_deref();
        Entry { index: counter, version: op, expiry_ms: 0, form: Form::of_set(self.is_large), value }
    }

    /// The version's large value, if it is not on disk.
    pub(super) fn lacking(&self, host: &Host) -> Option<Reference> {
        self.large().filter(|reference| !host.storage.holds_value(reference.name))
    }

    /// The version's large value.
    pub(super) fn large(&self) -> Option<Reference> {
        self.entry().large()
    }
}

pub(super) fn timestamp_of(entry: &Entry<'_>) -> Timestamp {
    Timestamp { counter: entry.index, op: entry.version }
}

/// A party that waits for a version, or a newer one, to be synced.
#[derive(Clone)]
pub(super) enum Waiter {
    Client {
        op: OpId,
        reply_to: SocketAddrV4,
    },
    /// The partition's merge, in this round.
    Merge {
        round: u64,
    },
    /// A member that wants to forget the version, with its request's number.
    Tombstone {
        serial: u64,
    },
    /// The member that this one succeeds, with its number for the version.
    Predecessor {
        node: NodeId,
        serial: u64,
    },
    /// The version replaces a damaged one.
    Nobody,
}

/// A read of the engine, and what it is for.
#[derive(Clone)]
pub(super) struct PendingRead {
    pub(super) key: Box<[u8]>,
    pub(super) what: ReadFor,
}

#[derive(Clone)]
pub(super) enum ReadFor {
    Query {
        op: OpId,
        reply_to: SocketAddrV4,
        wants_value: bool,
    },
    /// For waiting versions, see `partition::Key`.
    Newest,
    /// A member that cannot read the key itself.
    Repair {
        epoch: Epoch,
        to: NodeId,
    },
    /// For a tombstone that is to be forgotten.
    Forgetting {
        timestamp: Timestamp,
    },
    /// From before this replica was emptied.
    Void,
}

#[derive(Clone)]
pub(super) struct Unsynced {
    pub(super) record: u64,
    pub(super) what: AwaitedSync,
}

#[derive(Clone)]
pub(super) enum AwaitedSync {
    Counted,
    /// Newcomer: everything it has to merge.
    Merged,
    Version {
        key: Box<[u8]>,
        version: Version,
        waiters: Vec<Waiter>,
    },
    Forgotten {
        key: Box<[u8]>,
    },
    /// From before this replica was emptied.
    Void,
}

/// A record of the log. Kinds differ from those of ordered partitions, so that neither mode replays
/// the other's log.
pub(super) enum Record<'a> {
    /// From now on this storage counts.
    Counted,
    /// A version of a key: newer than earlier ones, or in place of a damaged one.
    Version { key: &'a [u8], entry: &'a [u8] },
    /// Nothing is held of this key; the floor is at least `floor`.
    Forgotten { key: &'a [u8], floor: u64 },
    /// The floor is at least this.
    Floor { floor: u64 },
    /// Earlier records are void: the replica succeeds another one, and begins empty.
    Emptied,
}

const KIND_COUNTED: u8 = 64;
const KIND_VERSION: u8 = 65;
const KIND_FORGOTTEN: u8 = 66;
const KIND_FLOOR: u8 = 67;
const KIND_EMPTIED: u8 = 68;

impl<'a> Record<'a> {
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Counted => out.extend_from_slice(&[KIND_COUNTED, 0]),
            Self::Version { key, entry } => {
                out.extend_from_slice(&[KIND_VERSION, 0]);
                put_keyed_entry(out, key, entry);
            }
            Self::Forgotten { key, floor } => {
                out.extend_from_slice(&[KIND_FORGOTTEN, 0]);
                out.extend_from_slice(&floor.to_be_bytes());
                out.extend_from_slice(key);
            }
            Self::Floor { floor } => {
                out.extend_from_slice(&[KIND_FLOOR, 0]);
                out.extend_from_slice(&floor.to_be_bytes());
            }
            Self::Emptied => out.extend_from_slice(&[KIND_EMPTIED, 0]),
        }
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let [kind, _]: [u8; 2] = reader.layout("record")?;
        let record = match kind {
            KIND_COUNTED => Self::Counted,
            KIND_VERSION => {
                let (key, entry) = read_keyed_entry(&mut reader)?;
                Entry::decode(entry)?;
                Self::Version { key, entry }
            }
            KIND_FORGOTTEN => Self::Forgotten { floor: read_floor(&mut reader)?, key: reader.rest() },
            KIND_FLOOR => Self::Floor { floor: read_floor(&mut reader)? },
            KIND_EMPTIED => Self::Emptied,
            other => return Err(DecodeError::UnknownValue { field: "record kind", value: other.into() }),
        };
        reader.finish("record")?;
        Ok(record)
    }
}

pub(super) fn read_floor(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    reader.layout("floor").map(u64::from_be_bytes)
}
