//! Action data of entries whose partition is replicated along a chain: the header that the switch
//! writes into requests (TurboKV §4.1.3, rule C5).
//!
//! ```text
//!   entry ── epoch, [2, 5, 1] ──▶ hosts[2], hosts[5], hosts[1]: their addresses
//! ```
//!
//! Entries refer to nodes by id; the addresses are stored once, in `hosts`. If a node moves, only
//! its host changes, however many chains the node is in.

use core::net::Ipv4Addr;

use nicekv_proto::route::ChainHeader;
use nicekv_proto::{Epoch, PartitionId};
use serde::{Deserialize, Serialize};

use super::host::{HostId, HostIndex};
use crate::CHAIN_NODES_MAX;

/// The chain of a partition in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// The partition.
    pub partition: u32,
    /// The epoch; never 0.
    pub epoch: u32,
    length: u8,
    nodes: [HostId; CHAIN_NODES_MAX],
}

impl Chain {
    /// A chain of these nodes, head first. Nodes beyond [`CHAIN_NODES_MAX`] are left out: no
    /// partition has more members.
    pub fn new(partition: u32, epoch: u32, nodes: impl IntoIterator<Item = HostId>) -> Self {
        let mut chain = Self { partition, epoch, length: 0, nodes: [HostId(0); CHAIN_NODES_MAX] };
        for (place, node) in chain.nodes.iter_mut().zip(nodes) {
            *place = node;
            chain.length += 1;
        }
        chain
    }

    /// The nodes, head first.
    pub fn nodes(&self) -> &[HostId] {
        &self.nodes[..usize::from(self.length).min(CHAIN_NODES_MAX)]
    }

    /// The nodes through which a request passes: all of them for a put, only the tail for a get.
    pub fn passed(&self, is_put: bool) -> &[HostId] {
        let nodes = self.nodes();
        if is_put { nodes } else { &nodes[nodes.len().saturating_sub(1)..] }
    }

    /// The node that receives a request.
    pub(crate) fn receiver(&self, is_put: bool) -> Option<HostId> {
        self.passed(is_put).first().copied()
    }

    /// Whether the chain has an epoch and at least one node, and lists no node twice.
    pub(super) fn is_well_formed(&self) -> bool {
        let nodes = self.nodes();
        let is_once = |(index, node): (usize, &HostId)| !nodes[..index].contains(node);
        self.epoch != 0
            && usize::from(self.length) == nodes.len()
            && !nodes.is_empty()
            && nodes.iter().enumerate().all(is_once)
    }

    /// The header to write into a request.
    pub(crate) fn header(&self, hosts: &HostIndex, is_put: bool) -> ChainHeader {
        let address = |node: &HostId| hosts.get(*node).map_or(Ipv4Addr::UNSPECIFIED, |host| host.ip.into());
        let nodes = self.passed(is_put).iter().map(address);
        ChainHeader::new(PartitionId(self.partition), Epoch(self.epoch), nodes)
    }
}
