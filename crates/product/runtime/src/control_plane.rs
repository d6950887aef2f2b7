//! What is said over the metadata service's TCP port. Frames of [`FramedStream`](crate::FramedStream); the first one, from the side
//! that has dialled, is a [`Greeting`].
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

/// Who dials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    magic: [u8; 6],
    version: u8,
    /// What it is.
    pub role: Role,
}

/// What the dialling side of a stream is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A switch's agent, which carries out `nicekv_switch::control` requests.
    Switch {
        /// As the metadata service knows it.
        name: String,
    },
    /// A command of an operator, which sends [`AdminRequest`]s.
    Admin,
}

/// What a command may ask. Each is answered by one frame of JSON; by a [`NotLeading`] where nobody leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// Nodes, partitions, tables.
    Status,
    /// What a client needs: a `nicekv_metadata::ClusterInfo`.
    ClusterInfo,
    /// The same, asked by a target of chunks, which says how far it is.
    Target(TargetReport),
    /// Begins a round of garbage collection: its number, or why it is refused, as a `Result`; it is written down when the answer comes.
    CollectChunks,
    /// Answered, by `true`, when every partition has all its replicas consistent and all tables are acknowledged.
    Ready,
    /// What would follow from a change: a [`nicekv_metadata::Plan`], or the line that says why it is refused, as a `Result`.
    Plan(Change),
    /// The same, and it is begun: it is written down when the answer comes.
    Change(Change),
    /// What would follow from a change of the keyspaces: a [`nicekv_metadata::KeyspacePlan`], or why it is refused, likewise.
    PlanKeyspace(KeyspaceChange),
    /// The same, and it is begun: it is written down when the answer comes.
    ChangeKeyspace(KeyspaceChange),
    /// What the installed tables do with a key: a [`SwitchAnswer`] of each switch.
    Lookup(Lookup),
    /// Of a node, at its own TCP port: what it knows of the partition of this number, a [`NodeAnswer`].
    Partition(u32),
    /// Of a node: to watch the client of this id, and no other any more; answered by a [`NodeTrace`] without events.
    Watch(u64),
    /// Of a node: what befell the requests of this client since, a [`NodeTrace`].
    Watched(u64),
    /// Of a node, at its own TCP port: how long what it does takes, and who has answered its gets, [`NodeDurations`].
    Durations,
    /// Of a node, at its own TCP port: all that the partition of this number holds, at one moment; [`BackupFrame`]s. A connection is for one.
    Backup(u32),
    /// What would follow from a change of a keyspace's partitions: a [`nicekv_metadata::PartitionPlan`], or why it is refused, as a `Result`.
    PlanPartitions(PartitionChange),
    /// The same, and it is begun: it is written down when the answer comes.
    ChangePartitions(PartitionChange),
    /// Tells on which sockets a process of the cluster receives; answered by `true`. For [`Status`] alone.
    Listening(ListeningReport),
}

/// A frame of a backup, as a node sends them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupFrame {
    /// First: of what the entries are.
    Begin {
        /// The epoch.
        epoch: u32,
        /// The decision up to which everything is there, and nothing of later ones.
        index: u64,
    },
    /// A sequence of [`put_keyed_entry`](nicekv_proto::recovery::put_keyed_entry), in no order, no key twice.
    Entries(Vec<u8>),
    /// Last: that was all.
    End,
    /// It cannot be, or not go on, for this reason; another try may succeed.
    Refused(String),
    /// A part of the large value of the first entry so far whose value has not come to its end.
    Part {
        /// The name: of the op that wrote it …
        client: u64,
        /// … and its place among that client's.
        sequence: u64,
        /// Where it belongs: the end of the part before.
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
    /// The newest term that it has obeyed.
    pub term: u64,
    /// The generation of its tables; `None`: it has none.
    pub generation: Option<u64>,
    /// The entries; `None`: it did not answer.
    pub found: Option<Found>,
}

/// What a node knows of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Its number.
    pub node: u16,
    /// The newest term of a metadata leader that it has seen.
    pub term: u64,
    /// `None`: it has never heard of it.
    pub partition: Option<NodePartition>,
}

/// A partition, as a node sees it.
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
    /// Ops that are prepared and have not taken effect.
    pub open_ops: usize,
    /// The last decision logged.
    pub logged: u64,
    /// The last decision that every member holds.
    pub released: u64,
}

/// How long what a node does takes, since it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDurations {
    /// Its number.
    pub node: u16,
    /// Stages, and how often each took how long: by bucket, as in [`nicekv_proto::Durations::counts`].
    pub stages: Vec<(String, Vec<u64>)>,
    /// The gets that it has answered.
    #[serde(default)]
    pub gets: NodeGets,
}

/// Gets that a node has answered, since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGets {
    /// By its process.
    pub by_process: u64,
    /// By its kernel.
    pub by_kernel: u64,
    /// Of all these, of hot keys of others, from copies (H6).
    pub of_copies: u64,
}

/// What befell the requests of a client at a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTrace {
    /// Its number.
    pub node: u16,
    /// Its boot-time clock, when it answered.
    pub now_ns: u64,
    /// In their order.
    pub events: Vec<NodeEvent>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// By its boot-time clock.
    pub at_ns: u64,
    /// Which request of the client.
    pub sequence: u64,
    /// What happened.
    pub what: String,
    /// By whom, if not by this node.
    pub by: Option<u16>,
}

/// The answer of an instance that does not lead, to whatever it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeading {
    /// Who says so. No other answer has a field of this name.
    pub not_leading: ControlPlane,
    /// Of one that led last, as far as anybody knows, and was asked for it.
    pub last_known: Option<Box<Status>>,
}

impl NotLeading {
    pub(crate) fn new(control_plane: &ControlPlane, last_known: Option<Status>) -> Self {
        Self { not_leading: control_plane.clone(), last_known: last_known.map(Box::new) }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always encodes")
    }

    /// If it is one.
    pub fn decode(json: &[u8]) -> Option<Self> {
        json.starts_with(b"{\"not_leading\":").then(|| serde_json::from_slice(json).ok()).flatten()
    }
}

/// A frame that is not what was to come.
#[derive(Debug, Error)]
pub enum ControlPlaneError {
    /// Not this protocol.
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
    /// The first frame of a connection.
    pub fn new(role: Role) -> Self {
        Self { magic: MAGIC, version: VERSION, role }
    }

    /// Of whom this is the first frame.
    fn of_version(frame: &[u8]) -> Option<u8> {
        frame.first_chunk::<7>().filter(|start| start[..6] == MAGIC).map(|start| start[6])
    }

    /// The version of another release whose first frame this is.
    pub(crate) fn other_version(frame: &[u8]) -> Option<u8> {
        Self::of_version(frame).filter(|version| *version != VERSION)
    }

    /// Reads and checks the first frame.
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
    fn strangers_and_other_releases_are_told_apart() {
        let greeting = Greeting::new(Role::Switch { name: "switch-0".into() });
        let mut frame = encode(&greeting);
        assert_eq!(Greeting::decode(&frame).unwrap(), greeting);
        assert!(matches!(Greeting::decode(&frame[..frame.len() - 1]), Err(ControlPlaneError::Malformed(_))));
        frame[6] = 7;
        assert!(matches!(Greeting::decode(&frame), Err(ControlPlaneError::Version(7))));
        assert!(matches!(Greeting::decode(b"GET / HTTP/1.1"), Err(ControlPlaneError::NotOurs)));
    }
}
