//! Builds the status of hot keys.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use nicekv_hotkeys::{HotKey, imbalance};

use super::hot::{HotEntryStatus, HotStatus, HotSwitchStatus};
use crate::config::{SwitchId, nanoseconds};
use crate::hot::{HotKeys, Rack, Requests, Totals};
use crate::leader::Metadata;

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
        let Requests { all, hot, answered } = rack.last.requests;
        let Totals { periods, changes, refused } = rack.totals;
        HotSwitchStatus {
            switch: id.0,
            name: String::new(),
            failure: rack.failure.clone(),
            periods,
            entries: rack.table.len(),
            copied: copies().filter(|copies| *copies > 0).count(),
            copies: copies().sum(),
            values: rack.table.values().filter(|placed| placed.entry.in_switch).count(),
            changes,
            refused,
            threshold_per_second: per_second(rack.last.threshold),
            requests_per_second: per_second(all),
            hot_per_second: per_second(hot),
            answered_per_second: per_second(answered),
            imbalance_percent: (imbalance(&rack.last.loads) * 100.0) as u64,
            most_loaded: self.most_loaded(rack),
            keys: {
                let hottest = rack.last.hottest.iter();
                let rates = |(key, count, answered): &(HotKey, u64, u64)| {
                    self.hot_entry(rack, key, [*count, *answered].map(per_second))
                };
                hottest.filter_map(rates).collect()
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

    /// The status of a key with an entry. `per_second`: its requests, and those that the switch
    /// answered itself.
    fn hot_entry(&self, rack: &Rack, key: &HotKey, per_second: [u64; 2]) -> Option<HotEntryStatus> {
        let placed = rack.table.get(key)?;
        let [requests_per_second, answered_per_second] = per_second;
        Some(HotEntryStatus {
            keyspace: key.keyspace.0,
            value: format!("{:032x}", key.digest.match_value()),
            instance: placed.instance,
            owner: self.name(placed.entry.owner),
            holders: placed.entry.holders.iter().map(|node| self.name(*node)).collect(),
            in_switch: placed.entry.in_switch,
            requests_per_second,
            answered_per_second,
        })
    }
}
