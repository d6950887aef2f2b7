//! Protocol of the metadata service's TCP port: frames of [`FramedStream`](crate::FramedStream), of
//! which the dialling side's first one is a [`Greeting`].
//!
//! ```text
//!  switch agent                    metadata                       admin command
//!      │ Greeting{Switch} ────────────▶│◀──────────── Greeting{Admin} │
//!      │◀──────────── ControlRequest … │ ◀──────────── AdminRequest … │
//!      │ ControlReply … ──────────────▶│ ─ one frame of JSON for each▶│
//! ```

use nicekv_metadata::{
    Change, ControlPlane, KeyspaceChange, ListeningReport, PartitionChange, Status, TargetReport,
};
use nicekv_switch::control::{CONTROL_MESSAGE_BYTES_MAX, Found, Lookup};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::FrameLimits;

/// Bounds of a stream to or from the metadata service.
pub const CONTROL_LIMITS: FrameLimits = FrameLimits {
    frame_bytes_max: CONTROL_MESSAGE_BYTES_MAX,
    output_bytes_max: 2 * CONTROL_MESSAGE_BYTES_MAX,
};

/// Identifies the dialling side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    magic: [u8; 6],
    version: u8,
    /// Its role.
    pub role: Role,
}

/// Role of the dialling side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A switch's agent, which executes `nicekv_switch::control` requests.
    Switch {
        /// Name in the metadata service's configuration.
        name: String,
    },
    /// An operator's command, which sends [`AdminRequest`]s.
    Admin,
}

/// Question of a command. The answer is one frame of JSON: a [`NotLeading`] if the instance does
/// not lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Nodes, partitions, tables.
    Status,
    /// What a client needs: a `nicekv_metadata::ClusterInfo`.
    ClusterInfo,
    /// The same for a chunk target, which reports its progress.
    Target(TargetReport),
    /// Starts a garbage collection round: its number, or the reason of refusal, as a `Result`; it
    /// is persisted when the answer comes.
    CollectChunks,
    /// Answered by `true` when every partition has all its replicas consistent and all tables are
    /// acknowledged.
    Ready,
    /// Effects of a change of nodes: a [`nicekv_metadata::Plan`], or the reason of refusal in one
    /// line, as a `Result`.
    Plan(Change),
    /// The same, and starts the change: it is persisted when the answer comes.
    Change(Change),
    /// Effects of a change of keyspaces: a [`nicekv_metadata::KeyspacePlan`], or the reason of
    /// refusal, likewise.
    PlanKeyspace(KeyspaceChange),
    /// The same, and starts the change: it is persisted when the answer comes.
    ChangeKeyspace(KeyspaceChange),
    /// What the installed tables do with a key: a [`SwitchAnswer`] of each switch.
    Lookup(Lookup),
    /// For a node's TCP port: its state of the partition with this number, a [`NodeAnswer`].
    Partition(u32),
    /// For a node: traces this client, and no other; the answer is a [`NodeTrace`] without events.
    Watch(u64),
    /// For a node: events of this client's requests since then, a [`NodeTrace`].
    Watched(u64),
    /// For a node's TCP port: histograms of its stages, and who answered its gets,
    /// [`NodeDurations`].
    Durations,
    /// For a node's TCP port: a consistent copy of the partition with this number, as
    /// [`BackupFrame`]s. One per connection.
    Backup(u32),
    /// Effects of a change of a keyspace's partitions: a [`nicekv_metadata::PartitionPlan`], or the
    /// reason of refusal, as a `Result`.
    PlanPartitions(PartitionChange),
    /// The same, and starts the change: it is persisted when the answer comes.
    ChangePartitions(PartitionChange),
    /// Reports the sockets on which a process of the cluster receives; answered by `true`. Only for
    /// [`Status`].
    Listening(ListeningReport),
}

/// A frame of a backup, sent by a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupFrame {
    /// First frame: describes the entries.
    Begin {
        /// The epoch.
        epoch: u32,
        /// Index of the last decision that the backup includes.
        index: u64,
    },
    /// A sequence of [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry), unordered,
    /// without duplicate keys.
    Entries(Vec<u8>),
    /// Last frame: the backup is complete.
    End,
    /// The backup is refused or aborted, for this reason; another attempt may succeed.
    Refused(String),
    /// A part of the large value of the first sent entry whose value is not complete.
    Part {
        /// Name: client of the op that wrote it …
        client: u64,
        /// … and its sequence.
        sequence: u64,
        /// Offset: end of the part before.
        offset: u32,
        /// Not empty.
        bytes: Vec<u8>,
    },
}

/// What a switch's installed tables do with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchAnswer {
    /// Its name.
    pub switch: String,
    /// Newest term that it accepts.
    pub term: u64,
    /// Generation of its tables; `None`: it has none.
    pub generation: Option<u64>,
    /// Matching entries; `None`: it did not answer.
    pub found: Option<Found>,
}

/// A node's state of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Its number.
    pub node: u16,
    /// Newest term of a metadata leader that it has seen.
    pub term: u64,
    /// `None`: the node does not know the partition.
    pub partition: Option<NodePartition>,
}

/// State of a partition at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePartition {
    /// The epoch that it is in.
    pub epoch: u32,
    /// outside, joining, handoff or consistent.
    pub standing: String,
    /// The primary.
    pub primary: u16,
    /// Whether it is the primary and has recovered.
    pub leads: bool,
    /// Ops that are prepared but not decided.
    pub open_ops: usize,
    /// Last decision in its log.
    pub logged: u64,
    /// Last decision that every member has.
    pub released: u64,
}

/// Histograms of a node since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDurations {
    /// Its number.
    pub node: u16,
    /// Stage and counts by bucket, as in [`nicekv_proto::Durations::counts`].
    pub stages: Vec<(String, Vec<u64>)>,
    /// Gets answered by the node.
    #[serde(default)]
    pub gets: NodeGets,
}

/// Gets answered by a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGets {
    /// By its process.
    pub by_process: u64,
    /// By its kernel.
    pub by_kernel: u64,
    /// Gets of other nodes' hot keys, answered from copies (H6); included above.
    pub of_copies: u64,
}

/// Trace of a client's requests at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTrace {
    /// Its number.
    pub node: u16,
    /// Its boot-time clock when it answered.
    pub now_ns: u64,
    /// In order.
    pub events: Vec<NodeEvent>,
}

/// A traced event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// Time on its boot-time clock.
    pub at_ns: u64,
    /// Request of the client.
    pub sequence: u64,
    /// What happened.
    pub what: String,
    /// Responsible node, if not this one.
    pub by: Option<u16>,
}

/// Answer of an instance that does not lead, to any question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeading {
    /// Name of the instance. No other answer has a field of this name.
    pub not_leading: ControlPlane,
    /// State known to the last leader, if it was asked for.
    pub last_known: Option<Box<Status>>,
}

impl NotLeading {
    pub(crate) fn new(control_plane: &ControlPlane, last_known: Option<Status>) -> Self {
        Self { not_leading: control_plane.clone(), last_known: last_known.map(Box::new) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always encodes")
    }

    /// `Some` if the answer is one.
    pub fn decode(json: &[u8]) -> Option<Self> {
        json.starts_with(b"{\"not_leading\":").then(|| serde_json::from_slice(json).ok()).flatten()
    }
}

/// A frame that was not expected.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// Another protocol.
    #[error("the peer does not speak the control protocol of nicekv")]
    NotOurs,
    /// Another release.
    #[error("the peer speaks version {0} of the control protocol, this program version {VERSION}")]
    Version(u8),
    /// Not an encoding of the expected message.
    #[error("malformed control message: {0}")]
    Malformed(#[from] postcard::Error),
}

const MAGIC: [u8; 6] = *b"nicekv";
pub(crate) const VERSION: u8 = 14;

impl Greeting {
    /// First frame of a connection.
    pub fn new(role: Role) -> Self {
        Self { magic: MAGIC, version: VERSION, role }
    }

    /// Whether this is the first frame of such a connection.
    fn of_version(frame: &[u8]) -> Option<u8> {
        frame.first_chunk::<7>().filter(|start| start[..6] == MAGIC).map(|start| start[6])
    }

    /// Version of another release, if this is its first frame.
    pub(crate) fn other_version(frame: &[u8]) -> Option<u8> {
        Self::of_version(frame).filter(|version| *version != VERSION)
    }

    /// Decodes and checks the first frame.
    pub fn decode(frame: &[u8]) -> Result<Self, ControlPlaneError> {
        match Self::of_version(frame) {
            Some(VERSION) => Ok(postcard::from_bytes(frame)?),
            Some(other) => Err(ControlPlaneError::Version(other)),
            None => Err(ControlPlaneError::NotOurs),
        }
    }
}

/// Encodes a greeting or a request.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    postcard::to_allocvec(message).expect("plain data always encodes")
}

/// Reads a request.
pub fn decode<M: DeserializeOwned>(frame: &[u8]) -> Result<M, ControlPlaneError> {
    Ok(postcard::from_bytes(frame)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_peers_and_other_releases_are_distinguished() {
        let greeting = Greeting::new(Role::Switch { name: "switch-0".into() });
        let mut frame = encode(&greeting);
        assert_eq!(Greeting::decode(&frame).unwrap(), greeting);
        assert!(matches!(Greeting::decode(&frame[..frame.len() - 1]), Err(ControlPlaneError::Malformed(_))));
        frame[6] = 7;
        assert!(matches!(Greeting::decode(&frame), Err(ControlPlaneError::Version(7))));
        assert!(matches!(Greeting::decode(b"GET / HTTP/1.1"), Err(ControlPlaneError::NotOurs)));
    }
}
