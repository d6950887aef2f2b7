//! Messages of the control protocol, and their encoding: postcard, one message in each frame, of
//! bounded length.

use alloc::string::String;
use alloc::vec::Vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::lookup::{Found, Lookup};
use crate::{
    Counters, EntryRequests, HotConfig, HotEntry, HotReading, Register, TableSet, TableStatus, TableUpdate,
};

/// Upper bound of an encoded message in bytes. Tables at capacity take about 1.5 MB, and so does a
/// full table `hot`.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 1 << 21;

/// From the controller to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// Replace all tables.
    Install {
        /// Term of the controller's leadership.
        term: u64,
        /// The new generation.
        tables: TableSet,
    },
    /// Change one table of the generation that was installed in this term.
    Update {
        /// Term of the controller's leadership.
        term: u64,
        /// The change, and the generation that it leads to.
        update: TableUpdate,
    },
    /// Report the newest term, the generation, the tables and the counters.
    Status {
        /// Term of the controller's leadership.
        term: u64,
    },
    /// Report all cells of a register.
    ReadRegister {
        /// Term of the controller's leadership.
        term: u64,
        register: Register,
    },
    /// Set a cell of a register, then report all cells.
    WriteRegister {
        /// Term of the controller's leadership.
        term: u64,
        register: Register,
        /// The index of the cell.
        cell: u32,
        /// The new value of the cell.
        value: u64,
    },
    /// Report all cells of a register, and set them to zero.
    ResetRegister {
        /// Term of the controller's leadership.
        term: u64,
        register: Register,
    },
    /// Look a key up in the tables.
    Lookup {
        /// Term of the controller's leadership.
        term: u64,
        lookup: Lookup,
    },
    /// Report client requests by entry.
    Requests {
        /// Term of the controller's leadership.
        term: u64,
    },
    /// Configure hot-key detection.
    SetHot {
        /// Term of the controller's leadership.
        term: u64,
        config: HotConfig,
    },
    /// Change table `hot`, as a whole or not at all. Installing other tables does not change its
    /// entries.
    ChangeHot {
        /// Term of the controller's leadership.
        term: u64,
        /// Whether to remove all entries first.
        clear: bool,
        /// Instances to remove.
        removed: Vec<u64>,
        /// Entries to add, ascending by instance; each replaces the older entry of its key.
        set: Vec<HotEntry>,
    },
    /// Report the counts of hot keys and of candidates.
    ReadHot {
        /// Term of the controller's leadership.
        term: u64,
    },
}

impl ControlRequest {
    /// Whether the request concerns table `hot` or the detection of hot keys.
    pub(super) fn is_of_hot_keys(&self) -> bool {
        matches!(self, Self::SetHot { .. } | Self::ChangeHot { .. } | Self::ReadHot { .. })
    }

    /// Term of the controller's leadership.
    pub fn term(&self) -> u64 {
        match self {
            Self::Install { term, .. }
            | Self::Update { term, .. }
            | Self::Status { term }
            | Self::ReadRegister { term, .. }
            | Self::WriteRegister { term, .. }
            | Self::ResetRegister { term, .. }
            | Self::Requests { term }
            | Self::SetHot { term, .. }
            | Self::ChangeHot { term, .. }
            | Self::ReadHot { term }
            | Self::Lookup { term, .. } => *term,
        }
    }
}

/// From the agent to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "sent one at a time, and rarely")]
pub enum ControlReply {
    /// The tables are in force, and no packet is matched by older ones any more.
    Installed {
        /// Term of the request.
        term: u64,
        /// The generation in force.
        generation: u64,
    },
    /// The agent has obeyed a controller of a newer term.
    Refused {
        /// The newest term that the agent has seen.
        current_term: u64,
    },
    /// The tables could not be installed; the old ones stay in force.
    Failed {
        /// Generation of the request.
        generation: u64,
        /// The error, for the operator.
        reason: String,
    },
    /// The reply to [`ControlRequest::Status`].
    Status {
        /// The newest term that the agent has seen, including the request's.
        term: u64,
        /// The generation in force; `None` before the first install.
        generation: Option<u64>,
        /// Number of entries and hits of each table.
        tables: Vec<TableStatus>,
        /// Global counters.
        counters: Counters,
    },
    /// The cells of a register; after a reset, the values before it.
    Register { register: Register, cells: Vec<u64> },
    /// The result of a lookup.
    Found {
        /// Newest term seen.
        term: u64,
        /// The generation in force; `None` before the first install.
        generation: Option<u64>,
        /// The key of the request.
        lookup: Lookup,
        found: Found,
    },
    /// The switch's ports. The agent sends this without a request, after connecting and whenever a
    /// port changes.
    Ports {
        /// All port numbers, ascending; `None` if the switch has no ports and reaches hosts by
        /// their addresses.
        present: Option<Vec<u16>>,
        /// Ports without a link, as far as the switch can tell, ascending.
        down: Vec<u16>,
    },
    /// Client requests by entry. The count of an installed entry never falls while the switch runs.
    Requests {
        /// The newest term that the agent has seen, including the request's.
        term: u64,
        /// The generation in force; `None` before the first install.
        generation: Option<u64>,
        /// Matches of all tables since the switch started. If the number is smaller than before,
        /// the switch has restarted.
        matched: u64,
        /// Requests by table, in the order of [`Table::ALL`](crate::Table::ALL), and by entry, in
        /// the order of the generation.
        requests: Vec<Vec<EntryRequests>>,
    },
    /// The request about hot keys was carried out.
    HotChanged {
        /// Term of the request.
        term: u64,
        /// The newest instance that this agent has installed.
        newest: u64,
    },
    /// The request about hot keys was refused; nothing changed.
    HotFailed {
        /// Term of the request.
        term: u64,
        /// The error, for the operator.
        reason: String,
    },
    /// The counts of hot keys and candidates.
    Hot {
        /// Term of the request.
        term: u64,
        reading: HotReading,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The message is longer than [`CONTROL_MESSAGE_BYTES_MAX`].
    #[error("control message of {bytes} bytes; the limit is {CONTROL_MESSAGE_BYTES_MAX}")]
    TooLong {
        /// The length of the message.
        bytes: usize,
    },
    /// The bytes do not encode the expected message.
    #[error("malformed control message: {0}")]
    Malformed(postcard::Error),
    /// Bytes follow the message.
    #[error("{bytes} bytes after a control message")]
    TrailingBytes {
        /// The number of bytes that follow.
        bytes: usize,
    },
}

/// Encodes a request or a reply.
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, ControlError> {
    let bytes = postcard::to_allocvec(message).map_err(ControlError::Malformed)?;
    check_length(&bytes)?;
    Ok(bytes)
}

/// Decodes a request or a reply that fills `bytes` exactly.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, ControlError> {
    check_length(bytes)?;
    match postcard::take_from_bytes(bytes).map_err(ControlError::Malformed)? {
        (message, []) => Ok(message),
        (_, rest) => Err(ControlError::TrailingBytes { bytes: rest.len() }),
    }
}

fn check_length(bytes: &[u8]) -> Result<(), ControlError> {
    if bytes.len() > CONTROL_MESSAGE_BYTES_MAX {
        return Err(ControlError::TooLong { bytes: bytes.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Chain, DIVISIONS_MAX, DivisionEntry, HOST_CAPACITY, HOT_CAPACITY, HOT_HOLDERS_MAX,
        HOT_OWNER_TURNS_MAX, Host, HostId, HostRole, HotCandidate, HotCount, MemberSet, MulticastEntry,
        Prefix, RecordEntry, UnicastEntry, VringConfig, VringSet,
    };

    fn tables_at_capacity() -> TableSet {
        let vnode = |ring: u32, index: u32| Prefix::new((ring + index).to_be_bytes(), 32);
        let members = |index: u32| {
            let first = (index % 1024) as u16 % 241;
            MemberSet::new((first..first + 15).chain([255 - (index % 1024 / 241) as u16]).map(HostId))
        };
        TableSet {
            generation: u64::MAX,
            trunks: (0..256).collect(),
            hosts: (0..256)
                .map(|id| Host {
                    id: HostId(id),
                    role: HostRole::Node,
                    ip: [10, 0, 1, id as u8],
                    udp_port: u16::MAX,
                    mac: [2, 0, 0, 0, 1, id as u8],
                    port: id,
                    is_remote: false,
                })
                .collect(),
            unicast: (0..4096)
                .map(|index| UnicastEntry {
                    destination: vnode(0x0a0a_0000, index),
                    partition: u32::MAX - index,
                    host: HostId(255),
                    chain: None,
                })
                .collect(),
            division: (0..16384)
                .map(|index| DivisionEntry {
                    partition: u32::MAX - index / DIVISIONS_MAX as u32,
                    source: vnode(0xffff_0000, index),
                    host: HostId(255),
                })
                .collect(),
            multicast: (0..4096)
                .map(|index| MulticastEntry {
                    destination: vnode(0x0a0b_0000, index),
                    members: members(index),
                    chain: None,
                    places: None,
                })
                .collect(),
            record: (0..10240)
                .map(|index| RecordEntry {
                    ring: Prefix::new([10, 12, 0, 0], 16),
                    keyspace: u16::MAX,
                    first: u128::from(index) << 114,
                    last: (u128::from(index) << 114) + u128::MAX / (1 << 14),
                    partition: u32::MAX - index,
                    host: HostId(255),
                    members: MemberSet::new([HostId(247)]),
                    chain: Some(Chain::new(u32::MAX - index, u32::MAX, (247..=255).map(HostId))),
                })
                .collect(),
        }
    }

    #[test]
    fn full_tables_fit_into_one_message() {
        let tables = tables_at_capacity();
        let ring = |second| Prefix::new([10, second, 0, 0], 16);
        let of_records = VringConfig { unicast: ring(12), multicast: ring(13) };
        let vrings = VringSet::new([VringConfig::DEFAULT, of_records]).unwrap();
        assert_eq!(tables.validate(&vrings), Ok(()));
        let request = ControlRequest::Install { term: u64::MAX, tables };
        let bytes = encode(&request).unwrap();
        assert_eq!(decode(&bytes), Ok(request));
    }

    #[test]
    fn full_hot_table_and_its_reading_fit_into_one_message() {
        let digest = |index: u64| [[0xff; 8], index.to_be_bytes()].concat().try_into().unwrap();
        let entry = |index: u64| HotEntry {
            keyspace: u16::MAX,
            digest: digest(index),
            instance: u64::MAX - HOT_CAPACITY as u64 + index,
            owner_turns: HOT_OWNER_TURNS_MAX,
            holders: (0..HOT_HOLDERS_MAX as u16).map(|holder| HostId(u16::MAX - holder)).collect(),
            in_switch: false,
        };
        let set: Vec<_> = (0..HOT_CAPACITY as u64).map(entry).collect();
        let removed = (0..HOT_CAPACITY as u64).map(|instance| u64::MAX - instance).collect();
        let request = ControlRequest::ChangeHot { term: u64::MAX, clear: true, removed, set };
        assert_eq!(decode(&encode(&request).unwrap()), Ok(request));
        let count =
            |index: u64| HotCount { instance: u64::MAX - index, requests: u64::MAX, answered: u64::MAX };
        let candidate =
            |index: u64| HotCandidate { keyspace: u16::MAX, digest: digest(index), count: u64::MAX };
        let reading = HotReading {
            newest: u64::MAX,
            entries: (0..HOT_CAPACITY as u64).map(count).collect(),
            candidates: (0..u64::from(nicekv_hotkeys::KEYS_MAX)).map(candidate).collect(),
            dropped: u64::MAX,
            loads: (0..HOST_CAPACITY as u16).map(|host| (HostId(host), u64::MAX)).collect(),
        };
        let reply = ControlReply::Hot { term: u64::MAX, reading };
        assert_eq!(decode(&encode(&reply).unwrap()), Ok(reply));
    }

    #[test]
    fn decoding_is_strict() {
        let mut bytes = encode(&ControlRequest::Status { term: 3 }).unwrap();
        assert_eq!(decode(&bytes), Ok(ControlRequest::Status { term: 3 }));
        for length in 0..bytes.len() {
            assert!(matches!(decode::<ControlRequest>(&bytes[..length]), Err(ControlError::Malformed(_))));
        }
        bytes.push(0);
        assert_eq!(decode::<ControlRequest>(&bytes), Err(ControlError::TrailingBytes { bytes: 1 }));
        let long = vec![0; CONTROL_MESSAGE_BYTES_MAX + 1];
        assert!(matches!(decode::<ControlReply>(&long), Err(ControlError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn random_bytes_never_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<ControlRequest>(&bytes);
            let _ = decode::<ControlReply>(&bytes);
        }
    }
}
