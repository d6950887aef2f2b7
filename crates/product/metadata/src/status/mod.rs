//! Status for operators and clients.

mod chains;
mod chunks;
mod control_plane;
mod hot;
mod hot_keys;
mod info;
mod migration;
mod migrations;
mod phases;
mod ports;
mod reshapings;
mod survey;
pub use survey::OLDER_STATE;
mod targets;

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use nicekv_proto::MatchRange;
use nicekv_switch::TableStatus;
use serde::{Deserialize, Serialize};

pub use chunks::{ChunksStatus, TargetStatus};
pub use control_plane::{ControlPlane, ListeningReport, OpenSocket, OtherReleaseStatus, PeerStatus};
pub use hot::{HotEntryStatus, HotStatus, HotSwitchStatus};
pub use info::{ChunkInfo, ClusterInfo, KeyspaceInfo, LayoutInfo};
pub use migration::{HotKeyStatus, MigrationStatus};
pub use phases::{ReshapingPhase, ReshapingStatus};
pub use ports::MissingPort;

/// The status of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's id, 32 hexadecimal digits.
    pub cluster: String,
    /// The term of the leader that answers.
    pub term: u64,
    /// Whether every partition has R consistent members, and nodes and switches have acknowledged
    /// everything.
    pub ready: bool,
    /// The first reason why the cluster is not ready.
    pub why_not_ready: Option<String>,
    /// Number of replicas that have not moved to their target nodes yet.
    pub moves: usize,
    /// Partition count by health.
    pub health: HealthCounts,
    /// Stored data and request rates.
    #[serde(default)]
    pub usage: UsageStatus,
    /// The nodes, by id.
    pub nodes: Vec<NodeStatus>,
    /// The existing keyspaces, by id. Configured keyspaces that have not been created yet are
    /// missing.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// Keyspaces that are being dropped.
    #[serde(default)]
    pub dropped: Vec<DroppedStatus>,
    /// Number of replicas that are not needed and not discarded yet, including those of dropped
    /// keyspaces.
    #[serde(default)]
    pub leftovers: usize,
    /// Pending splits and merges in the order of their requests, then those that have just been
    /// completed (R17).
    #[serde(default)]
    pub reshapings: Vec<ReshapingStatus>,
    /// The partitions, by id; empty before bootstrap.
    pub partitions: Vec<PartitionStatus>,
    /// The switches, by id.
    pub switches: Vec<SwitchStatus>,
    /// Changes that were rolled back because a switch refused the resulting tables, the newest
    /// last.
    #[serde(default)]
    pub taken_back: Vec<String>,
    /// Number of entries and hits of the switch tables.
    pub tables: Vec<TableStatus>,
    /// Divisions of gets among replicas; `None` if gets are not divided.
    #[serde(default)]
    pub balancing: Option<BalancingStatus>,
    /// Keyspaces that are balanced by migration.
    #[serde(default)]
    pub migrations: Vec<MigrationStatus>,
    /// Hot keys; `None` if no keyspace spreads them.
    #[serde(default)]
    pub hot: Option<HotStatus>,
    /// Chunks of objects; `None` if no keyspace has names of objects.
    #[serde(default)]
    pub chunks: Option<ChunksStatus>,
    /// Counts of input that was ignored.
    pub counters: Counters,
    /// The instance that answers. The driver sets it.
    #[serde(default)]
    pub control_plane: ControlPlane,
}

/// Divisions of gets among replicas, by source (NICE §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancingStatus {
    /// Number of partitions whose gets are divided.
    pub divided: usize,
    /// Number of partitions whose gets all go to their primary, because table `division` is full.
    pub left_out: usize,
    /// Largest number of entries of a partition in both rings and in `division`: R + 1.
    pub entries_per_partition: usize,
    /// Number of recently seen sources, counted once for each partition.
    pub sources: usize,
    /// How often this leader has changed divisions because of load.
    pub divided_by_load: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub id: u16,
    pub name: String,
    pub address: SocketAddrV4,
    pub state: NodeState,
    pub disk: DiskState,
    /// The operator's desired state.
    pub desired: NodeTarget,
    /// Number of partitions of which the node is a member.
    pub members: usize,
    /// Number of partitions that the node should hold.
    pub share: usize,
    /// Number of these partitions that the node does not hold yet.
    pub missing: usize,
    /// Number of partitions that the node copies again because its storage has lost data (R18).
    #[serde(default)]
    pub forgotten: usize,
    /// How often the node's storage has lost data.
    #[serde(default)]
    pub losses: u32,
    /// Gets that the node receives per second.
    #[serde(default)]
    pub gets_per_second: u64,
}

/// The operator's desired state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeTarget {
    /// The node should hold its share of the data.
    Holds,
    /// The node should hold no data.
    Drained,
    /// The node should hold no data, and is forgotten afterwards.
    Removed,
}

/// Free space of a node's disk, by the node's last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// Enough for all operations.
    Enough,
    /// Enough for deletes and decisions only: puts are refused, and the node does not join
    /// partitions.
    Reserve,
    /// Barely enough for decisions.
    Exhausted,
}

/// Liveness of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// This leader has received nothing from the node yet.
    Unknown,
    /// The node is live: it sends and receives.
    Live,
    /// The node does not send, or does not receive.
    Suspected,
}

/// A keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspaceStatus {
    pub id: u16,
    pub name: String,
    pub replication: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_set: Option<u8>,
    /// How load is balanced: `migrate` or `hot`; `None`: the ring places partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balancing: Option<String>,
    pub replicas: usize,
    /// Number of partitions.
    pub partitions: usize,
    /// Number of partitions all of whose replicas are in both rings and have acknowledged the
    /// epoch.
    #[serde(default)]
    pub ready: usize,
    pub unicast: Ipv4Addr,
    pub multicast: Ipv4Addr,
    /// Partition count by health.
    pub health: HealthCounts,
    /// Stored data and request rates.
    #[serde(default)]
    pub usage: UsageStatus,
}

/// A keyspace that is being dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedStatus {
    pub id: u16,
    pub name: String,
    /// Whether no node answers gets of the keyspace or acknowledges puts any more.
    pub quiet: bool,
    /// Number of replicas of its partitions that are not discarded yet.
    pub replicas: usize,
    /// Names of the nodes that hold these replicas: live ones, then others.
    pub waits_for: (Vec<String>, Vec<String>),
    /// A switch that the drop also waits for, because it may still have tables with the keyspace.
    pub switches: Option<String>,
}

/// Stored data and request rates, as nodes reported them in the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageStatus {
    /// Number of partitions whose data are counted. The other partitions are not in these numbers.
    pub partitions: u64,
    /// Number of keys with a value, without replicas. Expired keys count until they are deleted.
    pub keys: u64,
    /// Bytes of keys and values, without replicas.
    pub bytes: u64,
    /// Number of keys that expire.
    #[serde(default)]
    pub expiring: u64,
    /// Mean expiry time of these keys, in milliseconds since 1970; 0 if no key expires.
    #[serde(default)]
    pub expiry_ms: u64,
    /// Upper bound of the time, in milliseconds, for which writes have made these numbers inexact;
    /// 0: they are exact.
    pub age_ms: u32,
    /// Gets per second, including retransmissions.
    pub gets_per_second: u64,
    /// Updates per second, including retransmissions.
    pub updates_per_second: u64,
}

impl UsageStatus {
    fn add(&mut self, other: &Self) {
        let sum_ms = |usage: &Self| u128::from(usage.expiry_ms) * u128::from(usage.expiring);
        let (sum_ms, expiring) = (sum_ms(self) + sum_ms(other), self.expiring.saturating_add(other.expiring));
        self.expiry_ms = sum_ms.checked_div(expiring.into()).unwrap_or(0) as u64;
        self.expiring = expiring;
        self.partitions = self.partitions.saturating_add(other.partitions);
        self.keys = self.keys.saturating_add(other.keys);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.age_ms = self.age_ms.max(other.age_ms);
        self.gets_per_second = self.gets_per_second.saturating_add(other.gets_per_second);
        self.updates_per_second = self.updates_per_second.saturating_add(other.updates_per_second);
    }
}

/// A partition in its newest epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStatus {
    pub id: u32,
    /// The id of its keyspace.
    pub keyspace: u16,
    /// The smallest match value that the partition owns, 32 hexadecimal digits.
    pub first: String,
    /// The largest match value.
    pub last: String,
    pub epoch: u32,
    /// The primary, which orders its puts.
    pub primary: u16,
    /// In a chain: the tail, which answers gets. The members are in the order of the chain.
    #[serde(default)]
    pub tail: Option<u16>,
    pub state: PartitionState,
    pub health: Health,
    pub members: Vec<MemberStatus>,
    /// Originals that are not members, in the order of the ring.
    pub away: Vec<String>,
    /// Recent gets per second, if known.
    #[serde(default)]
    pub gets_per_second: Option<u64>,
    /// Recent reads and updates per second, as counted by switches, if known.
    #[serde(default)]
    pub asked_per_second: Option<(u64, u64)>,
}

/// Availability and redundancy of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// R originals have all data.
    Whole,
    /// An original is absent or lagging; serving handoffs replace it.
    Covered,
    /// Fewer than R members store new values.
    Reduced,
    /// Gets are answered; puts wait for more members or for the epoch to take effect.
    Waiting,
    /// No original with all data is live.
    Unavailable,
    /// The data are lost: every original with all data returned with an empty storage.
    Lost,
}

/// Number of partitions by [`Health`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCounts {
    pub whole: usize,
    pub covered: usize,
    pub reduced: usize,
    pub waiting: usize,
    pub unavailable: usize,
    pub lost: usize,
}

impl PartitionStatus {
    /// The match values that the partition owns; `None` if the fields are invalid.
    pub fn range(&self) -> Option<MatchRange> {
        let value = |text: &str| u128::from_str_radix(text, 16).ok();
        MatchRange::new(value(&self.first)?, value(&self.last)?).ok()
    }
}

impl HealthCounts {
    fn of<'a>(partitions: impl IntoIterator<Item = &'a PartitionStatus>) -> Self {
        let mut counts = Self::default();
        for partition in partitions {
            *match partition.health {
                Health::Whole => &mut counts.whole,
                Health::Covered => &mut counts.covered,
                Health::Reduced => &mut counts.reduced,
                Health::Waiting => &mut counts.waiting,
                Health::Unavailable => &mut counts.unavailable,
                Health::Lost => &mut counts.lost,
            } += 1;
        }
        counts
    }
}

/// A switch agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// The switch's position in the configuration.
    pub id: u16,
    /// The switch's name, if known.
    #[serde(default)]
    pub name: String,
    /// Whether the switch is connected.
    pub connected: bool,
    /// Whether the switch has installed the newest tables, as far as is known.
    pub current: bool,
    /// Why the switch refused the newest tables. Its previous tables are in force.
    pub error: Option<String>,
    /// Number of entries in its newest tables. Neighbouring entries behind the same trunks are
    /// aggregated.
    #[serde(default)]
    pub entries: usize,
    /// The trunks to other switches, by switch id.
    #[serde(default)]
    pub trunks: Vec<TrunkStatus>,
    /// Nodes at ports that the switch does not have. Its tables leave them out.
    #[serde(default)]
    pub missing_ports: Vec<MissingPort>,
}

/// A trunk of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkStatus {
    /// The id of the switch at the other end.
    pub to: u16,
    /// The name of that switch, if known.
    #[serde(default)]
    pub name: String,
    pub state: TrunkState,
}

/// The state of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrunkState {
    /// The trunk is in use.
    Open,
    /// The trunk is on standby for when another one fails.
    Closed,
    /// One end of the trunk reports a dead port.
    Dead,
}

/// Whether a partition answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// The partition's epoch is in force.
    Active,
    /// The partition waits until a removed member cannot answer gets any more (R6).
    Activating,
    /// The partition waits for a consistent member to return.
    Waiting,
    /// The data are lost: every consistent member returned with an empty storage.
    Lost,
}

/// A member of a replica set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub node: u16,
    pub name: String,
    pub state: MemberStatusState,
    pub standing: MemberStanding,
    /// Whether it replaces an absent original (R8).
    pub handoff: bool,
    /// Whether it is leaving: it has all data, and leaves when the originals have them.
    pub leaving: bool,
}

/// The progress of a member (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStanding {
    /// Announced as joining; not every member has acknowledged it yet.
    Joining,
    /// Takes part in puts, and copies data.
    Copying,
    /// Has all data; not yet in the unicast ring.
    Promoted,
    /// In both rings.
    Serving,
}

/// The completeness of a member's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatusState {
    /// It takes part in puts, but still copies data.
    Joining,
    /// It has all data.
    Consistent,
}

/// Counts of input that was ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Datagrams that do not belong to the store.
    pub malformed: u64,
    /// Well-formed datagrams that a metadata service does not handle.
    pub foreign: u64,
    /// Datagrams that name a node but do not come from its configured address, and replies from a
    /// switch that is not connected.
    pub forged: u64,
    /// Messages of a past process or about a past epoch.
    pub stale: u64,
    /// Datagrams dropped because the transmit queue was full.
    pub transmits_dropped: u64,
}
