//! The catalogue of the fields that commands and metrics show: each with its name, unit, help, and
//! how it is read from the status.
//!
//! `nicekv status`, `top` and the list commands print fields as columns; the metrics of the
//! metadata service export them with the same help. A field's name is the heading of its column; in
//! a metric with one sample per field, it is the value of a label.

use nicekv_metadata::{
    HealthCounts, HotEntryStatus, HotSwitchStatus, KeyspaceStatus, MigrationStatus, NodeStatus, NodeTarget,
};
use nicekv_switch::TableStatus;

/// How a number is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    PerSecond,
    Percent,
}

impl Unit {
    /// Formats the number for people; the unit is in the field's name, or follows the number.
    pub fn print(self, number: u64) -> String {
        match self {
            Self::Count | Self::PerSecond => number.to_string(),
            Self::Bytes => bytes(number),
            Self::Percent => format!("{number} %"),
        }
    }
}

/// A size for people, in decimal units: 1 kB is 1,000 bytes.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let unit = ((bytes.ilog10() / 3) as usize - 1).min(UNITS.len() - 1);
    format!("{:.1} {}", bytes as f64 / 1000f64.powi(unit as i32 + 1), UNITS[unit])
}

/// A number that can be read from a `T`.
#[derive(Debug)]
pub struct Field<T> {
    pub name: &'static str,
    pub unit: Unit,
    pub help: &'static str,
    pub read: fn(&T) -> u64,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

/// A column of a table: a number, or text.
#[derive(Debug)]
pub enum Column<T> {
    Number(Field<T>),
    Text(&'static str, fn(&T) -> String),
}

impl<T> Column<T> {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Number(field) => field.name,
            Self::Text(name, _) => name,
        }
    }

    /// Whether its cells are aligned to the right.
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    pub fn cell(&self, row: &T) -> String {
        match self {
            Self::Number(Field { unit, read, .. }) => unit.print(read(row)),
            Self::Text(_, read) => read(row),
        }
    }
}

const fn field<T>(name: &'static str, unit: Unit, help: &'static str, read: fn(&T) -> u64) -> Field<T> {
    Field { name, unit, help, read }
}

use Column::{Number, Text};
use Unit::{Bytes, Count, PerSecond, Percent};

/// Partitions by health, best first. Each partition is counted in one of these states.
pub mod health {
    use super::*;

    type Health = Field<HealthCounts>;

    pub const WHOLE: Health = field("whole", Count, "every replica is up to date", |it| it.whole as u64);
    pub const COVERED: Health =
        field("covered", Count, "handoff nodes stand in for members that are away", |it| it.covered as u64);
    pub const REDUCED: Health = field("reduced", Count, "fewer than R copies", |it| it.reduced as u64);
    pub const WAITING: Health =
        field("waiting", Count, "too few nodes for puts; gets continue", |it| it.waiting as u64);
    pub const UNAVAILABLE: Health =
        field("unavailable", Count, "no node with all its data is up", |it| it.unavailable as u64);
    pub const LOST: Health =
        field("lost", Count, "every node with all its data came back empty", |it| it.lost as u64);
    pub const ALL: [Health; 6] = [WHOLE, COVERED, REDUCED, WAITING, UNAVAILABLE, LOST];
}

pub mod keyspace {
    use super::*;

    pub const KEYS: Field<KeyspaceStatus> =
        field("keys", Count, "Keys with a value, as far as they are counted", |it| it.usage.keys);
    pub const BYTES: Field<KeyspaceStatus> =
        field("size", Bytes, "Bytes of keys and values, one copy of each", |it| it.usage.bytes);
    pub const GETS: Field<KeyspaceStatus> = field(
        "gets/s",
        PerSecond,
        "Gets that reached the nodes per second, between their last two reports",
        |it| it.usage.gets_per_second,
    );
    pub const UPDATES: Field<KeyspaceStatus> = field(
        "updates/s",
        PerSecond,
        "Updates that reached the nodes per second, between their last two reports",
        |it| it.usage.updates_per_second,
    );

    pub const COLUMNS: [Column<KeyspaceStatus>; 12] = [
        Text("id", |it| it.id.to_string()),
        Text("keyspace", |it| it.name.clone()),
        Text("replication", |it| match it.write_set {
            Some(write_set) => format!("{} k={write_set}", it.replication),
            None => it.replication.clone(),
        }),
        Text("R", |it| it.replicas.to_string()),
        Text("balancing", |it| it.balancing.clone().unwrap_or_default()),
        Text("partitions whole", |it| format!("{} of {}", it.health.whole, it.partitions)),
        Text("degraded", |it| {
            let degraded = health::ALL.iter().skip(1).filter(|state| (state.read)(&it.health) > 0);
            let degraded = degraded.map(|state| format!("{} {}", (state.read)(&it.health), state.name));
            degraded.collect::<Vec<_>>().join(", ")
        }),
        Number(KEYS),
        Number(BYTES),
        Number(GETS),
        Number(UPDATES),
        Text("virtual rings", |it| format!("{}/16 {}/16", it.unicast, it.multicast)),
    ];
}

pub mod node {
    use super::*;

    pub const MEMBERS: Field<NodeStatus> =
        field("replicas", Count, "Partitions of which it is a member", |it| it.members as u64);
    pub const TARGET: Field<NodeStatus> =
        field("target", Count, "Partitions of which it is to be a member", |it| it.share as u64);
    pub const MISSING: Field<NodeStatus> =
        field("copying", Count, "Partitions that are still being copied to it", |it| it.missing as u64);
    pub const GETS: Field<NodeStatus> =
        field("gets/s", PerSecond, "Gets that reached it per second", |it| it.gets_per_second);

    pub const COLUMNS: [Column<NodeStatus>; 10] = [
        Text("node", |it| it.name.clone()),
        Text("id", |it| it.id.to_string()),
        Text("address", |it| it.address.to_string()),
        Text("state", |it| format!("{:?}", it.state).to_lowercase()),
        Text("change", |it| match it.desired {
            NodeTarget::Holds => String::new(),
            NodeTarget::Drained if it.members == 0 => "drained".into(),
            NodeTarget::Drained => "draining".into(),
            NodeTarget::Removed => "being removed".into(),
        }),
        Number(MEMBERS),
        Number(TARGET),
        Number(MISSING),
        Text("disk", |it| format!("{:?}", it.disk).to_lowercase()),
        Number(GETS),
    ];
}

/// A table of a switch.
pub mod table {
    use super::*;

    pub const ENTRIES: Field<TableStatus> = field("entries", Count, "Entries in use", |it| it.entries.into());
    pub const CAPACITY: Field<TableStatus> =
        field("capacity", Count, "Entries that fit", |it| it.capacity.into());
    pub const FULL: Field<TableStatus> = field("full", Percent, "Entries in use, of those that fit", |it| {
        u64::from(it.entries) * 100 / u64::from(it.capacity.max(1))
    });
    pub const HITS: Field<TableStatus> =
        field("packets", Count, "Packets that matched an entry", |it| it.hits);

    pub const COLUMNS: [Column<TableStatus>; 5] =
        [Text("table", |it| it.name.clone()), Number(ENTRIES), Number(CAPACITY), Number(FULL), Number(HITS)];
}

/// Hot keys of one switch.
pub mod hot {
    use super::*;

    type Switch = Field<HotSwitchStatus>;

    pub const ENTRIES: Switch = field(
        "entries",
        Count,
        "Hot keys with an entry in the switch, including those that it only counts",
        |it| it.entries as u64,
    );
    pub const COPIED: Switch =
        field("copied keys", Count, "Hot keys of which nodes outside their partitions hold copies", |it| {
            it.copied as u64
        });
    pub const COPIES: Switch = field("copies", Count, "Copies of hot keys at nodes", |it| it.copies as u64);
    pub const VALUES: Switch =
        field("in switch", Count, "Hot keys whose gets the switch answers from its own copy", |it| {
            it.values as u64
        });
    pub const THRESHOLD: Switch =
        field("T/s", PerSecond, "Threshold T: a key with more requests per second is copied", |it| {
            it.threshold_per_second
        });
    pub const REQUESTS: Switch =
        field("requests/s", PerSecond, "Requests per second, of all keys", |it| it.requests_per_second);
    pub const SHARE: Switch =
        field("for hot keys", Percent, "Share of requests for keys with an entry", |it| it.hot_percent());
    pub const ANSWERED: Switch =
        field("by switch", Percent, "Share of requests that the switch answered itself", |it| {
            it.answered_percent()
        });
    pub const IMBALANCE: Switch = field(
        "imbalance",
        Percent,
        "Mean deviation of node loads from their average, in percent of it",
        |it| it.imbalance_percent,
    );
    pub const CHANGES: Switch =
        field("changes", Count, "Entries that this leader installed, changed or removed", |it| it.changes);
    pub const REFUSED: Switch = field(
        "unknown keys",
        Count,
        "Counted keys that belong to no keyspace: it was dropped, or the key is made up",
        |it| it.refused,
    );

    pub const COLUMNS: [Column<HotSwitchStatus>; 11] = [
        Text("switch", |it| it.switch.to_string()),
        Number(ENTRIES),
        Number(COPIED),
        Number(COPIES),
        Number(VALUES),
        Number(THRESHOLD),
        Number(REQUESTS),
        Number(SHARE),
        Number(ANSWERED),
        Number(IMBALANCE),
        Number(CHANGES),
    ];

    pub const KEY_COLUMNS: [Column<HotEntryStatus>; 7] = [
        Text("keyspace", |it| it.keyspace.to_string()),
        Text("match value", |it| it.value.clone()),
        Number(field("requests/s", PerSecond, "Requests per second for the key", |it| {
            it.requests_per_second
        })),
        Number(field("by switch/s", PerSecond, "Requests per second that the switch answered", |it| {
            it.answered_per_second
        })),
        Text("owner", |it| it.owner.clone()),
        Text("in switch", |it| if it.in_switch { "yes" } else { "" }.into()),
        Text("copies at", |it| it.holders.join(" ")),
    ];
}

/// Balancing by migration in one keyspace.
pub mod balancing {
    use super::*;

    pub const MOVES: Field<MigrationStatus> = field("move", Count, "moved partitions", |it| it.moves);
    pub const SPLITS: Field<MigrationStatus> = field("split", Count, "split partitions", |it| it.splits);
    pub const MERGES: Field<MigrationStatus> =
        field("merge", Count, "merged pairs of partitions", |it| it.merges);
    pub const STEPS: [Field<MigrationStatus>; 3] = [MOVES, SPLITS, MERGES];
    pub const HOT_KEYS: Field<MigrationStatus> = field(
        "hot keys",
        Count,
        "Match values too hot for any single node, which moving cannot help; `nicekv partition balance` lists them",
        |it| it.hot_keys.len() as u64,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_by_their_unit() {
        assert_eq!([bytes(0), bytes(999), bytes(1000), bytes(11_400)], ["0 B", "999 B", "1.0 kB", "11.4 kB"]);
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
        assert_eq!([Percent.print(95), Count.print(7)], ["95 %", "7"]);
    }

    #[test]
    fn cells_follow_the_catalogue() {
        let table = TableStatus { name: "division".into(), entries: 9, capacity: 10, hits: 3 };
        let cells: Vec<_> = table::COLUMNS.iter().map(|column| column.cell(&table)).collect();
        assert_eq!(cells, ["division", "9", "10", "90 %", "3"]);
        let hot = HotSwitchStatus {
            entries: 7,
            requests_per_second: 1_000,
            hot_per_second: 950,
            ..HotSwitchStatus::default()
        };
        let cells: Vec<_> = hot::COLUMNS.iter().map(|column| column.cell(&hot)).collect();
        assert_eq!(cells, ["0", "7", "0", "0", "0", "0", "1000", "95 %", "0 %", "0 %", "0"]);
    }
}
