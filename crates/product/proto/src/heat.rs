//! What a node's partitions are asked, and hold, so that the metadata service knows where to split them (TurboKV §4.1.2, §5.1).

use crate::codec::List;
use crate::declare::{codec_of, layout, message, part};
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::{NodeId, PartitionId};
use alloc::vec::Vec;
use core::mem::size_of;

/// Most partitions that a [`Heat`] tells of.
pub const HEAT_PARTITIONS_MAX: usize = 12;

part! {
    /// Of a partition: how what is asked lies among its match values. What is in parts of a thousand is of a sample.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PartitionHeat {
        /// Which.
        partition: PartitionId,
        /// Requests that the node has had for it, those of clients, within the interval.
        requests: u32,
        /// Keys that have a value; 0 if the node does not lead it, or has not counted them.
        keys: u64,
        /// What keys and values are together, likewise.
        bytes: u64,
        /// The match value at which a second half would begin that is asked as often as the first one, as nearly as can be; 0: there is none.
        cut: u128,
        /// The same of halves that hold as many keys.
        middle: u128,
        /// The match value that is asked most.
        top: u128,
        /// Of a thousand requests those for values below `cut`.
        below_cut: u16,
        /// Of a thousand requests those for `top`.
        for_top: u16 => 4 zeros,
    }
}

message! {
    /// What a node's partitions are asked and hold, some at a heartbeat. What is lost is told again an interval later.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Heat: Heat {
        header {}
        body {
            /// Who.
            node: NodeId,
            /// Each once, at most [`HEAT_PARTITIONS_MAX`].
            partitions: Vec<PartitionHeat> as List<u8, PartitionHeat, HEAT_PARTITIONS_MAX> => 5 zeros,
            /// Its process.
            incarnation: u64,
            /// When it was sent, on the node's own boot-time clock.
            sent_ns: u64,
        }
    }
}
const _: () = assert!(
    Heat::FIXED_BYTES + HEAT_PARTITIONS_MAX * size_of::<<PartitionHeat as crate::codec::Codec>::Layout>()
        <= DATAGRAM_BYTES_MAX
);
