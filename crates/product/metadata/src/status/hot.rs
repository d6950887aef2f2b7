//! Status of hot keys.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Hot keys of all keyspaces with `balancing=hot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotStatus {
    /// These keyspaces, by id.
    pub keyspaces: Vec<u16>,
    /// Why hot keys are not spread.
    pub off: Option<String>,
    /// The counting period, in milliseconds.
    pub period_ms: u64,
    /// By switch id.
    pub switches: Vec<HotSwitchStatus>,
}

/// Hot keys whose owners are attached to one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSwitchStatus {
    /// Its position in the configuration.
    pub switch: u16,
    /// Its name, if known.
    #[serde(default)]
    pub name: String,
    /// Why it refused the last request.
    pub failure: Option<String>,
    /// Periods that this leader has counted there.
    pub periods: u64,
    /// Keys with an entry.
    pub entries: usize,
    /// Keys with copies at other nodes.
    pub copied: usize,
    /// Copies of all keys.
    pub copies: usize,
    /// Keys that the switch may store itself.
    #[serde(default)]
    pub values: usize,
    /// Entries that this leader has installed, changed or removed.
    pub changes: u64,
    /// Counted keys without an owner: of a dropped keyspace, or forged.
    pub refused: u64,
    /// T: keys with more requests in a second get copies.
    pub threshold_per_second: u64,
    /// Requests in a second, in the last period.
    pub requests_per_second: u64,
    /// Of these, requests of keys with an entry.
    pub hot_per_second: u64,
    /// Of these, requests that the switch answered itself.
    #[serde(default)]
    pub answered_per_second: u64,
    /// Mean deviation of the nodes' loads, in percent of their mean (KVSwitch's λ).
    pub imbalance_percent: u64,
    /// The most loaded node, and its load in percent of the mean.
    pub most_loaded: Option<(String, u64)>,
    /// The most requested keys with an entry, in descending order.
    pub keys: Vec<HotEntryStatus>,
}

/// A hot key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotEntryStatus {
    /// Its keyspace.
    pub keyspace: u16,
    /// Its match value, 32 hexadecimal digits.
    pub value: String,
    /// Identifies the installation of its entry.
    pub instance: u64,
    /// The node that pushes copies.
    pub owner: String,
    /// The nodes that hold copies.
    pub holders: Vec<String>,
    /// Whether the switch may store it as well.
    #[serde(default)]
    pub in_switch: bool,
    /// Requests in a second, in the last period.
    pub requests_per_second: u64,
    /// Of these, requests that the switch answered itself.
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
