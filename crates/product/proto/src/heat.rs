//! Load and size of a node's partitions: the metadata service decides by them where to split
//! (TurboKV §4.1.2, §5.1).

use crate::codec::List;
use crate::declare::{codec_of, layout, message, part};
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::{NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;

/// Most partitions in a [`Heat`].
pub const HEAT_PARTITIONS_MAX: usize = 12;

part! {
    /// Load and size of a partition, and how the load is distributed over its match values,
    /// estimated from a sample.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PartitionHeat {
        /// The partition.
        partition: PartitionId,
        /// Client requests in the interval.
        requests: u32,
        /// Number of keys; 0 if the node is not primary, or has not counted them.
        keys: u64,
        /// Bytes of keys and values, likewise.
        bytes: u64,
        /// Match value that divides the load into equal halves, as nearly as possible; 0: none.
        cut: u128,
        /// Match value that divides the keys into equal halves; 0: none.
        middle: u128,
        /// Match value with most requests.
        top: u128,
        /// Requests below `cut`, per thousand.
        below_cut: u16,
        /// Requests for `top`, per thousand.
        for_top: u16 => 4 zeros,
    }
}

message! {
    /// Load and size of a node's partitions, some with each heartbeat. A lost report is replaced an
    /// interval later.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Heat: Heat {
        header {}
        body {
            /// The node that reports.
            node: NodeId,
            /// Each partition at most once; at most [`HEAT_PARTITIONS_MAX`].
            partitions: Vec<PartitionHeat> as List<u8, PartitionHeat, HEAT_PARTITIONS_MAX> => 5 zeros,
            /// Process of the node.
            incarnation: u64,
            /// Send time on the node's boot-time clock.
            sent_ns: u64,
        }
    }
}
const _: () = assert!(
    Heat::FIXED_BYTES + HEAT_PARTITIONS_MAX * size_of::<<PartitionHeat as crate::codec::Codec>::Layout>()
        <= DATAGRAM_BYTES_MAX
);
