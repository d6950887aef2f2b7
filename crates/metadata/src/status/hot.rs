//! How hot keys are spread, as this leader knows it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use nicekv_hotkeys::{HotKey, imbalance};
use serde::{Deserialize, Serialize};

use crate::config::{SwitchId, nanoseconds};
use crate::hot::{HotKeys, Rack};
use crate::leader::Metadata;

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
    /// What it was asked in a second of the last period.
    pub requests_per_second: u64,
}

impl HotSwitchStatus {
    /// Requests for keys with an entry, in percent of all.
    pub fn hot_percent(&self) -> u64 {
        (self.hot_per_second * 100).checked_div(self.requests_per_second).unwrap_or(0)
    }
}

impl Metadata {
    pub(super) fn hot_status(&self) -> Option<HotStatus> {
        let keyspaces: Vec<u16> =
            self.committed.keyspaces.iter().filter(|spec| spec.is_hot()).map(|spec| spec.id.0).collect();
        (!keyspaces.is_empty()).then(|| HotStatus {
            keyspaces,
            off: HotKeys::why_off(&self.config).map(ToString::to_string),
            period_ms: nanoseconds(self.config.hot.period) / 1_000_000,
            switches: self.hot.racks.iter().map(|(id, rack)| self.hot_switch(*id, rack)).collect(),
        })
    }

    fn hot_switch(&self, id: SwitchId, rack: &Rack) -> HotSwitchStatus {
        let period_ns = nanoseconds(self.config.hot.period).max(1);
        let per_second = |count: u64| {
            (u128::from(count) * 1_000_000_000 / u128::from(period_ns)).min(u64::MAX.into()) as u64
        };
        let copies = || rack.table.values().map(|placed| placed.entry.holders.len());
        let (hot, all) = rack.last.requests;
        let (periods, changes, refused) = rack.counted;
        HotSwitchStatus {
            switch: id.0,
            name: String::new(),
            failure: rack.failure.clone(),
            periods,
            entries: rack.table.len(),
            copied: copies().filter(|copies| *copies > 0).count(),
            copies: copies().sum(),
            changes,
            refused,
            threshold_per_second: per_second(rack.last.threshold),
            requests_per_second: per_second(all),
            hot_per_second: per_second(hot),
            imbalance_percent: (imbalance(&rack.last.loads) * 100.0) as u64,
            most_loaded: self.most_loaded(rack),
            keys: {
                let hottest = rack.last.hottest.iter();
                hottest.filter_map(|(key, count)| self.hot_entry(rack, key, per_second(*count))).collect()
            },
        }
    }

    fn most_loaded(&self, rack: &Rack) -> Option<(String, u64)> {
        let loads = &rack.last.loads;
        let total: u64 = loads.iter().sum();
        let (place, most) = loads.iter().enumerate().max_by_key(|(_, load)| **load)?;
        let percent = u128::from(*most) * 100 * loads.len() as u128;
        let percent = percent.checked_div(total.into())? as u64;
        rack.server(place).map(|node| (self.name(node), percent))
    }

    fn hot_entry(&self, rack: &Rack, key: &HotKey, requests_per_second: u64) -> Option<HotEntryStatus> {
        let placed = rack.table.get(key)?;
        Some(HotEntryStatus {
            keyspace: key.keyspace.0,
            value: format!("{:032x}", key.digest.match_value()),
            instance: placed.instance,
            owner: self.name(placed.entry.owner),
            holders: placed.entry.holders.iter().map(|node| self.name(*node)).collect(),
            requests_per_second,
        })
    }
}
