//! The metadata service of NICEKV, as a pure core (NICE §4.1, §4.4, §4.5; rules R6, R7, R9, R12, R13, R15 to R18).
//!
//! ```text
//!   nodes, switch agents             observations            decide                        announce
//!   heartbeats, acks, reports, ─▶ membership, watches, ─┐  pure: epochs,   ┌─▶ persisted ─▶ assignments ─▶ nodes
//!   probes, answers               switches              ├─▶ handoffs,   ───┤    state    ─▶ rules       ─▶ switches
//!                                 persisted state ──────┘   policy         └─▶ nothing to do
//! ```
//!
//! The core compares the persisted state with what it observes and derives the next state; it remembers no events. Everything
//! that leaves, except answers to heartbeats and probes, is a function of the persisted state, so no message can
//! outrun its step (R13), and a new leader resumes an unfinished step by looking.
//!
//! Reading order: `config`, `state` (what is persisted), `observations` (what was heard: `membership`, who is live and who has a lease;
//! `watch`; `switches`), `policy` (what differs by protocol), `view` (what a partition sees), `decide` (`epochs`: what
//! happens to it; `handoffs`: who stands in; `moves`: originals that change, by `targets`, what the ring says, and `change`, `keyspaces` and
//! `partitions`, what an operator asks for; `reshaping`: partitions that are split or merged; `dropped`: what becomes of partitions that are no more; `divisions`: which replica answers whose gets; `migration`: what is moved, split and merged by load, which `balance` carries out), `hot` (which keys have entries in switches, and who holds copies), `announce` (`rules`: the tables), `leader` (ties them together), `election` (who leads, of several), `status`, `capacity`.

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
mod observations;
mod partitions;
mod policy;
mod probation;
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
    host_id, service_host_id, vrings_of,
};
pub use election::{Election, ElectionEvent, Seat, SeatAnswer, SeatRequest, SeatTiming};
pub use keyspaces::{KeyspaceChange, KeyspacePlan};
pub use leader::{Metadata, Persisted, StorageRequest};
pub use observations::TargetReport;
pub use partitions::{MatchValue, PartitionChange, PartitionPlan};
pub use state::{StateError, StoredCluster, persisted_version};
pub use status::{
    BalancingStatus, ChunkInfo, ChunksStatus, ClusterInfo, ControlPlane, Counters, DiskState, DroppedStatus,
    Health, HealthCounts, HotEntryStatus, HotKeyStatus, HotStatus, HotSwitchStatus, KeyspaceInfo,
    KeyspaceStatus, LayoutInfo, ListeningReport, MemberStanding, MemberStatus, MemberStatusState,
    MigrationStatus, MissingPort, NodeState, NodeStatus, NodeWish, OLDER_STATE, OpenSocket, PartitionState,
    PartitionStatus, PeerStatus, ReshapingPhase, ReshapingStatus, Status, StrangerStatus, SwitchStatus,
    TargetStatus, TrunkState, TrunkStatus, UsageStatus,
};
pub use store::StateStore;
