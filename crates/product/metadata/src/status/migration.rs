//! Status of balancing by migration: what it has done and would do next.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A keyspace that is balanced by migration (TurboKV §5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationStatus {
    /// The keyspace's id.
    pub keyspace: u16,
    /// The keyspace's name.
    pub name: String,
    /// Number of counting periods that this leader has completed.
    #[serde(default)]
    pub periods: u64,
    /// Number of partitions moved.
    #[serde(default)]
    pub moves: u64,
    /// Number of partitions split.
    #[serde(default)]
    pub splits: u64,
    /// Number of these that were split because they were too large.
    #[serde(default)]
    pub full: u64,
    /// Number of pairs of partitions merged.
    #[serde(default)]
    pub merges: u64,
    /// The most loaded node of the last period, and its load in percent of the mean.
    pub hottest: Option<(String, u64)>,
    /// Keys that alone are too hot for any node, so that moving them does not help.
    pub hot_keys: Vec<HotKeyStatus>,
    /// The condition that counting waits for; `None` while load is counted.
    pub waits_for: Option<String>,
    /// Partitions that are placed on other nodes than the ring would choose, with their nodes, the
    /// preferred leader first.
    #[serde(default)]
    pub placed: Vec<(u32, Vec<u16>)>,
    /// The steps that would follow if the period ended now.
    pub next: Vec<String>,
    /// Recent events, numbered over all keyspaces since this leader began.
    pub events: Vec<(u64, String)>,
}

/// A key that alone is too hot for any node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeyStatus {
    /// The key's partition.
    pub partition: u32,
    /// The key's match value, 32 hexadecimal digits. In a range-partitioned keyspace, the first 16
    /// bytes of the key.
    pub value: String,
    /// Requests of the key, in percent of the mean load of all nodes.
    pub percent: u64,
}
