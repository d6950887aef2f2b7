//! How hot keys are spread.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Hot keys of all keyspaces with `balancing=hot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotStatus {
    /// These keyspaces, by number.
    pub keyspaces: Vec<u16>,
    /// Why none of their keys is spread.
    pub off: Option<String>,
    /// In which requests are counted, in milliseconds.
    pub period_ms: u64,
    /// By id.
    pub switches: Vec<HotSwitchStatus>,
}

/// Hot keys whose owners hang at one switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotSwitchStatus {
    /// Its place in the configuration.
    pub switch: u16,
    /// Its name, where that is known.
    #[serde(default)]
    pub name: String,
    /// Why it has not done what it was asked last.
    pub failure: Option<String>,
    /// Periods that this leader has counted there.
    pub periods: u64,
    /// Keys that have an entry there.
    pub entries: usize,
    /// Of these, keys of which other nodes hold copies.
    pub copied: usize,
    /// Copies of all keys together.
    pub copies: usize,
    /// Keys of which the switch is to have a copy itself.
    #[serde(default)]
    pub values: usize,
    /// Entries that this leader has installed, changed or removed.
    pub changes: u64,
    /// Keys that were counted and are nobody's: of a keyspace that is gone, or made up.
    pub refused: u64,
    /// T: a key that is asked more in a second is to have copies.
    pub threshold_per_second: u64,
    /// What was asked in a second of the last period.
    pub requests_per_second: u64,
    /// Of these, for keys that have an entry.
    pub hot_per_second: u64,
    /// Of these, what the switch has answered itself.
    #[serde(default)]
    pub answered_per_second: u64,
    /// How far the loads of nodes were from their mean, in percent of it, on average (KVSwitch's λ).
    pub imbalance_percent: u64,
    /// The most loaded node, and its load in percent of the mean.
    pub most_loaded: Option<(String, u64)>,
    /// The keys with an entry that were asked most, these first.
    pub keys: Vec<HotEntryStatus>,
}

/// A hot key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotEntryStatus {
    /// Its keyspace.
    pub keyspace: u16,
    /// Its match value, 32 hexadecimal digits.
    pub value: String,
    /// Names the installation of its entry.
    pub instance: u64,
    /// Name of the node that pushes copies.
    pub owner: String,
    /// Names of those that hold them.
    pub holders: Vec<String>,
    /// Whether the switch is to have one, too.
    #[serde(default)]
    pub in_switch: bool,
    /// What it was asked in a second of the last period.
    pub requests_per_second: u64,
    /// Of these, what the switch has answered itself.
    #[serde(default)]
    pub answered_per_second: u64,
}

impl HotSwitchStatus {
    /// Requests for keys with an entry, in percent of all.
    pub fn hot_percent(&self) -> u64 {
        (self.hot_per_second * 100).checked_div(self.requests_per_second).unwrap_or(0)
    }

    /// Requests that the switch has answered itself, in percent of all.
    pub fn answered_percent(&self) -> u64 {
        (self.answered_per_second * 100).checked_div(self.requests_per_second).unwrap_or(0)
    }
}
