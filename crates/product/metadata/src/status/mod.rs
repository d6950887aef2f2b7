//! What operators and clients may know.

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
pub use control_plane::{ControlPlane, ListeningReport, OpenSocket, PeerStatus, StrangerStatus};
pub use hot::{HotEntryStatus, HotStatus, HotSwitchStatus};
pub use info::{ChunkInfo, ClusterInfo, KeyspaceInfo, LayoutInfo};
pub use migration::{HotKeyStatus, MigrationStatus};
pub use phases::{ReshapingPhase, ReshapingStatus};
pub use ports::MissingPort;

/// The state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Name of the cluster, 32 hexadecimal digits.
    pub cluster: String,
    /// Term of the leader that answers.
    pub term: u64,
    /// Every partition has R consistent members, everything is acknowledged by nodes and switches.
    pub ready: bool,
    /// The first thing that is missing.
    pub why_not_ready: Option<String>,
    /// Replicas that are not yet where the ring wants them.
    pub moves: usize,
    /// How many partitions are how well.
    pub health: HealthCounts,
    /// What is stored and asked.
    #[serde(default)]
    pub usage: UsageStatus,
    /// By id.
    pub nodes: Vec<NodeStatus>,
    /// By id; those that are configured and have not come into being are not among them.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// Keyspaces that are being dropped.
    #[serde(default)]
    pub dropped: Vec<DroppedStatus>,
    /// Replicas that nobody needs and that are not discarded yet, those of dropped keyspaces included.
    #[serde(default)]
    pub leftovers: usize,
    /// Partitions that are to be split or merged, in the order in which that was asked for, then those that were a moment ago (R17).
    #[serde(default)]
    pub reshapings: Vec<ReshapingStatus>,
    /// By id; empty before bootstrap.
    pub partitions: Vec<PartitionStatus>,
    /// By id.
    pub switches: Vec<SwitchStatus>,
    /// Changes that were begun and taken back since a switch refused the tables that followed: the newest last.
    #[serde(default)]
    pub taken_back: Vec<String>,
    /// Fill and hits of the switch tables.
    pub tables: Vec<TableStatus>,
    /// How gets are divided among replicas; none if they are not to be.
    #[serde(default)]
    pub balancing: Option<BalancingStatus>,
    /// Keyspaces whose partitions go where load is little.
    #[serde(default)]
    pub migrations: Vec<MigrationStatus>,
    /// How hot keys are spread; none if no keyspace wants it.
    #[serde(default)]
    pub hot: Option<HotStatus>,
    /// Chunks of objects, if there are names of such.
    #[serde(default)]
    pub chunks: Option<ChunksStatus>,
    /// What was not understood or not taken.
    pub counters: Counters,
    /// Who answers; the driver knows.
    #[serde(default)]
    pub control_plane: ControlPlane,
}

/// How gets are divided among replicas, by their sources (NICE §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancingStatus {
    /// Partitions whose gets are divided.
    pub divided: usize,
    /// Partitions all of whose gets go to their primary, since table `division` has no room for them.
    pub left_out: usize,
    /// Entries that a partition takes at most, in both rings and in `division`: R + 1.
    pub entries_per_partition: usize,
    /// Sources that are known of late, each counted once for each partition that it asks.
    pub sources: usize,
    /// How often this leader has divided a partition otherwise because of load.
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
    /// What an operator wants of it.
    pub wish: NodeWish,
    /// Partitions of which it is a member.
    pub members: usize,
    /// Partitions that it is to hold.
    pub share: usize,
    /// Of these, those that it does not hold yet.
    pub missing: usize,
    /// Partitions that it copies anew, as its storage has forgotten something that it had confirmed (R18).
    #[serde(default)]
    pub forgotten: usize,
    /// How often that has happened to its storage.
    #[serde(default)]
    pub losses: u32,
    /// Gets that come to it in a second.
    #[serde(default)]
    pub gets_per_second: u64,
}

/// What an operator wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeWish {
    /// That it holds its share.
    Holds,
    /// That it holds nothing.
    Drained,
    /// That it holds nothing, and is forgotten then.
    Removed,
}

/// What a node's disk has room for, as it said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// Everything.
    Enough,
    /// Deletes, and what is decided: puts are refused, and the node joins nothing.
    Reserve,
    /// What is decided, perhaps.
    Exhausted,
}

/// Whether a node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Never heard by this leader.
    Unknown,
    /// Heard, and it hears us.
    Live,
    /// Silent or deaf.
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
    /// How its load spreads: migrate or hot; none: partitions are where the ring says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balancing: Option<String>,
    pub replicas: usize,
    /// How many there are now.
    pub partitions: usize,
    /// Of these, those all of whose replicas are in both rings, and known to be.
    #[serde(default)]
    pub ready: usize,
    pub unicast: Ipv4Addr,
    pub multicast: Ipv4Addr,
    /// How many of them are how well.
    pub health: HealthCounts,
    /// What is stored and asked.
    #[serde(default)]
    pub usage: UsageStatus,
}

/// A keyspace that is being dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedStatus {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Whether nobody answers a get, or acknowledges a put, of it any more.
    pub quiet: bool,
    /// Replicas of its partitions that are not discarded yet.
    pub replicas: usize,
    /// Names of the nodes that hold them and are there, then of those that are not.
    pub waits_for: (Vec<String>, Vec<String>),
    /// What else it waits for: a switch that may go by tables with it.
    pub switches: Option<String>,
}

/// What is stored and asked, as the nodes told within the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageStatus {
    /// Of how many partitions it is known what they hold; the others are not in these numbers.
    pub partitions: u64,
    /// Keys with a value, each counted once, however many replicas there are. What has expired counts until it is deleted.
    pub keys: u64,
    /// Keys and values together, counted once.
    pub bytes: u64,
    /// Of these keys, those that expire.
    #[serde(default)]
    pub expiring: u64,
    /// When they do on the average, in milliseconds since 1970; 0: none does.
    #[serde(default)]
    pub expiry_ms: u64,
    /// For how long at most these numbers have not been exact, since something is written; 0: they are exact.
    pub age_ms: u32,
    /// Gets in a second, those that clients repeat included.
    pub gets_per_second: u64,
    /// Updates in a second, likewise.
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
    /// Number of its keyspace.
    pub keyspace: u16,
    /// The smallest match value that it owns, 32 hexadecimal digits.
    pub first: String,
    /// The largest.
    pub last: String,
    pub epoch: u32,
    /// Node that orders its puts.
    pub primary: u16,
    /// Of a chain: node that answers; its members are in the chain's order.
    #[serde(default)]
    pub tail: Option<u16>,
    pub state: PartitionState,
    pub health: Health,
    pub members: Vec<MemberStatus>,
    /// Names of the originals that are no members, in ring order.
    pub away: Vec<String>,
    /// Gets in a second of late, if any are known.
    #[serde(default)]
    pub gets_per_second: Option<u64>,
    /// Reads and updates in a second of late, as switches count them; none if they do not.
    #[serde(default)]
    pub asked_per_second: Option<(u64, u64)>,
}

/// What clients and data can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// R originals hold everything.
    Whole,
    /// An original is away or behind; handoffs that serve make up for it.
    Covered,
    /// Fewer than R members hold what is put now.
    Reduced,
    /// Gets are answered; puts wait for more members, or for the epoch to come into force.
    Waiting,
    /// No original that holds everything is there.
    Unavailable,
    /// Every original that held everything came back with empty storage.
    Lost,
}

/// Partitions by [`Health`].
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
    /// The match values that it owns; `None`: these are none.
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
    /// Its place in the configuration.
    pub id: u16,
    /// Its name, where that is known.
    #[serde(default)]
    pub name: String,
    /// Whether it can be talked to.
    pub connected: bool,
    /// Whether it goes by the newest tables, as far as it is known.
    pub current: bool,
    /// Why it refused them: the tables before are in force there.
    pub error: Option<String>,
    /// Entries of its newest tables. Where trunks lead to what is behind them, neighbours share one.
    #[serde(default)]
    pub entries: usize,
    /// The trunks to other switches, by their numbers.
    #[serde(default)]
    pub trunks: Vec<TrunkStatus>,
    /// Nodes on ports that it does not have: its tables leave them out.
    #[serde(default)]
    pub missing_ports: Vec<MissingPort>,
}

/// A trunk of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkStatus {
    /// The switch at its other end.
    pub to: u16,
    /// The name of that, where it is known.
    #[serde(default)]
    pub name: String,
    /// What it is for.
    pub state: TrunkState,
}

/// What becomes of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrunkState {
    /// It is in use.
    Open,
    /// It is there for when another fails.
    Closed,
    /// One of its ends says that it carries nothing.
    Dead,
}

/// Whether a partition can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// In force.
    Active,
    /// Waits until a removed member can answer no more gets (R6).
    Activating,
    /// Waits for a consistent member to come back.
    Waiting,
    /// Every consistent member came back with empty storage.
    Lost,
}

/// A member of a replica set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub node: u16,
    pub name: String,
    pub state: MemberStatusState,
    pub standing: MemberStanding,
    /// Stands in for an original that is away (R8).
    pub handoff: bool,
    /// Holds everything, and goes when the originals do.
    pub leaving: bool,
}

/// How far a member has come (R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStanding {
    /// Not every member knows it yet.
    Joining,
    /// Takes part in puts, copies.
    Copying,
    /// Holds what it is to hold; not yet in the unicast ring.
    Promoted,
    /// In both rings.
    Serving,
}

/// What a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberStatusState {
    /// Takes part in puts, still copies.
    Joining,
    /// Holds everything.
    Consistent,
}

/// Input that was ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Datagrams that are none of ours.
    pub malformed: u64,
    /// Well-formed, but not for a metadata service.
    pub foreign: u64,
    /// Names a node and does not come from where that node is configured to be; or from a switch that is not connected.
    pub forged: u64,
    /// From a process or about an epoch that is past.
    pub stale: u64,
    /// Datagrams that found the transmit queue full.
    pub transmits_dropped: u64,
}
