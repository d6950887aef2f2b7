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
    /// The value; `None` for a deletion.
    pub(super) value: Option<Box<[u8]>>,
    /// Whether the value is the reference of a large value.
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

    /// The reference of the version's large value, if it has one that is not on disk.
    pub(super) fn lacking(&self, host: &Host) -> Option<Reference> {
        self.large().filter(|reference| !host.storage.holds_value(reference.name))
    }

    /// The reference of the version's large value, if it has one.
    pub(super) fn large(&self) -> Option<Reference> {
        self.entry().large()
    }
}

pub(super) fn timestamp_of(entry: &Entry<'_>) -> Timestamp {
    Timestamp { counter: entry.index, op: entry.version }
}

/// Requests that wait for a version, or a newer one, to be synced.
#[derive(Clone)]
pub(super) enum Waiter {
    Client {
        op: OpId,
        reply_to: SocketAddrV4,
    },
    /// The merge of this partition; `round`: the number of the part.
    Merge {
        round: u64,
    },
    /// Another member that wants to forget the version; `serial`: the number of its request.
    Tombstone {
        serial: u64,
    },
    /// The member that this node succeeds, with that member's serial number of the version.
    Predecessor {
        node: NodeId,
        serial: u64,
    },
    /// Nobody; the version replaces a damaged one.
    Nobody,
}

/// A pending read of the engine, and why it was requested.
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
    /// For versions of the key that wait (`partition::Key`).
    Newest,
    /// For another member that cannot read the key.
    Repair {
        epoch: Epoch,
        to: NodeId,
    },
    /// To forget this tombstone.
    Forgetting {
        timestamp: Timestamp,
    },
    /// Requested before this replica was emptied, so the result is ignored.
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
    /// Newcomer: everything that it has to merge.
    Merged,
    Version {
        key: Box<[u8]>,
        version: Version,
        waiters: Vec<Waiter>,
    },
    Forgotten {
        key: Box<[u8]>,
    },
    /// Appended before this replica was emptied, so it is ignored.
    Void,
}

/// A record of the log. Its kinds differ from those of ordered partitions, so that neither mode can
/// replay the other's log.
pub(super) enum Record<'a> {
    /// This storage is counted from now on.
    Counted,
    /// A version of a key. It is newer than earlier ones, or replaces a damaged one.
    Version { key: &'a [u8], entry: &'a [u8] },
    /// Nothing is held of this key any more; the floor is at least `floor`.
    Forgotten { key: &'a [u8], floor: u64 },
    /// The floor is at least this.
    Floor { floor: u64 },
    /// The replica begins empty, as the successor of another one. Earlier records are void.
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
