//! Status of balancing by migration: what it has done and would do next.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A keyspace that is balanced by migration (TurboKV §5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationStatus {
    /// Its id.
    pub keyspace: u16,
    /// Its name.
    pub name: String,
    /// Completed counting periods of this leader.
    #[serde(default)]
    pub periods: u64,
    /// Partitions moved.
    #[serde(default)]
    pub moves: u64,
    /// Partitions split.
    #[serde(default)]
    pub splits: u64,
    /// Of these, partitions that were full.
    #[serde(default)]
    pub full: u64,
    /// Pairs of partitions merged.
    #[serde(default)]
    pub merges: u64,
    /// The most loaded node of the last period, and its load in percent of the mean.
    pub hottest: Option<(String, u64)>,
    /// Keys that alone are too hot for any node, so that moving them does not help.
    pub hot_keys: Vec<HotKeyStatus>,
    /// Why counting waits.
    pub waits_for: Option<String>,
    /// Partitions that are placed elsewhere than by the ring, with their nodes, the preferred leader first.
    #[serde(default)]
    pub placed: Vec<(u32, Vec<u16>)>,
    /// The steps that would follow if the period ended now.
    pub next: Vec<String>,
    /// Recent events, numbered over all keyspaces since this leader began.
    pub events: Vec<(u64, String)>,
}

/// An entry of [`MigrationStatus::hot_keys`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeyStatus {
    /// Its partition.
    pub partition: u32,
    /// Its match value, 32 hexadecimal digits; in a range-partitioned keyspace its first 16 bytes.
    pub value: String,
    /// Its requests, in percent of the mean of all nodes.
    pub percent: u64,
}
