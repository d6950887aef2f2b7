//! The traffic manager: chooses the ports by which a datagram leaves, and the members of a
//! multicast group that get a copy.

use alloc::vec::Vec;

use nicekv_proto::NodeId;
use nicekv_proto::large::receiver_bit;

use crate::{HostId, HostIndex, MemberSet, Places};

/// How a datagram leaves the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// It goes to this host, rewritten for it.
    Host(HostId),
    /// It goes by this port to another switch, unchanged.
    Trunk(u16),
}

impl Hop {
    /// The host, if it is attached to this switch.
    pub fn host(self) -> Option<HostId> {
        match self {
            Self::Host(host) => Some(host),
            Self::Trunk(_) => None,
        }
    }

    pub(crate) fn is_trunk_at(self, port: Option<u16>) -> bool {
        matches!(self, Self::Trunk(own) if Some(own) == port)
    }
}

/// A port that leads to members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EgressPort {
    pub(crate) port: u16,
    pub(crate) hop: Hop,
    /// The places of the members behind this port, if the group is addressed by masks; otherwise
    /// all bits are set.
    places: u16,
}

/// The members of a group that get a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receivers {
    /// Hosts with these [receiver bits](receiver_bit). All trunks get a copy; the switch behind a
    /// trunk knows its own hosts.
    Hosts(u16),
    /// The members in these places, whether attached to this switch or behind a trunk.
    Places(u16),
}

impl EgressPort {
    /// Whether this port leads to some of the receivers.
    pub(crate) fn reaches(&self, receivers: Receivers) -> bool {
        match receivers {
            Receivers::Hosts(bits) => {
                self.hop.host().is_none_or(|host| bits & receiver_bit(NodeId(host.0)) != 0)
            }
            Receivers::Places(places) => self.places & places != 0,
        }
    }

    /// The port that leads to one host.
    pub(crate) fn to(hosts: &HostIndex, id: HostId) -> Self {
        let host = hosts.get(id).expect("validated tables know every host they name");
        let hop = if host.is_remote { Hop::Trunk(host.port) } else { Hop::Host(id) };
        Self { port: host.port, hop, places: u16::MAX }
    }

    /// The ports that lead to the members of a group, each listed once.
    pub(crate) fn to_group(hosts: &HostIndex, members: &MemberSet, places: Option<&Places>) -> Vec<Self> {
        let mut ports: Vec<Self> = match places {
            Some(places) => {
                let masks = places.masks(members);
                masks.map(|(member, places)| Self { places, ..Self::to(hosts, member) }).collect()
            }
            None => members.as_slice().iter().map(|member| Self::to(hosts, *member)).collect(),
        };
        ports.sort_unstable_by_key(|port| port.hop);
        ports.dedup_by(|next, kept| {
            let is_same = next.hop == kept.hop;
            kept.places |= if is_same { next.places } else { 0 };
            is_same
        });
        ports
    }
}

/// The copies of a multicast: one for each port that leads to receivers, except the ingress port
/// (split horizon). Hosts come first, ascending, then trunks.
#[derive(Clone, Debug)]
pub struct Copies<'a> {
    ports: core::slice::Iter<'a, EgressPort>,
    ingress: Option<u16>,
    receivers: Receivers,
}

impl<'a> Copies<'a> {
    pub(crate) fn new(ports: &'a [EgressPort], ingress: Option<u16>, receivers: Receivers) -> Self {
        Self { ports: ports.iter(), ingress, receivers }
    }
}

impl Iterator for Copies<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        let (ingress, receivers) = (self.ingress, self.receivers);
        let next = self.ports.find(|port| Some(port.port) != ingress && port.reaches(receivers));
        next.map(|port| port.hop)
    }
}
