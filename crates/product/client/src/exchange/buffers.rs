//! The buffers of a request.

use crate::large::{About, Large, Put, SharedBytes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, MEMBERS_MAX, small_value_bytes_max};
use nicekv_proto::quorum::{Quorum, QuorumHeld, Timestamp};
use nicekv_proto::{Datagram, HeaderLayout, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId, Operation};

/// What an exchange writes to. A slot keeps it for its next request, so nothing is allocated.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// See [`Config`](crate::Config).
    message_value_bytes_max: usize,
    /// Where the datagram goes.
    pub(crate) to: SocketAddrV4,
    /// Where chunks of a large value are requested.
    pub(crate) unicast: SocketAddrV4,
    /// Vnode of the key.
    pub(crate) vnode: u16,
    /// The keyspace is replicated by chains, so a directory tells the node.
    pub(crate) is_for_chain: bool,
    /// The datagram of the present round.
    pub(crate) datagram: Vec<u8>,
    /// The value of the answer; before it, whatever the exchange needs.
    pub(crate) value: Vec<u8>,
    /// The large value that is put or read.
    pub(crate) large: Option<Box<Large>>,
    /// The value of the request that begins, if its caller shares it.
    pub(crate) shared: Option<SharedBytes>,
    /// The next datagram while the present one is read.
    pub(super) spare: Vec<u8>,
    /// Which replicas have answered, and what they hold.
    pub(super) held: Vec<Held>,
    /// The ranges of the pieces of a scan, which are in `value`.
    pub(super) covered: Vec<MatchRange>,
}

/// What a replica of a quorum keyspace holds durably, by its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) node: NodeId,
    pub(super) timestamp: Timestamp,
    pub(super) floor: u64,
}

impl Buffers {
    pub(crate) fn new(message_value_bytes_max: usize) -> Self {
        let to = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let (datagram, value, large, shared, spare, held, covered) = Default::default();
        let (vnode, is_for_chain) = (0, false);
        Self {
            message_value_bytes_max,
            to,
            unicast: to,
            vnode,
            is_for_chain,
            datagram,
            value,
            large,
            shared,
            spare,
            held,
            covered,
        }
    }

    /// Replicas that hold this version or a newer one.
    pub(super) fn holders(&self, timestamp: Timestamp) -> usize {
        self.held.iter().filter(|held| held.timestamp >= timestamp).count()
    }

    /// Notes a replica's answer; false if there are too many replicas.
    pub(super) fn note_held(&mut self, answer: &QuorumHeld<'_>) -> bool {
        let QuorumHeld { node, timestamp, floor, .. } = *answer;
        if let Some(known) = self.held.iter_mut().find(|held| held.node == node) {
            (known.timestamp, known.floor) = (known.timestamp.max(timestamp), known.floor.max(floor));
            return true;
        }
        let has_room = self.held.len() < MEMBERS_MAX;
        if has_room {
            self.held.push(Held { node, timestamp, floor });
        }
        has_room
    }

    /// Keyspace and key of the present datagram, with this op id.
    pub(super) fn about(&self, op: OpId) -> About {
        let header = HeaderLayout::peek(&self.datagram).expect("encoded here");
        About { keyspace: KeyspaceId(header.keyspace.get()), op, digest: KeyDigest(header.digest) }
    }

    /// Prepares to put an operation's value in chunks if it is too long for a message. Returns the reference that the
    /// message carries in its place. `quorum` is that of a quorum keyspace (R14).
    pub(super) fn keep_large(
        &mut self,
        about: About,
        key: &[u8],
        operation: &Operation<'_>,
        quorum: Option<Quorum>,
    ) -> Option<Vec<u8>> {
        let (Operation::Set { value, .. } | Operation::Append(value)) = operation else { return None };
        let is_whole = quorum.is_none() && value.len() <= self.message_value_bytes_max;
        if is_whole || value.len() <= small_value_bytes_max(key.len()) {
            return None;
        }
        let put = Put::new(about, SharedBytes::of(value, self.shared.as_ref()), quorum);
        let reference = put.reference().bytes();
        self.large = Some(Box::new(Large::Put(put)));
        Some(reference)
    }

    /// Frees buffers that are much longer than a datagram: the request is over.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        for buffer in [&mut self.datagram, &mut self.spare] {
            if buffer.capacity() > 2 * DATAGRAM_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
    }

    pub(super) fn set_value(&mut self, value: &[u8]) {
        self.value.clear();
        self.value.extend_from_slice(value);
    }

    /// Replaces the datagram by the one that `write` makes of it.
    pub(super) fn rewrite(&mut self, write: impl FnOnce(Datagram<'_>, &[u8], &mut Vec<u8>)) {
        let datagram = Datagram::decode(&self.datagram).expect("encoded here").1;
        write(datagram, &self.value, &mut self.spare);
        core::mem::swap(&mut self.datagram, &mut self.spare);
    }

    /// Whether chunks are under way to replicas.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.large.as_deref(), Some(Large::Put(put)) if put.is_sending())
    }

    /// Whether there can be no answer before more chunks have arrived.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.large.as_deref(), Some(Large::Put(put)) if put.is_awaited())
    }
}
