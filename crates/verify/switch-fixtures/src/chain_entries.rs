//! The table entries of chains. [`chains`](crate::chains) lists the chains.

use crate::Prefix;
use nicekv_switch::{Chain, HostId, MemberSet, MulticastEntry, UnicastEntry};

pub(super) const BY_VNODE: [u16; 3] = [1, 2, 3];
pub(super) const BY_RECORD: [u16; 3] = [3, 1, 2];
/// A chain at a switch with trunks: its head is behind a trunk.
pub(super) const ACROSS: [u16; 2] = [3, 1];

pub(super) fn chain(partition: u32, epoch: u32, nodes: &[u16]) -> Chain {
    Chain::new(partition, epoch, nodes.iter().copied().map(HostId))
}

/// The two entries of a chain: for gets and for puts.
pub(super) fn entries(partition: u32, epoch: u32, nodes: &[u16]) -> (UnicastEntry, MulticastEntry) {
    let (head, tail) = (HostId(nodes[0]), HostId(nodes[nodes.len() - 1]));
    let chain = Some(chain(partition, epoch, nodes));
    let (unicast, multicast) = (Prefix::new([10, 10, 4, 0], 24), Prefix::new([10, 11, 4, 0], 24));
    (
        UnicastEntry { destination: unicast, partition, host: tail, chain },
        MulticastEntry { destination: multicast, members: MemberSet::new([head]), chain, places: None },
    )
}
