//! The topology: the port by which each switch reaches each server. All switches have the same
//! entries, but different ports.
//!
//! Either every server has a link to every switch, at any port; or the switches are connected by
//! *trunks*, and each server is attached to one switch, its *home*. Every other switch reaches the
//! server by the port of the trunk that leads there.
//!
//! ```text
//!   node-0 ══ 1 ┐            ┌ 1 ══ node-2         at switch 0                    at switch 1
//!               ├ switch 0   │                     node-0: port 1                 node-0: port 9, remote
//!   node-1 ══ 2 ┘ 9 ═trunk═ 9 switch 1             node-1: port 2                 node-1: port 9, remote
//!                                                  node-2: port 9, remote         node-2: port 1
//! ```
//!
//! Trunks may be redundant. Those in use form a [spanning tree](crate::SpanningTree), so flooded
//! frames cannot loop; all others are closed.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::HostId;

/// A trunk, identified by the switches at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// The switch with the lower number.
    pub one: u16,
    /// The switch with the higher number.
    pub other: u16,
}

impl Link {
    /// The trunk between two switches, in either order.
    pub fn between(one: u16, other: u16) -> Self {
        Self { one: one.min(other), other: one.max(other) }
    }

    /// Whether `switch` is one of its ends.
    pub fn is_of(self, switch: u16) -> bool {
        self.one == switch || self.other == switch
    }
}

/// Ports of servers and trunks. A server's port that is not set here is the one in its
/// [`Host`](crate::Host).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The port of a server: (switch, server) → port.
    ports: BTreeMap<(u16, HostId), u16>,
    /// The home of a server: the switch that it is attached to.
    pub(crate) homes: BTreeMap<HostId, u16>,
    /// The port of a trunk: (switch, neighbour) → port of the switch.
    pub(crate) trunks: BTreeMap<(u16, u16), u16>,
}

/// Why a topology is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    #[error("switch {switch} has a trunk to switch {neighbour}, which has none to switch {switch}")]
    OneEnded { switch: u16, neighbour: u16 },
    #[error("switch {switch} has a trunk to itself")]
    ToItself { switch: u16 },
    #[error("no path of trunks leads from switch {switch} to switch {other}")]
    Apart { switch: u16, other: u16 },
    #[error("with trunks every server must name the switch it is attached to; host {} names none", host.0)]
    Homeless { host: HostId },
    #[error("port {port} of switch {switch} is used by a trunk and by something else")]
    SharedPort { switch: u16, port: u16 },
}

impl Topology {
    /// Sets the port of `switch` at which the server is attached. A later call overrides an earlier
    /// one.
    pub fn attach(&mut self, switch: u16, host: HostId, port: u16) {
        self.ports.insert((switch, host), port);
    }

    /// Sets the one switch that the server is attached to.
    pub fn set_home(&mut self, host: HostId, home: u16) {
        self.homes.insert(host, home);
    }

    /// Sets the port of `switch` for its trunk to `neighbour`. The other end must be set by another
    /// call. Returns false if the port was already set.
    pub fn connect(&mut self, switch: u16, neighbour: u16, port: u16) -> bool {
        self.trunks.insert((switch, neighbour), port).is_none()
    }

    /// The port of a switch to which a server is attached, if it is set.
    pub fn port(&self, switch: u16, host: HostId) -> Option<u16> {
        self.ports.get(&(switch, host)).copied()
    }

    /// The one switch that a server is attached to, if it is set.
    pub fn home(&self, host: HostId) -> Option<u16> {
        self.homes.get(&host).copied()
    }

    /// Whether there are trunks.
    pub fn has_trunks(&self) -> bool {
        !self.trunks.is_empty()
    }

    /// The port of a switch for its trunk to a neighbour.
    pub fn trunk(&self, switch: u16, neighbour: u16) -> Option<u16> {
        self.trunks.get(&(switch, neighbour)).copied()
    }

    /// The neighbours of a switch, ascending, with the ports of the trunks to them.
    pub fn neighbours(&self, switch: u16) -> impl Iterator<Item = (u16, u16)> {
        self.trunks.range((switch, 0)..=(switch, u16::MAX)).map(|(&(_, neighbour), &port)| (neighbour, port))
    }

    /// All trunks, each once.
    pub fn links(&self) -> impl Iterator<Item = Link> {
        self.trunks.keys().filter(|(one, other)| one < other).map(|&(one, other)| Link::between(one, other))
    }
}
