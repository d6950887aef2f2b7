//! The core under a small deterministic world: nodes and switches that do what the protocol asks of them, a network that
//! loses and reorders, a store that takes its time. `checks` looks after every step.

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
