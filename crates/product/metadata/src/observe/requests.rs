//! Client requests by partition and by the node that serves them, as switches count them (TurboKV
//! §5.1).
//!
//! ```text
//!   switch: counts of entries, which only grow ─▶ minus its last report ─▶ by partition ─▶ window
//! ```
//!
//! **Counted once.** With trunks, a datagram matches entries at each switch on its way. It counts
//! only at the switch that its receiver is attached to or, for a group, at the switch of the
//! group's first member. Without trunks it matches at one switch.
//!
//! **Differences.** The first report of a switch is the baseline of later ones. If a switch has
//! fewer matches than before, it has restarted, and its counts began at zero. So do those of a new
//! entry. Memory is bounded by the tables.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use nicekv_proto::{NodeId, PartitionId};
use nicekv_switch::{EntryRequests, HostId, Match, Table, TableSet, Topology};

use crate::config::SwitchId;

/// Length of the time window for status.
const SHOWN_NS: u64 = 5_000_000_000;

/// Numbers of requests to a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Reads, by the node that answers them.
    pub(crate) reads: BTreeMap<NodeId, u64>,
    /// Updates, which are load of every member.
    pub(crate) updates: u64,
}

impl Asked {
    pub(crate) fn reads(&self) -> u64 {
        self.reads.values().sum()
    }
}

/// Requests of all partitions since the start of a time window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    begun_ns: u64,
    by_partition: BTreeMap<PartitionId, Asked>,
}

impl Window {
    pub(crate) fn begun_at(now_ns: u64) -> Self {
        Self { begun_ns: now_ns, by_partition: BTreeMap::new() }
    }

    pub(crate) fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    pub(crate) fn of(&self, id: PartitionId) -> Option<&Asked> {
        self.by_partition.get(&id)
    }
}

/// The last report of a switch.
#[derive(Clone, Debug, Default)]
struct Counted {
    matched: u64,
    entries: BTreeMap<(Table, Match), EntryRequests>,
}

/// The requests of all partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts {
    switches: BTreeMap<SwitchId, Counted>,
    /// The time window for decisions.
    pub(crate) window: Window,
    /// The current and the last complete time window for status, and the end of the current one.
    recent: Window,
    shown: Option<(Window, u64)>,
}

impl RequestCounts {
    /// Handles a report of a switch. `tables`: the tables that the switch has installed.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        id: SwitchId,
        matched: u64,
        requests: &[Vec<EntryRequests>],
        tables: &TableSet,
        topology: &Topology,
    ) {
        let fits = |table: &Table| {
            requests.get(*table as usize).is_some_and(|told| told.len() == tables.entries(*table))
        };
        if !Table::ALL.iter().all(fits) {
            return;
        }
        let more = self.since(id, matched, requests, tables);
        let counts_here = |host: HostId| topology.home(host).is_none_or(|home| home == id.0);
        self.turn(now_ns);
        let Some(more) = more else { return };
        for (partition, asked) in by_partition(&more, tables, counts_here) {
            for window in [&mut self.window, &mut self.recent] {
                let sum = window.by_partition.entry(partition).or_default();
                sum.updates += asked.updates;
                asked.reads.iter().for_each(|(node, reads)| *sum.reads.entry(*node).or_default() += reads);
            }
        }
    }

    /// The counts of every entry since the last report; `None` if this is the first one.
    fn since(
        &mut self,
        id: SwitchId,
        matched: u64,
        requests: &[Vec<EntryRequests>],
        tables: &TableSet,
    ) -> Option<Vec<Vec<EntryRequests>>> {
        let keys = |table: Table| tables.rules(table).into_iter().map(move |(matches, _)| (table, matches));
        let told = Table::ALL.into_iter().flat_map(keys).zip(requests.iter().flatten().copied());
        let new = Counted { matched, entries: told.collect() };
        let old = self.switches.insert(id, new)?;
        let before = if matched < old.matched { BTreeMap::new() } else { old.entries };
        let difference = |(key, now): ((Table, Match), &EntryRequests)| {
            let old = before.get(&key).copied().unwrap_or_default();
            match (now.reads.checked_sub(old.reads), now.updates.checked_sub(old.updates)) {
                (Some(reads), Some(updates)) => EntryRequests { reads, updates },
                // A smaller count belongs to a new entry with the same match, so all of it is new.
                _ => *now,
            }
        };
        let of_table = |table: Table| keys(table).zip(&requests[table as usize]).map(difference).collect();
        Some(Table::ALL.map(of_table).into())
    }

    /// Begins a new time window for decisions.
    pub(crate) fn begin_window(&mut self, now_ns: u64) {
        self.window = Window::begun_at(now_ns);
    }

    fn turn(&mut self, now_ns: u64) {
        if now_ns >= self.recent.begun_ns + SHOWN_NS {
            let recent = core::mem::replace(&mut self.recent, Window::begun_at(now_ns));
            self.shown = (recent.begun_ns > 0).then_some((recent, now_ns));
        }
    }

    /// Recent reads and updates of a partition per second.
    pub(crate) fn per_second(&self, id: PartitionId, now_ns: u64) -> Option<(u64, u64)> {
        let (window, end_ns) = self.shown.as_ref().filter(|(_, end_ns)| now_ns < end_ns + 2 * SHOWN_NS)?;
        let elapsed_ns = u128::from(end_ns.saturating_sub(window.begun_ns).max(1));
        let rate = |count: u64| (u128::from(count) * 1_000_000_000 / elapsed_ns) as u64;
        Some(window.of(id).map_or((0, 0), |asked| (rate(asked.reads()), rate(asked.updates))))
    }

    /// Removes partitions that no longer exist.
    pub(crate) fn retain(&mut self, is_partition: impl Fn(PartitionId) -> bool) {
        let shown = self.shown.iter_mut().map(|(window, _)| window);
        for window in shown.chain([&mut self.window, &mut self.recent]) {
            window.by_partition.retain(|id, _| is_partition(*id));
        }
    }
}

/// The counts of entries, added up by partition. `counts_here`: whether requests to this host are
/// counted at this switch.
fn by_partition(
    counted: &[Vec<EntryRequests>],
    tables: &TableSet,
    counts_here: impl Fn(HostId) -> bool,
) -> BTreeMap<PartitionId, Asked> {
    let of = |table: Table| counted[table as usize].iter();
    let mut divided = BTreeMap::<u32, u64>::new();
    let mut all = BTreeMap::<PartitionId, Asked>::new();
    let mut note = |partition: u32, host: HostId, reads: u64, updates: u64| {
        if counts_here(host) && (reads > 0 || updates > 0) {
            let asked = all.entry(PartitionId(partition)).or_default();
            asked.updates += updates;
            if reads > 0 {
                *asked.reads.entry(NodeId(host.0)).or_default() += reads;
            }
        }
    };
    for (entry, count) in tables.division.iter().zip(of(Table::Division)) {
        *divided.entry(entry.partition).or_default() += count.reads;
        note(entry.partition, entry.host, count.reads, 0);
    }
    // A request that matches a division has also matched one of the partition's entries, so its
    // count is subtracted there.
    let mut undivided = |partition: u32, reads: u64| {
        let claimed = divided.entry(partition).or_default();
        let left = reads.saturating_sub(*claimed);
        *claimed = claimed.saturating_sub(reads);
        left
    };
    for (entry, count) in tables.unicast.iter().zip(of(Table::Unicast)) {
        note(entry.partition, entry.host, undivided(entry.partition, count.reads), 0);
    }
    // Both rings have the same blocks of vnodes in the same order.
    for ((entry, of_gets), count) in tables.multicast.iter().zip(&tables.unicast).zip(of(Table::Multicast)) {
        if let Some(first) = entry.members.as_slice().first() {
            note(of_gets.partition, *first, count.reads, count.updates);
        }
    }
    for (entry, count) in tables.record.iter().zip(of(Table::Record)) {
        note(entry.partition, entry.host, undivided(entry.partition, count.reads), 0);
        if let Some(first) = entry.members.as_slice().first() {
            note(entry.partition, *first, 0, count.updates);
        }
    }
    all
}
