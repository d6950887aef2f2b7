//! Output ports of multicast groups, and the members of a group of storage targets that each port
//! leads to.

use std::collections::{BTreeMap, BTreeSet};

use nicekv_switch::{HostId, MemberSet, MulticastEntry};

use crate::layout::GroupPlaces;

/// The output ports of a member set, each once, trunks first, as the tc programs expect them. The
/// key has ports, not host ids: a host that moves to another port keeps its id, but needs another
/// group.
pub(crate) type GroupKey = BTreeSet<Receiver>;

/// An output port of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Receiver {
    /// Whether a server is attached, for which copies are rewritten. Otherwise the port is a trunk.
    pub(crate) is_host: bool,
    pub(crate) place: u32,
}

pub(crate) fn group_key(receivers: &BTreeMap<HostId, Receiver>, members: &MemberSet) -> GroupKey {
    members.as_slice().iter().map(|member| receivers[member]).collect()
}

/// The members behind each port of the entry's group, in the order of the ports.
pub(crate) fn places_by_port(entry: &MulticastEntry, receivers: &BTreeMap<HostId, Receiver>) -> GroupPlaces {
    let members = entry.members.as_slice().iter();
    let all = if entry.places.is_some() { 0 } else { u16::MAX };
    let mut by_port: BTreeMap<Receiver, u16> = members.map(|member| (receivers[member], all)).collect();
    for (member, mask) in entry.places.iter().flat_map(|places| places.masks(&entry.members)) {
        *by_port.get_mut(&receivers[&member]).expect("every member has a port") |= mask;
    }
    let mut places = GroupPlaces::default();
    places.masks.iter_mut().zip(by_port.into_values()).for_each(|(place, mask)| *place = mask);
    places
}
