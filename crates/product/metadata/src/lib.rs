//! The metadata service of NICEKV, as a pure core (NICE §4.1, §4.4, §4.5; rules R6, R7, R9, R12,
//! R13, R15 to R18).
//!
//! ```text
//!   nodes, switch agents             observe               decide                        announce
//!   heartbeats, acks, reports, ─▶ membership, watches, ─┐  pure: epochs,   ┌─▶ persisted ─▶ assignments ─▶ nodes
//!   probes, replies               switches              ├─▶ handoffs,   ───┤    state    ─▶ tables      ─▶ switches
//!                                 persisted state ──────┘   policy         └─▶ nothing to do
//! ```
//!
//! The core compares the persisted state with what it observes and derives the next state; it
//! remembers no events. Everything that it sends, except answers to heartbeats and probes, is a
//! function of the persisted state. So no message is sent before its step is persisted (R13), and a
//! new leader resumes an unfinished step by comparing again.
//!
//! Reading order:
//!
//! | module | content |
//! | --- | --- |
//! | `config`, `state` | the configuration; the persisted state and its encoding |
//! | `observe` | what nodes and switches have reported: `membership` (liveness, leases), `watch` (one partition), `switches`, load |
//! | `policy`, `targets`, `view` | differences between protocols; target replica sets; everything a decision may depend on |
//! | `decide` | `epochs` (members and primary), `handoffs`, `moves`, `divisions` (gets by client address), `reshaping` (splits, merges), `dropped`, `migration` (by load) |
//! | `announce` | assignments to nodes, and `rules`: the switches' tables |
//! | `leader` | ties these together: input, persistence, output |
//! | `change`, `keyspaces`, `partitions`, `collecting` | operators' commands; `probation` and `rollback` undo those that a switch refuses |
//! | `balance`, `hot` | carries out migration; entries and copies of hot keys |
//! | `election` | which of several instances leads |
//! | `status`, `capacity` | reports for operators; capacity planning |

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod announce;
mod balance;
mod capacity;
mod change;
mod collecting;
mod config;
mod decide;
mod election;
mod hot;
mod keyspaces;
mod leader;
mod observe;
mod partitions;
mod policy;
mod probation;
mod rollback;
mod state;
mod status;
mod store;
mod targets;
mod view;

#[cfg(test)]
mod tests;

pub use capacity::{Carried, Demand, MANAGED_PARTITIONS_MAX, SwitchCapacity};
pub use change::{Change, Plan, Refused};
pub use config::{
    Balancing, Config, ConfigError, HotSettings, HotSettingsError, LINK_BITS_PER_SECOND,
    LINK_BITS_PER_SECOND_BOUNDS, NODES_MAX, NodeConfig, SWITCHES_MAX, ServiceConfig, SwitchId, Timing,
    Unmatched, host_id, service_host_id, vrings_of,
};
pub use election::{Election, ElectionEvent, LeaderLease, LeaseAnswer, LeaseRequest, LeaseTiming};
pub use keyspaces::{KeyspaceChange, KeyspacePlan};
pub use leader::{Metadata, Persisted, StorageRequest};
pub use observe::TargetReport;
pub use partitions::{MatchValue, PartitionChange, PartitionPlan};
pub use state::{StateError, StoredCluster, persisted_version};
pub use status::{
    BalancingStatus, ChunkInfo, ChunksStatus, ClusterInfo, ControlPlane, Counters, DiskState, DroppedStatus,
    Health, HealthCounts, HotEntryStatus, HotKeyStatus, HotStatus, HotSwitchStatus, KeyspaceInfo,
    KeyspaceStatus, LayoutInfo, ListeningReport, MemberStanding, MemberStatus, MemberStatusState,
    MigrationStatus, MissingPort, NodeState, NodeStatus, NodeTarget, OLDER_STATE, OpenSocket,
    OtherReleaseStatus, PartitionState, PartitionStatus, PeerStatus, ReshapingPhase, ReshapingStatus, Status,
    SwitchStatus, TargetStatus, TrunkState, TrunkStatus, UsageStatus,
};
pub use store::StateStore;
