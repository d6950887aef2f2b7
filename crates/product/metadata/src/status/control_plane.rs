//! What an instance of the metadata service says of itself, and of who speaks to it.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr, SocketAddrV4};

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
    /// The other instances, as this one reaches them.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// Sockets on which the processes of the cluster receive, by role, as they have reported them a short while ago.
    #[serde(default)]
    pub listening: Vec<OpenSocket>,
}

/// Another instance of the metadata service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Where it should answer.
    pub addresses: Vec<SocketAddrV4>,
    /// Milliseconds since it answered last, or since this instance began to ask, and why it does not; `None`: it answers.
    pub silent: Option<(u64, String)>,
}

/// A socket on which a process receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSocket {
    /// Whose it is, such as `node-0`.
    pub role: String,
    /// tcp or udp.
    pub protocol: String,
    /// Where it is bound.
    pub address: SocketAddr,
    /// The only interface on which it receives, if it is bound to one.
    pub device: Option<String>,
    /// Who uses it, and what for.
    pub purpose: String,
    /// What a peer needs to use it: a password, or nothing.
    pub login: String,
    /// Whether a peer that reaches the address can do nothing without a login.
    pub is_protected: bool,
}

/// What a process reports of its sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningReport {
    /// Which process of its host: the name of its first role.
    pub process: String,
    /// All that it receives on.
    pub sockets: Vec<OpenSocket>,
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
