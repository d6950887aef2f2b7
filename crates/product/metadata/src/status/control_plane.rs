//! Status of the instances of the metadata service, and of its peers.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr, SocketAddrV4};

use serde::{Deserialize, Serialize};

/// An instance of the metadata service, as it sees itself and the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlane {
    /// The instance's name.
    pub instance: String,
    /// The kind of store that has the state, in one word.
    pub store: String,
    /// If the store does not answer: for how many milliseconds, and why.
    pub outage: Option<(u64, String)>,
    /// The addresses of all instances for commands.
    pub instances: Vec<SocketAddrV4>,
    /// Recent senders that use the protocol of another release.
    pub other_releases: Vec<OtherReleaseStatus>,
    /// The other instances, and whether this one reaches them.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// Sockets on which the cluster's processes receive, by role, as recently reported.
    #[serde(default)]
    pub listening: Vec<OpenSocket>,
}

/// Another instance of the metadata service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The instance's name.
    pub name: String,
    /// The addresses at which it is expected.
    pub addresses: Vec<SocketAddrV4>,
    /// If the instance does not answer: milliseconds since its last answer or since the first
    /// request, and why. `None`: it answers.
    pub silent: Option<(u64, String)>,
}

/// A socket on which a process receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSocket {
    /// The role of the process that has the socket, such as `node-0`.
    pub role: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The socket's local address.
    pub address: SocketAddr,
    /// The interface to which the socket is bound, if it is bound to one.
    pub device: Option<String>,
    /// The peers that use the socket, and for what.
    pub purpose: String,
    /// How a peer authenticates, if it must.
    pub login: String,
    /// Whether a peer that can reach the address still needs a login to do anything.
    pub is_protected: bool,
}

/// The sockets of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningReport {
    /// The name of the process, which is that of its first role.
    pub process: String,
    /// All sockets on which it receives.
    pub sockets: Vec<OpenSocket>,
}

/// A sender that uses the protocol of another release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherReleaseStatus {
    /// The sender's address.
    pub address: IpAddr,
    /// The name of the protocol: `wire` or `control`.
    pub protocol: String,
    /// The sender's version of the protocol.
    pub version: u8,
    /// The version that this instance uses.
    pub known: u8,
    /// Number of messages received from the sender.
    pub count: u64,
    /// Time since the last message, in milliseconds.
    pub ago_ms: u64,
}
