//! Batching: several requests in one datagram, a bundle.
//!
//! ```text
//!   next request ──▶ group of its destination and batch key ──▶ one request: sent as it is; several: sent as a bundle
//! ```
//!
//! A client does not know partitions. It knows into how many its keyspaces were divided when it was configured, and which
//! nodes answered lately ([`AnsweringNodes`]). When that is out of date, a bundle reaches nodes that lack some of its keys.
//! They drop these requests, which are then sent again one by one.

mod answering_nodes;
mod get_length;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(crate) use answering_nodes::{AnsweringNodes, BatchKey};
use core::net::SocketAddrV4;
pub(crate) use get_length::GetLength;
use nicekv_proto::bundle::{BUNDLED_BYTES_MAX, Bundle, Common, append_bundled, bundled_bytes};
use nicekv_proto::route::ChainHeader;

/// Maximum bytes of the requests in a bundle. In front of a chain request, the switch needs room
/// for its header (C5).
const BYTES_MAX: usize = BUNDLED_BYTES_MAX - ChainHeader::BYTES;
/// Maximum requests that are grouped before the first datagram is sent.
pub(crate) const LOOKAHEAD_MAX: usize = 256;

/// Requests that share a datagram.
#[derive(Clone, Debug, Default)]
struct Group {
    /// Slot of the first request, by whose digest switches route the datagram.
    leader: u32,
    /// The leader's datagram.
    datagram: Vec<u8>,
    count: usize,
    bundled: Vec<u8>,
}

/// Attributes that all requests of one bundle share.
pub(crate) type Kind = (SocketAddrV4, BatchKey, Common);

/// The groups of requests that are to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batcher {
    groups: VecDeque<(Kind, Group)>,
    /// Buffers for reuse.
    spare: Vec<Group>,
}

impl Batcher {
    /// Whether all groups were sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a slot's request to a group; returns the slot that leads it.
    pub(crate) fn add(&mut self, kind: Kind, slot: u32, datagram: &[u8]) -> u32 {
        let bytes = bundled_bytes(datagram);
        let has_room = |(of, group): &(Kind, Group)| *of == kind && group.bundled.len() + bytes <= BYTES_MAX;
        // Earlier groups of this kind are full, so only the last is checked.
        let known = self.groups.iter().rposition(has_room);
        let index = known.unwrap_or_else(|| {
            let mut group = self.spare.pop().unwrap_or_default();
            group.bundled.clear();
            group.datagram.clear();
            group.datagram.extend_from_slice(datagram);
            self.groups.push_back((kind, Group { leader: slot, count: 0, ..group }));
            self.groups.len() - 1
        });
        let group = &mut self.groups[index].1;
        append_bundled(datagram, &mut group.bundled);
        group.count += 1;
        group.leader
    }

    /// Writes the datagram of the oldest group to `out`. Returns its address and, if the group has
    /// a single request, the slot of that request.
    pub(crate) fn poll(&mut self, out: &mut Vec<u8>) -> Option<(SocketAddrV4, Option<u32>)> {
        let ((to, ..), group) = self.groups.pop_front()?;
        let is_alone = group.count == 1;
        if is_alone {
            out.clear();
            out.extend_from_slice(&group.datagram);
        } else {
            Bundle::encode_with(&group.datagram, out, |out| out.extend_from_slice(&group.bundled));
        }
        let leader = group.leader;
        self.spare.push(group);
        Some((to, is_alone.then_some(leader)))
    }
}
