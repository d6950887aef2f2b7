//! What balancing by migration has done and would do next.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A keyspace whose partitions go where load is little (TurboKV §5.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationStatus {
    /// Its number.
    pub keyspace: u16,
    /// Its name.
    pub name: String,
    /// Periods that this leader has counted to their end.
    #[serde(default)]
    pub periods: u64,
    /// Partitions that it has moved.
    #[serde(default)]
    pub moves: u64,
    /// Partitions that it has split.
    #[serde(default)]
    pub splits: u64,
    /// Of these, those that were full.
    #[serde(default)]
    pub full: u64,
    /// Pairs of partitions that it has merged.
    #[serde(default)]
    pub merges: u64,
    /// The most loaded node of the last period, and its load in percent of the mean.
    pub hottest: Option<(String, u64)>,
    /// Keys that alone are too hot for any node, which moving does not help.
    pub hot_keys: Vec<HotKeyStatus>,
    /// What is waited for before counting goes on.
    pub waits_for: Option<String>,
    /// Partitions that are to be elsewhere than the ring says, and at which nodes, by their numbers, who leads by right first.
    #[serde(default)]
    pub placed: Vec<(u32, Vec<u16>)>,
    /// What would follow if the period ended now.
    pub next: Vec<String>,
    /// What was done of late, numbered over all keyspaces since this leader began.
    pub events: Vec<(u64, String)>,
}

/// See [`MigrationStatus::hot_keys`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKeyStatus {
    /// Its partition.
    pub partition: u32,
    /// Its match value, 32 hexadecimal digits: of a keyspace by range its first 16 bytes.
    pub value: String,
    /// What it is asked, in percent of the mean of all nodes.
    pub percent: u64,
}
