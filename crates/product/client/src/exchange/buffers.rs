//! The buffers of a request.

use crate::large::{About, Large, Put, SharedBytes};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_proto::limits::{DATAGRAM_BYTES_MAX, MEMBERS_MAX, small_value_bytes_max};
use nicekv_proto::quorum::{Quorum, QuorumHeld, Timestamp};
use nicekv_proto::{Datagram, HeaderLayout, KeyDigest, KeyspaceId, MatchRange, NodeId, OpId, Operation};

/// The buffers that an exchange writes to. A slot keeps them for its next request, so that nothing
/// is allocated.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// As in [`Config`](crate::Config).
    message_value_bytes_max: usize,
    /// Where the datagram goes.
    pub(crate) to: SocketAddrV4,
    /// Address to which requests for chunks of a large value are sent.
    pub(crate) unicast: SocketAddrV4,
    /// Vnode of the key.
    pub(crate) vnode: u16,
    /// The keyspace is replicated by chains, so a directory may give the node.
    pub(crate) is_for_chain: bool,
    /// The datagram of the current round.
    pub(crate) datagram: Vec<u8>,
    /// The value of the answer; before the answer, scratch space of the exchange.
    pub(crate) value: Vec<u8>,
    /// The large value that is put or read.
    pub(crate) large: Option<Box<Large>>,
    /// The value of the request that begins, if the caller shares its buffer.
    pub(crate) shared: Option<SharedBytes>,
    /// Where the next datagram is written while the current one is read.
    pub(super) spare: Vec<u8>,
    /// Which replicas have answered, and what they hold.
    pub(super) held: Vec<Held>,
    /// The ranges of a scan's pieces; the pieces are in `value`.
    pub(super) covered: Vec<MatchRange>,
}

/// The durable version of a replica of a quorum keyspace, from its answer.
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

    /// Number of replicas that hold this version or a newer one.
    pub(super) fn holders(&self, timestamp: Timestamp) -> usize {
        self.held.iter().filter(|held| held.timestamp >= timestamp).count()
    }

    /// Records a replica's answer. Returns false if there are too many replicas.
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

    /// Keyspace and key of the current datagram, combined with this op id.
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

    /// After the request is over: frees buffers that are much longer than a datagram.
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

    /// Replaces the datagram by the one that `write` derives from it.
    pub(super) fn rewrite(&mut self, write: impl FnOnce(Datagram<'_>, &[u8], &mut Vec<u8>)) {
        let datagram = Datagram::decode(&self.datagram).expect("encoded here").1;
        write(datagram, &self.value, &mut self.spare);
        core::mem::swap(&mut self.datagram, &mut self.spare);
    }

    /// Whether chunks are being sent to replicas.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.large.as_deref(), Some(Large::Put(put)) if put.is_sending())
    }

    /// Whether no answer is possible before more chunks have arrived at replicas.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.large.as_deref(), Some(Large::Put(put)) if put.is_awaited())
    }
}
