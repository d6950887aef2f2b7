//! The interface of every back end to the controller: the reference pipeline, the user-space
//! switch, and the kernel programs.

use alloc::string::String;
use alloc::vec::Vec;

use nicekv_hotkeys::ConfigError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Counter, Counters, HotConfig, HotEntry, HotError, HotReading, Register, Table, TableError, TableSet,
    TableUpdate,
};

/// A switch whose tables can be set.
pub trait Backend {
    /// A leader of this term is obeyed from now on. Back ends that carry out changes at once need not
    /// know; one that sends them on lets its switch refuse those of older leaders.
    fn obey(&mut self, _term: u64) {}

    /// Replaces all tables, make-before-break. When it returns `Ok`, the new generation forwards
    /// every later packet, and no packet that the old generation matched is still in the switch. On
    /// an error the old generation stays in force.
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError>;

    /// Changes one table of the installed generation, as atomically as [`Self::install`].
    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError>;

    /// Number of entries and hits of each table, in the order of [`Table::ALL`].
    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError>;

    /// Hits of each entry of `table`, in the order of the installed [`TableSet`]. An entry keeps
    /// its count in a new generation that has the same match.
    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError>;

    /// How the switch has stored the entry at this position of a table, in words that an operator
    /// finds in the switch's own tools. `None`: as the entry is shown.
    fn native_entry(&self, _table: Table, _position: usize) -> Option<String> {
        None
    }

    /// Client requests among the hits of each entry, in the same order (TurboKV §5.1). Messages
    /// between nodes in a multicast ring do not count.
    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError>;

    /// The switch's port numbers, ascending; `None` if the switch has no ports and reaches hosts by
    /// their addresses.
    fn ports(&self) -> Option<Vec<u16>> {
        None
    }

    /// All cells of a register.
    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError>;

    /// Sets one cell of a register.
    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError>;

    /// Sets all cells of a register to zero.
    fn reset_register(&mut self, register: Register) -> Result<(), BackendError>;

    /// Configures which keyspaces spread their hot keys, and how hot keys are detected. Setting an
    /// equal configuration changes nothing.
    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError>;

    /// Changes table `hot` ([`HotTable::change`](crate::HotTable::change)). Installing other tables
    /// does not change its entries.
    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError>;

    /// The request counts of hot entries and of candidates. Begins a new counting period for
    /// candidates.
    fn read_hot(&mut self) -> Result<HotReading, BackendError>;

    /// The global counters since the switch started.
    fn counters(&self) -> Result<Counters, BackendError>;
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackendError {
    /// The tables break a rule; nothing was changed.
    #[error(transparent)]
    Refused(#[from] TableError),
    /// Hot entries break a rule; nothing was changed.
    #[error(transparent)]
    HotRefused(#[from] HotError),
    /// The parameters of hot-key detection are out of bounds; nothing was changed.
    #[error(transparent)]
    HotConfigRefused(#[from] ConfigError),
    /// The register has no such cell; nothing was changed.
    #[error("register {} has no cell {cell}", .register.name())]
    NoCell {
        /// The register.
        register: Register,
        /// The requested cell.
        cell: u32,
    },
    /// The platform (for example the kernel) failed; the old tables are in force.
    #[error("{0}")]
    Platform(String),
}

/// Number of client requests that an entry has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRequests {
    /// Gets, scans and quorum queries.
    pub reads: u64,
    /// All requests that change values.
    pub updates: u64,
}

/// Number of entries and hits of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// The table's name, [`Table::name`].
    pub name: String,
    /// Number of installed entries.
    pub entries: u32,
    /// Capacity in entries.
    pub capacity: u32,
    /// Matches since the switch started, including those of entries that have been removed.
    pub hits: u64,
}

impl TableStatus {
    /// The status of every table, given the installed `tables` and the switch's `counters`.
    pub fn list(tables: Option<&TableSet>, counters: &Counters) -> Vec<TableStatus> {
        let status = |table: Table| TableStatus {
            name: table.name().into(),
            entries: tables.map_or(0, |tables| tables.entries(table)) as u32,
            capacity: table.capacity() as u32,
            hits: counters.get(Counter::Hits(table)),
        };
        Table::ALL.map(status).into()
    }
}
