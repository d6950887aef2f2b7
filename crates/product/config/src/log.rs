//! `[log]`: which events a role logs, and how.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The least severe events that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// No events
    Off,
    /// What ends a role
    Error,
    /// Also what is wrong
    Warn,
    /// Also what changes: members, primaries, leaders, switches
    #[default]
    Info,
    /// Also every epoch and every generation of switch tables
    Debug,
}

/// The format of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    #[default]
    Line,
    /// For programs: one JSON object per line; output to standard output becomes events, too
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    pub level: LogLevel,
    pub format: LogFormat,
}
