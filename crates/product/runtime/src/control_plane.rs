//! Protocol of the metadata service's TCP port: frames of [`FramedStream`](crate::FramedStream).
//! The first frame of the dialling side is a [`Greeting`].
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

/// Limits of a stream to or from the metadata service.
pub const CONTROL_LIMITS: FrameLimits = FrameLimits {
    frame_bytes_max: CONTROL_MESSAGE_BYTES_MAX,
    output_bytes_max: 2 * CONTROL_MESSAGE_BYTES_MAX,
};

/// Identifies the dialling side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    magic: [u8; 6],
    version: u8,
    /// Role of the dialling side.
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

/// Request of a command. The answer is one frame of JSON: a [`NotLeading`] if the instance does not
/// lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Nodes, partitions, tables.
    Status,
    /// Cluster information for a client: a `nicekv_metadata::ClusterInfo`.
    ClusterInfo,
    /// The same for a chunk target. The request reports the target's progress.
    Target(TargetReport),
    /// Starts a garbage collection round. The answer is a `Result`: the number of the round, once
    /// it is persisted, or the reason of refusal.
    CollectChunks,
    /// Answered by `true` once all replicas of every partition are consistent and the switches have
    /// acknowledged all tables.
    Ready,
    /// Previews a change of nodes. The answer is a `Result`: a [`nicekv_metadata::Plan`], or the
    /// reason of refusal in one line.
    Plan(Change),
    /// Starts a change of nodes. Answered like [`Self::Plan`], once the change is persisted.
    Change(Change),
    /// Previews a change of keyspaces. The answer is a `Result`: a
    /// [`nicekv_metadata::KeyspacePlan`], or the reason of refusal in one line.
    PlanKeyspace(KeyspaceChange),
    /// Starts a change of keyspaces. Answered like [`Self::PlanKeyspace`], once the change is
    /// persisted.
    ChangeKeyspace(KeyspaceChange),
    /// Table entries that match a key: a [`SwitchAnswer`] of each switch.
    Lookup(Lookup),
    /// For a node's TCP port: asks for the node's state of the partition with this number, a
    /// [`NodeAnswer`].
    Partition(u32),
    /// For a node's TCP port: traces this client, and no other. The answer is a [`NodeTrace`]
    /// without events.
    Watch(u64),
    /// For a node's TCP port: asks for the events of this client's requests since [`Self::Watch`],
    /// a [`NodeTrace`].
    Watched(u64),
    /// For a node's TCP port: asks for histograms of its stages, and for counts of its gets, as
    /// [`NodeDurations`].
    Durations,
    /// For a node's TCP port: asks for a consistent copy of the partition with this number, as
    /// [`BackupFrame`]s. At most one per connection.
    Backup(u32),
    /// Previews a change of a keyspace's partitions. The answer is a `Result`: a
    /// [`nicekv_metadata::PartitionPlan`], or the reason of refusal in one line.
    PlanPartitions(PartitionChange),
    /// Starts a change of partitions. Answered like [`Self::PlanPartitions`], once the change is
    /// persisted.
    ChangePartitions(PartitionChange),
    /// Reports the sockets on which a process of the cluster receives, for [`Status`]. Answered by
    /// `true`.
    Listening(ListeningReport),
}

/// A frame of a backup, sent by a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupFrame {
    /// First frame: describes the entries.
    Begin {
        /// Epoch of the partition.
        epoch: u32,
        /// Index of the last decision that the backup includes.
        index: u64,
    },
    /// Entries in the format of [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry), in
    /// any order, with each key once.
    Entries(Vec<u8>),
    /// Last frame: the backup is complete.
    End,
    /// The node refuses or aborts the backup for this reason. Another attempt may succeed.
    Refused(String),
    /// A part of a large value. The receiver needs it for the first entry whose value is not
    /// complete yet.
    Part {
        /// Client of the op that wrote the value; with `sequence`, the value's name.
        client: u64,
        /// Sequence of that op.
        sequence: u64,
        /// Offset of this part: the end of the previous one.
        offset: u32,
        /// Bytes of the part, at least one.
        bytes: Vec<u8>,
    },
}

/// Entries of a switch's installed tables that match a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchAnswer {
    /// Name of the switch.
    pub switch: String,
    /// Newest term that the switch accepts.
    pub term: u64,
    /// Generation of the tables; `None`: there are none.
    pub generation: Option<u64>,
    /// Matching entries; `None`: the switch did not answer.
    pub found: Option<Found>,
}

/// A node's state of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Number of the node.
    pub node: u16,
    /// Newest metadata term that the node has seen.
    pub term: u64,
    /// `None`: the node does not know the partition.
    pub partition: Option<NodePartition>,
}

/// State of a partition at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePartition {
    /// Epoch of the partition at this node.
    pub epoch: u32,
    /// One of: outside, joining, handoff, consistent.
    pub standing: String,
    /// Number of the primary.
    pub primary: u16,
    /// Whether this node is the primary and has recovered.
    pub leads: bool,
    /// Number of ops that are prepared but not decided.
    pub open_ops: usize,
    /// Index of the last decision in the node's log.
    pub logged: u64,
    /// Index of the last decision that every member has.
    pub released: u64,
}

/// Histograms of a node since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDurations {
    /// Number of the node.
    pub node: u16,
    /// For each stage: its name, and counts by bucket as in [`nicekv_proto::Durations::counts`].
    pub stages: Vec<(String, Vec<u64>)>,
    /// Gets answered by the node.
    #[serde(default)]
    pub gets: NodeGets,
}

/// Gets answered by a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGets {
    /// Gets answered by the node's process.
    pub by_process: u64,
    /// Gets answered by the program in the node's kernel.
    pub by_kernel: u64,
    /// Gets of other nodes' hot keys, answered from copies (H6). They are included in the counts
    /// above.
    pub of_copies: u64,
}

/// Trace of a client's requests at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTrace {
    /// Number of the node.
    pub node: u16,
    /// Boot-time clock of the node when it answered.
    pub now_ns: u64,
    /// Events in chronological order.
    pub events: Vec<NodeEvent>,
}

/// A traced event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// Time of the event by the node's boot-time clock.
    pub at_ns: u64,
    /// Sequence number of the client's request.
    pub sequence: u64,
    /// The event.
    pub what: String,
    /// The node that caused the event, if it is another one.
    pub by: Option<u16>,
}

/// Answer to any request from a metadata instance that does not lead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeading {
    /// The answering instance. No other answer has a field of this name.
    pub not_leading: ControlPlane,
    /// State known to the last leader, if the request was for it.
    pub last_known: Option<Box<Status>>,
}

impl NotLeading {
    pub(crate) fn new(control_plane: &ControlPlane, last_known: Option<Status>) -> Self {
        Self { not_leading: control_plane.clone(), last_known: last_known.map(Box::new) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always encodes")
    }

    /// Decodes an answer; `None` if it is not a `NotLeading`.
    pub fn decode(json: &[u8]) -> Option<Self> {
        json.starts_with(b"{\"not_leading\":").then(|| serde_json::from_slice(json).ok()).flatten()
    }
}

/// Why a frame was not accepted.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// The peer speaks another protocol.
    #[error("the peer does not speak the control protocol of nicekv")]
    NotOurs,
    /// The peer belongs to another release.
    #[error("the peer speaks version {0} of the control protocol, this program version {VERSION}")]
    Version(u8),
    /// The frame is not an encoding of the expected message.
    #[error("malformed control message: {0}")]
    Malformed(#[from] postcard::Error),
}

const MAGIC: [u8; 6] = *b"nicekv";
pub(crate) const VERSION: u8 = 14;

impl Greeting {
    /// The first frame of a connection.
    pub fn new(role: Role) -> Self {
        Self { magic: MAGIC, version: VERSION, role }
    }

    /// Version in a greeting; `None` if the frame is no greeting.
    fn of_version(frame: &[u8]) -> Option<u8> {
        frame.first_chunk::<7>().filter(|start| start[..6] == MAGIC).map(|start| start[6])
    }

    /// Version in a greeting of another release; `None` for this release, or if the frame is no
    /// greeting.
    pub(crate) fn other_version(frame: &[u8]) -> Option<u8> {
        Self::of_version(frame).filter(|version| *version != VERSION)
    }

    /// Decodes and checks the first frame of a connection.
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

/// Decodes a request.
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
