//! What an instance of the metadata service says of itself, and of who speaks to it.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// An instance of the metadata service, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlane {
    /// Its name.
    pub instance: String,
    /// Where the state is, in a word.
    pub store: String,
    /// Since when the store does not answer it, in milliseconds, and why.
    pub outage: Option<(u64, String)>,
    /// Where commands reach the instances, this one included.
    pub instances: Vec<SocketAddrV4>,
    /// Who has spoken to it as another release does, a while ago at most.
    pub strangers: Vec<StrangerStatus>,
}

/// A sender of another release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrangerStatus {
    /// Where it is.
    pub address: IpAddr,
    /// What it speaks: wire or control.
    pub protocol: String,
    /// In this version.
    pub version: u8,
    /// Which this instance speaks in this one.
    pub known: u8,
    /// How often it was heard.
    pub count: u64,
    /// When it was heard last, in milliseconds.
    pub ago_ms: u64,
}
