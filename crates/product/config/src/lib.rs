//! The configuration of a cluster in TOML: one file for all roles, or a file for each role, which
//! names the role and has only the settings that the role reads. `nicekv config print cluster`
//! prints the file for all roles.
//!
//! [`read`] reads a file. The schema describes every key once; the checks of single values, the
//! printed [`Template`]s and the [`reference`] page are derived from it. [`problems`] finds
//! contradictions within a file, [`findings`] those between files.

mod across;
pub mod address;
mod binds;
mod bounded;
mod check;
mod cluster;
mod error;
mod gateways;
mod hot;
mod keyspaces;
mod log;
mod read;
mod reference;
mod schema;
mod sections;
mod templates;
#[cfg(test)]
mod tests;
mod topology;

pub use across::{Checked, Finding, findings};
pub use bounded::{ReserveMib, ThreadCount, ValueLimit};
pub use check::{Problem, problems};
pub use cluster::{ClusterConfig, RoleKind};
pub use error::ConfigError;
pub use gateways::GatewaySection;
pub use hot::{HotArguments, HotSection};
pub use keyspaces::{KeyspaceBalancing, KeyspaceSection, ObjectChunks, Partitioning, Replication, protocol};
pub use log::{LogFormat, LogLevel, LogSection};
pub use read::{read, read_with};
pub use reference::reference;
pub use sections::{
    InstanceSection, MacAddress, MetadataSection, NodeSection, PortSection, Store, SwitchKind, SwitchSection,
    TimingSection,
};
pub use templates::Template;
