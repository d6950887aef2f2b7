//! The switch of NICEKV as a pure model: match tables, actions and control protocol, in the
//! structure of a P4 program. The back ends are this model, run on frames or datagrams, and the
//! kernel programs (crate `nicekv-switch-xdp`). All back ends implement [`Backend`] and pass the
//! same packet fixtures (crate `nicekv-switch-fixtures`).
//!
//! ```text
//!  frame ─▶ parser ─▶ admission ─┬─ for a vring ─▶ match-action ─▶ hot keys ─▶ traffic manager ─▶ deparser per copy ─▶ ports
//!                         │      └─ other traffic ─▶ MAC table ─▶ one port, or all but the ingress port
//!                         └──────── refused ─▶ dropped, counted
//! ```
//!
//! | stage | module |
//! | --- | --- |
//! | parser, deparser | `parser`, `deparser` |
//! | ingress access control | `admission` |
//! | match-action tables | `tables` (entries, validation, updates), `compiled` with `lpm` and `range_match`, `match_action` |
//! | table of hot keys, with registers | `hot` |
//! | splitting scans by recirculation | `scan_split` |
//! | traffic manager | `traffic_manager` |
//! | whole pipelines | `router` (state), `datagram` (on datagrams), `pipeline` (on frames) |
//! | control plane | `backend`, [`control`], `topology`, `spanning_tree`, `placement`, `aggregate` |
//!
//! Invariants:
//! - A datagram to an address inside a vring is never forwarded by MAC address, with or without
//!   tables (R12).
//! - Vrings carry only requests of clients and messages of nodes. What a port may send depends on
//!   the host attached to it.
//! - Other traffic leaves byte for byte as it arrived.
//! - A new generation of tables replaces the old one as a whole, or not at all.
//! - Switches form a tree. A datagram for a vring crosses a trunk between them unchanged, at most
//!   once, and never back.
//! - The switch holds soft state only: everything here can be lost and reinstalled.
//!
//! Besides the vrings there may be a ring of groups of storage targets. Its addresses select
//! members of a group (Replicast §III).
//!
//! Source: NICE §3.2, §4.2, §4.5.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod admission;
mod aggregate;
mod backend;
mod compiled;
pub mod control;
mod counters;
mod datagram;
mod deparser;
mod forwarding;
mod hot;
mod limits;
mod lpm;
mod mac_table;
mod match_action;
mod matching;
mod parser;
mod pipeline;
mod placement;
mod prefix;
mod range_match;
mod registers;
mod router;
mod scan_split;
mod spanning_tree;
mod tables;
mod topology;
mod traffic_manager;
mod vring;

pub use admission::{
    Ingress, OPCODES_GROUP, OPCODES_MULTICAST, OPCODES_MULTICAST_NODE, OPCODES_NODE, OPCODES_READ,
    OPCODES_REQUEST, OPCODES_SWITCH, OPCODES_UNICAST, OPCODES_UNICAST_NODE, OPCODES_UPDATE,
};
pub use backend::{Backend, BackendError, EntryRequests, TableStatus};
pub use counters::{COUNTER_COUNT, Counter, Counters};
pub use datagram::DatagramVerdict;
pub use forwarding::{LookupKey, Route};
pub use hot::detection::{HotCandidate, HotConfig, HotCount, HotReading};
pub use hot::{
    HOT_CAPACITY, HOT_GONE, HOT_HOLDERS_MAX, HOT_OWNER_TURNS_MAX, HOT_VALUES_MAX, HotChange, HotEntry,
    HotError, HotTable,
};
pub use limits::{
    CHAIN_NODES_MAX, DIVISIONS_MAX, GROUP_CAPACITY, GROUP_MEMBERS_MAX, HOST_CAPACITY, PORTS_MAX, VRINGS_MAX,
};
pub use mac_table::{MAC_CAPACITY, MacTable};
pub use matching::Matching;
pub use parser::{VLAN_TAGS_MAX, is_station};
pub use pipeline::{Output, Pipeline, Verdict};
pub use prefix::Prefix;
pub use registers::{REGISTER_CELLS, Register};
pub use router::Router;
pub use scan_split::ScanRest;
pub use spanning_tree::{SpanningTree, TreeTransition, TrunkFailures};
pub use tables::{
    Action, Chain, Changes, DivisionEntry, Entry, EntryChanges, GROUP_LENGTH, Host, HostId, HostIndex,
    HostRole, Match, MemberSet, MulticastEntry, Places, RecordEntry, TABLE_COUNT, Table, TableChange,
    TableDiff, TableError, TableSet, TableUpdate, UnicastEntry, masked_entry, subset_entries,
};
pub use topology::{Link, Topology, TopologyError};
pub use traffic_manager::{Copies, Hop};
pub use vring::{Ring, VNODES, VringConfig, VringSet};
