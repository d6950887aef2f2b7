//! The chain header: the nodes that a request of a chain-replicated keyspace passes (TurboKV §4.2; rule C5).

use crate::bytes::{in_range, reserved_bytes};
use crate::c_layout::{c_type, layout_for_c};
use crate::limits::MEMBERS_MAX;
use crate::{DecodeError, Epoch, PartitionId};
use core::mem::{offset_of, size_of};
use core::net::Ipv4Addr;
use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

layout_for_c! {
    /// The chain header behind the header; zeros until a switch has filled it.
    #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(C)]
    pub(crate) struct ChainLayout {
        /// Partition of the matching record.
        pub(crate) partition: U32,
        /// Its epoch.
        pub(crate) epoch: U32,
        /// Number of nodes that the request passes: the whole chain for an update, only the tail
        /// for a get (TurboKV's `CLength` without the client).
        pub(crate) length: u8,
        /// Zero.
        pub(crate) reserved: [u8; 3],
        /// Addresses of the nodes that the request passes, the next one first.
        pub(crate) nodes: [u8; 36],
    }
}

const _: () = assert!(size_of::<ChainLayout>() == ChainHeader::BYTES);
const _: () = assert!(ChainHeader::BYTES == 12 + 4 * MEMBERS_MAX);

/// Route of a request, written by a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHeader {
    /// Partition of the matching record.
    pub partition: PartitionId,
    /// Its epoch; never 0.
    pub epoch: Epoch,
    length: u8,
    nodes: [Ipv4Addr; MEMBERS_MAX],
}

impl ChainHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = 48;
    /// As sent by a client: not filled by any switch.
    pub const EMPTY: Self = Self {
        partition: PartitionId(0),
        epoch: Epoch(0),
        length: 0,
        nodes: [Ipv4Addr::UNSPECIFIED; MEMBERS_MAX],
    };

    /// A header for these nodes, the next one first; those beyond [`MEMBERS_MAX`] are dropped.
    pub fn new(partition: PartitionId, epoch: Epoch, nodes: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let mut header = Self { partition, epoch, ..Self::EMPTY };
        for (place, node) in header.nodes.iter_mut().zip(nodes) {
            *place = node;
            header.length += 1;
        }
        header
    }

    /// The nodes that the request passes, the next one first.
    pub fn nodes(&self) -> &[Ipv4Addr] {
        &self.nodes[..usize::from(self.length)]
    }

    /// As encoded behind the header.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut nodes = [0; 4 * MEMBERS_MAX];
        nodes.chunks_exact_mut(4).zip(self.nodes()).for_each(|(to, node)| to.copy_from_slice(&node.octets()));
        let layout = ChainLayout {
            partition: self.partition.0.into(),
            epoch: self.epoch.0.into(),
            length: self.length,
            reserved: [0; 3],
            nodes,
        };
        zerocopy::transmute!(layout)
    }

    pub(crate) fn decode(layout: &ChainLayout) -> Result<Self, DecodeError> {
        let length = in_range("chain length", layout.length.into(), 0, MEMBERS_MAX)?;
        reserved_bytes("chain reserved", &layout.reserved)?;
        let (used, unused) = layout.nodes.split_at(4 * length);
        reserved_bytes("chain nodes", unused)?;
        let nodes = used.chunks_exact(4).map(|node| Ipv4Addr::new(node[0], node[1], node[2], node[3]));
        Ok(Self::new(PartitionId(layout.partition.get()), Epoch(layout.epoch.get()), nodes))
    }
}
