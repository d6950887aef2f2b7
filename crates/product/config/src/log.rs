//! `[log]`: which events a role logs, and how.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The least severe events that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// No events
    Off,
    /// Failures that end a role
    Error,
    /// Also problems
    Warn,
    /// Also changes: members, primaries, leaders, switches
    #[default]
    Info,
    /// Also every epoch and every generation of switch tables
    Debug,
}

/// The format of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people
    #[default]
    Line,
    /// One JSON object per line, for programs; lines for standard output become events, too
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    pub level: LogLevel,
    pub format: LogFormat,
}
