//! Status of hot keys.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Hot keys of all keyspaces with `balancing=hot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotStatus {
    /// The ids of these keyspaces.
    pub keyspaces: Vec<u16>,
    /// Why hot keys are not spread; `None` if they are.
    pub off: Option<String>,
    /// The counting period, in milliseconds.
    pub period_ms: u64,
    /// The hot keys by switch, in the order of switch ids.
    pub switches: Vec<HotSwitchStatus>,
}

/// Hot keys whose owners are attached to one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSwitchStatus {
    /// The switch's position in the configuration.
    pub switch: u16,
    /// The switch's name, if known.
    #[serde(default)]
    pub name: String,
    /// Why the switch refused the last request.
    pub failure: Option<String>,
    /// Number of periods that this leader has counted at the switch.
    pub periods: u64,
    /// Number of keys with an entry.
    pub entries: usize,
    /// Number of keys with copies at other nodes.
    pub copied: usize,
    /// Number of copies of all keys.
    pub copies: usize,
    /// Number of keys that the switch may store itself.
    #[serde(default)]
    pub values: usize,
    /// Number of entries that this leader has installed, changed or removed.
    pub changes: u64,
    /// Number of counted keys without an owner: their keyspace was dropped, or they are forged.
    pub refused: u64,
    /// The threshold T: keys with more requests per second get copies.
    pub threshold_per_second: u64,
    /// Requests per second in the last period.
    pub requests_per_second: u64,
    /// Requests per second of keys with an entry.
    pub hot_per_second: u64,
    /// Requests per second that the switch answered itself.
    #[serde(default)]
    pub answered_per_second: u64,
    /// Mean deviation of the nodes' loads, in percent of their mean (KVSwitch's λ).
    pub imbalance_percent: u64,
    /// The most loaded node, and its load in percent of the mean.
    pub most_loaded: Option<(String, u64)>,
    /// Keys with an entry, most requested first.
    pub keys: Vec<HotEntryStatus>,
}

/// A hot key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotEntryStatus {
    /// The id of the key's keyspace.
    pub keyspace: u16,
    /// The key's match value, 32 hexadecimal digits.
    pub value: String,
    /// Identifies this installation of the key's entry.
    pub instance: u64,
    /// The name of the owner, the node that pushes copies.
    pub owner: String,
    /// The names of the nodes that hold copies.
    pub holders: Vec<String>,
    /// Whether the switch may store a copy as well.
    #[serde(default)]
    pub in_switch: bool,
    /// Requests per second in the last period.
    pub requests_per_second: u64,
    /// Requests per second that the switch answered itself.
    #[serde(default)]
    pub answered_per_second: u64,
}

impl HotSwitchStatus {
    /// Requests of keys with an entry, in percent of all.
    pub fn hot_percent(&self) -> u64 {
        (self.hot_per_second * 100).checked_div(self.requests_per_second).unwrap_or(0)
    }

    /// Requests that the switch answered itself, in percent of all.
    pub fn answered_percent(&self) -> u64 {
        (self.answered_per_second * 100).checked_div(self.requests_per_second).unwrap_or(0)
    }
}
