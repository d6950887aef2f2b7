//! The commands that operate a running cluster: data (`put`, `get`, `scan`, `object`, `backup`),
//! inspection (`status`, `top`, `explain`, `trace`) and changes (`node`, `keyspace`, `partition`).
//!
//! [`discovery`] finds the cluster, [`admin`] sends requests to its metadata service, [`client`]
//! opens a native client; each further module is a command.

pub mod admin;
pub mod backup;
mod balance;
pub mod client;
pub mod discovery;
pub mod explain;
pub mod failure;
pub mod groups;
mod hot_keys;
pub mod keyspaces;
mod lab;
pub mod nodes;
pub mod objects;
mod open_sockets;
pub mod output;
pub mod partitions;
pub mod plan;
mod problems;
mod progress;
pub mod scan;
pub mod status;
mod table;
mod tables;
pub mod top;
pub mod trace;
pub mod values;
