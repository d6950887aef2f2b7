//! One switch: requests to it, its replies, and the entries that it should have.
//!
//! ```text
//!   connected ─▶ SetHot ─▶ ChangeHot{clear} ─▶ ReadHot ─▶ planned ─▶ ChangeHot{differences} ─┐
//!                  ▲ other keyspaces              ▲       once a period                     │
//!                  └─────────────────────────────┴──────────────────────────────────────────┘
//! ```
//!
//! One request is outstanding at a time. A request without a reply within [`TIMEOUT_NS`] counts as
//! lost and is repeated, which is harmless: an instance that is already installed does not change.
//!
//! Invariants:
//! - `table` has the entries that the switch has acknowledged since it was cleared over this
//!   connection. Each reading lists the installed entries; if they differ, the switch is cleared
//!   again.
//! - Only entries that are or were in `table` are announced to nodes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_hotkeys::{HotKey, MicroQueries, PeriodReport, Ring, State};
use nicekv_proto::NodeId;
use nicekv_switch::control::{ControlReply, ControlRequest};
use nicekv_switch::{HOT_CAPACITY, HotConfig, HotReading};

use super::counts::{Counts, Period, Requests};
use super::owners::Owners;
use super::table::{Change, Instances, Table, Wanted};
use crate::config::HotSettings;

/// Timeout of a request.
const TIMEOUT_NS: u64 = 1_000_000_000;
/// How often an owner is notified that a key has no copies any more.
const PARTINGS_TOLD: u8 = 3;

/// The outstanding request to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Count,
    Clear,
    Change,
    Read,
}

/// An announcement to the owner of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) to: NodeId,
    pub(super) key: HotKey,
    pub(super) instance: u64,
    pub(super) holders: Vec<NodeId>,
    pub(super) in_switch: bool,
}

/// Results of the last period, for status.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastPeriod {
    /// Number of requests that left for each server.
    pub(crate) loads: Vec<u64>,
    /// The threshold T, in requests per period.
    pub(crate) threshold: u64,
    pub(crate) requests: Requests,
    /// Keys with entries, most requested first: number of requests, and of those that the switch
    /// answered.
    pub(crate) hottest: Vec<(HotKey, u64, u64)>,
}

/// Totals since this leader began, for status.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Number of periods that were planned.
    pub(crate) periods: u64,
    /// Number of entries installed, changed or removed.
    pub(crate) changes: u64,
    /// Number of counted keys without an owner.
    pub(crate) refused: u64,
}

/// Upper bound of hot keys that are listed in the status.
const SHOWN_MAX: usize = 16;

/// The leader's state of one switch.
#[derive(Clone, Debug)]
pub(crate) struct Rack {
    connected: bool,
    asked: Option<(Asked, u64)>,
    /// No request is sent before this time, because the last one failed.
    quiet_until_ns: u64,
    /// The keyspaces that the switch counts; `None`: unknown.
    told: Option<Vec<u16>>,
    is_clear: bool,
    read_at_ns: u64,
    counts: Counts,
    servers: Vec<NodeId>,
    state: State,
    pub(super) wanted: BTreeMap<HotKey, Wanted>,
    /// The entries that the switch has acknowledged.
    pub(crate) table: Table,
    change: Option<Change>,
    /// Whether the wanted entries may differ from the table. Avoids comparing them at every poll.
    may_differ: bool,
    /// Why the switch refused the last request.
    pub(crate) failure: Option<String>,
    /// Keys whose owners must be notified again of their holders.
    due: VecDeque<HotKey>,
    /// Announcements of removed entries, and how often each must still be repeated.
    partings: VecDeque<(Announcement, u8)>,
    /// Number of these announcements that are due.
    due_partings: usize,
    pub(crate) totals: Totals,
    pub(crate) last: LastPeriod,
}

/// Parameters that all switches share.
pub(super) struct Common<'a> {
    pub(super) now_ns: u64,
    pub(super) term: u64,
    pub(super) settings: &'a HotSettings,
    pub(super) period_ns: u64,
    pub(super) keyspaces: &'a [u16],
    pub(super) seed: u64,
}

impl Rack {
    pub(super) fn new(settings: &HotSettings) -> Self {
        Self {
            connected: false,
            asked: None,
            quiet_until_ns: 0,
            told: None,
            is_clear: false,
            read_at_ns: 0,
            counts: Counts::default(),
            servers: Vec::new(),
            state: State::new(&settings.keys),
            wanted: BTreeMap::new(),
            table: Table::new(),
            change: None,
            may_differ: true,
            failure: None,
            due: VecDeque::new(),
            partings: VecDeque::new(),
            due_partings: 0,
            totals: Totals::default(),
            last: LastPeriod::default(),
        }
    }

    /// Handles a new connection: the entries of the switch are unknown.
    pub(super) fn handle_connected(&mut self) {
        (self.connected, self.asked, self.told, self.quiet_until_ns) = (true, None, None, 0);
        self.counts = Counts::default();
        self.forget_table();
    }

    pub(super) fn handle_disconnected(&mut self) {
        self.connected = false;
    }

    /// Plans to remove all entries. Owners are notified, because the next plan may have fewer
    /// entries.
    fn forget_table(&mut self) {
        (self.is_clear, self.change) = (false, None);
        self.due.clear();
        for (key, gone) in core::mem::take(&mut self.table) {
            if gone.entry.is_copied() {
                self.part(gone.entry.owner, key, gone.instance);
            }
        }
    }

    /// Removes all entries, because no keyspace spreads its hot keys any more.
    pub(super) fn retire(&mut self, settings: &HotSettings) {
        self.may_differ |= !self.wanted.is_empty();
        self.wanted.clear();
        self.state = State::new(&settings.keys);
    }

    /// Whether the switch has no entries any more, or is not connected.
    pub(super) fn is_retired(&self) -> bool {
        let is_told = self.told.as_ref().is_some_and(Vec::is_empty);
        !self.connected || (is_told && self.is_clear && self.table.is_empty() && self.wanted.is_empty())
    }

    /// The node at a position in the list of servers.
    pub(crate) fn server(&self, place: usize) -> Option<NodeId> {
        self.servers.get(place).copied()
    }

    /// The next request.
    pub(super) fn poll(&mut self, common: &Common<'_>, instances: &mut Instances) -> Option<ControlRequest> {
        let now_ns = common.now_ns;
        let is_awaited = self.asked.is_some_and(|(_, since_ns)| now_ns < since_ns + TIMEOUT_NS);
        if !self.connected || is_awaited || now_ns < self.quiet_until_ns {
            return None;
        }
        if self.is_clear && self.change.is_none() && core::mem::take(&mut self.may_differ) {
            let change = Change::between(&self.table, &self.wanted, instances);
            self.change = Some(change).filter(|change| !change.is_empty());
        }
        let term = common.term;
        let (asked, request) = if self.told.as_deref() != Some(common.keyspaces) {
            let nicekv_hotkeys::Config { keys_max, stages, .. } = common.settings.keys;
            let keyspaces = common.keyspaces.to_vec();
            let config = HotConfig { keyspaces, keys_max, stages, seed: common.seed };
            (Asked::Count, ControlRequest::SetHot { term, config })
        } else if !self.is_clear {
            let (removed, set) = (Vec::new(), Vec::new());
            (Asked::Clear, ControlRequest::ChangeHot { term, clear: true, removed, set })
        } else if let Some(change) = &self.change {
            (Asked::Change, change.request(term))
        } else if now_ns >= self.read_at_ns && !common.keyspaces.is_empty() {
            self.read_at_ns = now_ns + common.period_ns;
            (Asked::Read, ControlRequest::ReadHot { term })
        } else {
            return None;
        };
        self.asked = Some((asked, now_ns));
        Some(request)
    }

    /// Handles a reply of the switch. The caller then passes a reading to [`Self::plan`].
    pub(super) fn handle_reply(&mut self, common: &Common<'_>, reply: &ControlReply) {
        let Some((asked, _)) = self.asked else { return };
        match (reply, asked) {
            (ControlReply::HotFailed { reason, .. }, _) => {
                self.failure = Some(reason.clone());
                self.quiet_until_ns = common.now_ns + common.period_ns;
                if asked == Asked::Change {
                    self.forget_table();
                }
            }
            (ControlReply::HotChanged { .. }, Asked::Count) => {
                self.told = Some(common.keyspaces.to_vec());
                self.failure = None;
            }
            (ControlReply::HotChanged { .. }, Asked::Clear) => {
                (self.is_clear, self.may_differ) = (true, true);
            }
            (ControlReply::HotChanged { newest, .. }, Asked::Change) => {
                let change = self.change.take_if(|change| change.newest() <= *newest);
                change.into_iter().for_each(|change| self.adopt(change));
                self.failure = None;
            }
            (ControlReply::Hot { .. }, Asked::Read) => {}
            // A second reply to a request that was repeated.
            _ => return,
        }
        self.asked = None;
    }

    /// Applies a change that the switch has made, and notifies owners.
    fn adopt(&mut self, change: Change) {
        self.totals.changes += change.len() as u64;
        self.may_differ = true;
        for (key, _) in change.removed {
            if let Some(gone) = self.table.remove(&key).filter(|gone| gone.entry.is_copied()) {
                self.part(gone.entry.owner, key, gone.instance);
            }
        }
        for (key, placed) in change.set {
            let (instance, owner) = (placed.instance, placed.entry.owner);
            let is_copied = placed.entry.is_copied();
            let before = self.table.insert(key, placed).filter(|before| before.entry.is_copied());
            if is_copied {
                self.due.push_back(key);
            }
            if let Some(before) = before.filter(|before| before.entry.owner != owner || !is_copied) {
                let is_same = before.entry.owner == owner;
                self.part(before.entry.owner, key, if is_same { instance } else { before.instance });
            }
        }
    }

    /// Announces to an owner that a key has no copies any more.
    fn part(&mut self, to: NodeId, key: HotKey, instance: u64) {
        if self.partings.len() == HOT_CAPACITY {
            self.partings.pop_front();
        }
        let parting = Announcement { to, key, instance, holders: Vec::new(), in_switch: false };
        self.partings.push_back((parting, PARTINGS_TOLD));
        self.due_partings = (self.due_partings + 1).min(self.partings.len());
    }

    /// The next announcement.
    pub(super) fn announcement(&mut self) -> Option<Announcement> {
        while let Some(key) = self.due.pop_front() {
            let Some(placed) = self.table.get(&key).filter(|placed| placed.entry.is_copied()) else {
                continue;
            };
            let Wanted { owner: to, holders, in_switch, .. } = placed.entry.clone();
            return Some(Announcement { to, key, instance: placed.instance, holders, in_switch });
        }
        // The newest announcements, at the end of the queue, are due first.
        let place = self.partings.len().checked_sub(self.due_partings)?;
        self.due_partings = self.due_partings.checked_sub(1)?;
        let (announcement, left) = self.partings.get_mut(place)?;
        *left = left.saturating_sub(1);
        Some(announcement.clone())
    }

    /// At the end of a period all announcements become due again, because messages may have been
    /// lost.
    fn repeat(&mut self) {
        if self.due.is_empty() {
            let copied = self.table.iter().filter(|(_, placed)| placed.entry.is_copied());
            self.due = copied.map(|(key, _)| *key).collect();
        }
        self.partings.retain(|(_, left)| *left > 0);
        self.due_partings = self.partings.len();
    }

    /// Whether a reading lists exactly the entries that the switch has acknowledged.
    fn is_as_told(&self, reading: &HotReading) -> bool {
        let mut instances: Vec<u64> = self.table.values().map(|placed| placed.instance).collect();
        instances.sort_unstable();
        instances.iter().eq(reading.entries.iter().map(|count| &count.instance))
    }

    /// Plans the wanted entries at the end of a period. `servers`: the nodes at this switch,
    /// ascending; `is_available`: whether a node may get copies.
    pub(super) fn plan(
        &mut self,
        settings: &HotSettings,
        reading: &HotReading,
        servers: Vec<NodeId>,
        owners: &Owners<'_>,
        is_available: impl Fn(NodeId) -> bool,
    ) {
        if self.change.is_none() && self.is_clear && !self.is_as_told(reading) {
            self.failure =
                Some("its table differs from what it has acknowledged, and is being cleared".into());
            self.forget_table();
        }
        self.settle(servers);
        let Some(period) = self.counts.period(reading, &self.table, &self.servers) else { return };
        let available: Vec<bool> = self.servers.iter().map(|node| is_available(*node)).collect();
        let place_of = |node: NodeId| self.servers.binary_search(&node).ok().map(|place| place as u16);
        let owner = |key: &HotKey| place_of(owners.find(key)?.primary());
        let ring = Ring { available: &available };
        // Load that more copies cannot spread is not a reason to copy other keys.
        let loads = self.loads_to_spread(&period, owners, &available, settings.holders_max());
        let report = PeriodReport { loads: &loads, hot: &period.hot, candidates: &period.candidates };
        let plan = nicekv_hotkeys::plan(&settings.keys_to_plan(), &self.state, &report, &ring, owner);
        let wanted = plan.state.table.iter().filter_map(|(key, entry)| {
            let owned = owners.find(key)?;
            let others = entry.holders.iter().skip(1).map(|place| self.servers[usize::from(*place)]);
            let holders = others.filter(|node| !owned.is_member(*node) && is_available(*node));
            let holders = holders.take(settings.holders_max()).collect();
            let (in_switch, owner_turns) = (entry.in_switch, owned.owner_turns);
            Some((*key, Wanted { owner: owned.primary(), holders, in_switch, owner_turns }))
        });
        (self.wanted, self.may_differ) = (wanted.collect(), true);
        self.state = plan.state;
        let is_nobodys = |(key, _): &&(HotKey, u64)| owners.find(key).is_none();
        self.totals.periods += 1;
        self.totals.refused += period.candidates.iter().filter(is_nobodys).count() as u64;
        self.note(period, plan.border);
        self.repeat();
    }

    /// The loads of servers as they would be if the load of each fully copied key were spread
    /// evenly, without requests that the switch answered. Members of a key's partition may not get
    /// copies, so one key alone can keep the load uneven. Without this correction, T would fall
    /// until every key is copied.
    fn loads_to_spread(
        &self,
        period: &Period,
        owners: &Owners<'_>,
        available: &[bool],
        holders_max: usize,
    ) -> Vec<u64> {
        let (mut loads, mut spread) = (period.loads.clone(), 0);
        for (key, count) in &period.hot {
            let Some((placed, owned)) = self.table.get(key).zip(owners.find(key)) else { continue };
            let holders = &placed.entry.holders;
            let others = self.servers.iter().zip(available);
            let others = others.filter(|(node, is_there)| **is_there && !owned.is_member(**node)).count();
            if holders.is_empty() || holders.len() < others.min(holders_max) {
                continue;
            }
            let share =
                period.left(key, *count) / (holders.len() as u64 + u64::from(placed.entry.owner_turns));
            for (node, load) in self.servers.iter().zip(&mut loads) {
                if holders.contains(node) || owned.answers(*node) {
                    let taken = share.min(*load);
                    (*load, spread) = (*load - taken, spread + taken);
                }
            }
        }
        let each = spread / loads.len().max(1) as u64;
        loads.iter_mut().for_each(|load| *load += each);
        loads
    }

    /// Adapts the state to nodes that have come or gone, which changes positions.
    fn settle(&mut self, servers: Vec<NodeId>) {
        if servers == self.servers {
            return;
        }
        let before = core::mem::replace(&mut self.servers, servers);
        let place = |old: &u16| {
            let node = before.get(usize::from(*old))?;
            self.servers.binary_search(node).ok().map(|place| place as u16)
        };
        self.state.table.retain(|_, entry| {
            let has_owner = entry.holders.first().and_then(place).is_some();
            entry.holders = entry.holders.iter().filter_map(place).collect();
            has_owner
        });
    }

    fn note(&mut self, period: Period, border: MicroQueries) {
        let requests = period.requests();
        let Period { loads, mut hot, answered, .. } = period;
        hot.sort_unstable_by_key(|(key, count)| (core::cmp::Reverse(*count), *key));
        hot.truncate(SHOWN_MAX);
        let with_answered = |(key, count)| (key, count, answered.get(&key).copied().unwrap_or(0));
        let hottest = hot.into_iter().map(with_answered).collect();
        let threshold = border.0 / u64::from(nicekv_hotkeys::MILLION);
        self.last = LastPeriod { loads, threshold, requests, hottest };
    }
}
