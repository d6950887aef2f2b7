//! The core in a small deterministic cluster: nodes and switches that follow the protocol, a
//! network that loses and reorders messages, and a store that takes time. `checks` examines every
//! step.

mod assignments;
mod capacity;
mod chains;
mod changes;
mod checks;
mod cluster;
mod collecting;
mod created;
mod divisions;
mod faults;
mod fencing;
mod forged;
mod handoffs;
mod headers_only;
mod hot;
mod keyspaces;
mod migration;
mod node;
mod observed;
mod older_state;
mod puts;
mod refused_tables;
mod regrouping;
mod requests;
mod reshaping;
mod scenarios;
mod space;
mod succession;
mod switch;
mod switches;
mod usage;
