//! Status of the instances of the metadata service, and of its peers.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// An instance of the metadata service, from its own point of view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlane {
    /// Its name.
    pub instance: String,
    /// Where the state is stored, in a word.
    pub store: String,
    /// For how long the store has not answered, in milliseconds, and why.
    pub outage: Option<(u64, String)>,
    /// Addresses for commands, of all instances.
    pub instances: Vec<SocketAddrV4>,
    /// Recent senders that use the protocol of another release.
    pub other_releases: Vec<OtherReleaseStatus>,
    /// The other instances, as this one reaches them.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// Sockets on which the processes of the cluster receive, by role, as recently reported.
    #[serde(default)]
    pub listening: Vec<OpenSocket>,
}

/// Another instance of the metadata service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its expected address.
    pub addresses: Vec<SocketAddrV4>,
    /// Milliseconds since its last answer, or since the first request, and why it does not answer; `None`: it answers.
    pub silent: Option<(u64, String)>,
}

/// A socket on which a process receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSocket {
    /// Its role, such as `node-0`.
    pub role: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Its local address.
    pub address: SocketAddr,
    /// The only interface on which it receives, if it is bound to one.
    pub device: Option<String>,
    /// Its peers, and their purpose.
    pub purpose: String,
    /// How a peer authenticates, if it must.
    pub login: String,
    /// Whether a peer that reaches the address can do nothing without a login.
    pub is_protected: bool,
}

/// The sockets of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningReport {
    /// The process: the name of its first role.
    pub process: String,
    /// All sockets on which it receives.
    pub sockets: Vec<OpenSocket>,
}

/// A sender of another release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherReleaseStatus {
    /// Its address.
    pub address: IpAddr,
    /// The protocol: `wire` or `control`.
    pub protocol: String,
    /// Its version of the protocol.
    pub version: u8,
    /// This instance's version.
    pub known: u8,
    /// Number of messages from it.
    pub count: u64,
    /// Time since the last message, in milliseconds.
    pub ago_ms: u64,
}
