//! The switch of NICEKV, as a pure model: what its tables hold, what its actions do to a packet, and how a
//! controller talks to it. The back ends (this model behind sockets, XDP) implement [`Backend`] and run the
//! same packet fixtures (crate `nicekv-switch-fixtures`).
//!
//! ```text
//!  frame ─▶ parse ─▶ admit ─┬─ for a vring ─▶ match-action ([`Router`]) ─▶ rewrite ─▶ one port; a scan: as many as it has pieces
//!                    │      │                                           └▶ traffic manager ─▶ rewrite per copy ─▶ ports
//!                    │      └─ others' traffic ─▶ learned forwarding ─▶ one port, or all but the ingress
//!                    └──────▶ not ours to route, or not theirs to send ─▶ drop, counted
//! ```
//!
//! Invariants:
//! - An address inside a vring never reaches learned forwarding, with or without tables (R12).
//! - A vring carries requests, and decisions of nodes; a port sends what its host is ([`stages::admit`]).
//! - Others' traffic leaves byte for byte as it came.
//! - A new generation of tables replaces the old one as a whole, or not at all.
//! - Switches form a tree. What is for a vring crosses a trunk between them as it was sent, at most once, and never back ([`Router`]).
//! - The network holds soft state only: everything here can be lost and reinstalled.
//!
//! Beside the vrings there may be a ring of groups of storage targets, whose addresses say who is meant (Replicast §III).
//!
//! Source: NICE §3.2, §4.2, §4.5.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod coarse;
pub mod control;
mod counters;
mod generation;
mod hot;
mod lpm;
mod pipeline;
mod prefix;
mod records;
mod registers;
mod router;
mod routes;
mod socket;
mod stages;
mod tables;
mod topology;

use alloc::string::String;
use alloc::vec::Vec;

use nicekv_hotkeys::ConfigError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use counters::{COUNTER_COUNT, Counter, Counters};
pub use hot::detection::{HotCandidate, HotConfig, HotCount, HotReading};
pub use hot::{
    HOT_CAPACITY, HOT_GONE, HOT_HOLDERS_MAX, HOT_USUAL_TURNS_MAX, HOT_VALUES_MAX, HotChange, HotEntry,
    HotError, HotTable,
};
pub use pipeline::{Output, PORTS_MAX, Pipeline, Verdict};
pub use prefix::{Prefix, Ring, VNODES, VRINGS_MAX, VringConfig, VringSet};
pub use registers::{REGISTER_CELLS, Register};
pub use router::{Copies, Hop, Route, Router, Sought};
pub use routes::{Failed, Passage, Routes};
pub use socket::Passed;
pub use stages::admit::{
    Ingress, OPCODES_GROUP, OPCODES_MULTICAST, OPCODES_MULTICAST_NODE, OPCODES_NODE, OPCODES_READ,
    OPCODES_REQUEST, OPCODES_SAID, OPCODES_UNICAST, OPCODES_UNICAST_NODE, OPCODES_UPDATE,
};
pub use stages::learn::MAC_CAPACITY;
pub use stages::parse::VLAN_TAGS_MAX;
pub use stages::split::Rest;
pub use tables::{
    Action, CHAIN_NODES_MAX, Chain, Changes, DIVISIONS_MAX, DivisionEntry, Entry, EntryChanges,
    GROUP_CAPACITY, GROUP_LENGTH, GROUP_MEMBERS_MAX, HOST_CAPACITY, Host, HostId, HostIndex, HostRole, Match,
    MemberSet, MulticastEntry, Places, RecordEntry, TABLE_COUNT, Table, TableChange, TableDiff, TableError,
    TableSet, TableUpdate, UnicastEntry, masked_entry, subset_entries,
};
pub use topology::{Link, Topology, TopologyError};

/// A switch whose tables can be set.
pub trait Backend {
    /// Replaces all tables. Make-before-break: when it returns `Ok`, every later packet meets the new
    /// generation and none is still on its way by the old one; on an error the old generation is in force.
    fn install(&mut self, tables: &TableSet) -> Result<(), BackendError>;

    /// Changes one table of the installed generation, as atomically as [`Self::install`] replaces all.
    fn update(&mut self, update: &TableUpdate) -> Result<(), BackendError>;

    /// Fill and hits of each table, in the order of [`Table::ALL`].
    fn table_status(&self) -> Result<Vec<TableStatus>, BackendError>;

    /// Hits of each entry of `table`, in the order of the installed [`TableSet`]. An entry keeps counting
    /// across generations as long as its match stays.
    fn entry_hits(&self, table: Table) -> Result<Vec<u64>, BackendError>;

    /// Of these hits, the requests of clients, likewise: each entry's reads and updates (TurboKV §5.1). What nodes say to each other through a
    /// multicast ring is neither.
    fn entry_requests(&self, table: Table) -> Result<Vec<EntryRequests>, BackendError>;

    /// The ports that it has, ascending; `None`: hosts need none of it, as it reaches them by their addresses.
    fn ports(&self) -> Option<Vec<u16>> {
        None
    }

    /// All cells of a register.
    fn read_register(&self, register: Register) -> Result<Vec<u64>, BackendError>;

    /// Sets one cell of a register.
    fn write_register(&mut self, register: Register, cell: u32, value: u64) -> Result<(), BackendError>;

    /// Sets all cells of a register to zero.
    fn reset_register(&mut self, register: Register) -> Result<(), BackendError>;

    /// Says which keyspaces spread their hot keys, and how these are found; changes nothing if it is the same.
    fn set_hot(&mut self, config: &HotConfig) -> Result<(), BackendError>;

    /// Removes all hot entries if it is to `clear`, else the instances of `removed`, then installs those of `set` ([`HotTable::change`]). Entries outlive generations of
    /// the tables.
    fn change_hot(&mut self, clear: bool, removed: &[u64], set: &[HotEntry]) -> Result<(), BackendError>;

    /// What was counted of hot keys, and of those that could be.
    fn read_hot(&mut self) -> Result<HotReading, BackendError>;

    /// The global counters since the switch started.
    fn counters(&self) -> Result<Counters, BackendError>;
}

/// Why a back end did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackendError {
    /// The tables break a rule; nothing was touched.
    #[error(transparent)]
    Refused(#[from] TableError),
    /// Hot entries break a rule; nothing was touched.
    #[error(transparent)]
    HotRefused(#[from] HotError),
    /// Hot keys cannot be found so; nothing was touched.
    #[error(transparent)]
    HotConfigRefused(#[from] ConfigError),
    /// There is no such cell; nothing was touched.
    #[error("register {} has no cell {cell}", .register.name())]
    NoCell {
        /// The register.
        register: Register,
        /// What was asked for.
        cell: u32,
    },
    /// The platform below failed; the old tables are in force.
    #[error("{0}")]
    Platform(String),
}

/// Datagrams with requests of clients that an entry has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRequests {
    /// Gets and scans, and queries of a quorum.
    pub reads: u64,
    /// What changes values.
    pub updates: u64,
}

/// Fill and hits of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    /// [`Table::name`].
    pub name: String,
    /// Entries installed.
    pub entries: u32,
    /// Entries that fit.
    pub capacity: u32,
    /// Matches since the switch started, also those by entries that are gone.
    pub hits: u64,
}

impl TableStatus {
    /// The status of every table of a switch that holds `tables` and has counted `counters`.
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
