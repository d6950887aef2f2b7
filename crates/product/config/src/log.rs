//! `[log]`: which events a role writes, and how.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The least severe events that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing
    Off,
    /// What ends a role
    Error,
    /// And what is wrong
    Warn,
    /// And what changes: members, primaries, leaders, switches
    #[default]
    Info,
    /// And every epoch, and every generation of tables
    Debug,
}

/// The format of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    #[default]
    Line,
    /// An object a line, for programs; then what is else said on standard output is an event, too
    Json,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    pub level: LogLevel,
    pub format: LogFormat,
}
