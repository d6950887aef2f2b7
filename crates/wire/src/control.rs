//! Datagrams between nodes and the metadata service (NICE §4.1; rules R4, R7, R9, R12, R13).

use crate::bytes::{Reader, flag, in_range, put, reserved, reserved_bytes};
use crate::header::{Header, Opcode};
use crate::limits::{DATAGRAM_BYTES_MAX, MEMBERS_MAX};
use crate::quorum::Quorum;
use crate::{DecodeError, Epoch, KeyspaceId, MatchRange, NodeId, Operation, PartitionId, Replication, Term};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::{Ipv4Addr, SocketAddrV4};
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! fixed_message {
    ($(#[$meta:meta])* $name:ident, $opcode:ident) => {
        impl $name {
            /// Writes the datagram to `out`, which is cleared.
            pub fn encode(&self, out: &mut Vec<u8>) {
                Header::internal(Opcode::$opcode).encode(out, |out| put(out, &self.layout()));
            }

            pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
                let mut reader = Reader::new(body);
                let message = Self::from_layout(&reader.layout(stringify!($name))?)?;
                reader.finish(stringify!($name))?;
                Ok(message)
            }
        }
    };
}

/// A node is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who.
    pub node: NodeId,
    /// Random per start of the process (R9): a restarted one answers nothing until it is admitted in a new epoch.
    pub incarnation: u64,
    /// Random per life of its storage: when it changes, everything that the node held is lost.
    pub storage: u128,
    /// When it was sent, on the node's own boot-time clock; echoed, so that the lease counts from the sending (R12).
    pub sent_ns: u64,
    /// Heartbeats before this one that were sent since the newest answer was heard; stays at its largest value. A node that does not
    /// hear shows by it.
    pub unanswered: u16,
    /// What its disk has room for: one without room is no joiner.
    pub space: DiskSpace,
}

/// What a node's disk has room for (docs/FAULTS.md, row 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskSpace {
    /// Everything.
    #[default]
    Enough,
    /// What was set aside: decisions, and deletes, which are how space returns.
    Reserve,
    /// Decisions only, and perhaps not even these.
    Exhausted,
}

impl DiskSpace {
    /// Whether there is room for such an update.
    pub fn admits(self, operation: &Operation<'_>) -> bool {
        match self {
            Self::Enough => true,
            Self::Reserve => matches!(operation, Operation::Delete),
            Self::Exhausted => false,
        }
    }

    fn decode(value: u8) -> Result<Self, DecodeError> {
        match value {
            0 => Ok(Self::Enough),
            1 => Ok(Self::Reserve),
            2 => Ok(Self::Exhausted),
            other => Err(DecodeError::UnknownValue { field: "space", value: other.into() }),
        }
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeartbeatLayout {
    node: U16,
    unanswered: U16,
    space: u8,
    reserved: [u8; 3],
    incarnation: U64,
    storage: [u8; 16],
    sent_ns: U64,
}

impl Heartbeat {
    fn layout(&self) -> HeartbeatLayout {
        HeartbeatLayout {
            node: self.node.0.into(),
            unanswered: self.unanswered.into(),
            space: self.space as u8,
            reserved: [0; 3],
            incarnation: self.incarnation.into(),
            storage: self.storage.to_be_bytes(),
            sent_ns: self.sent_ns.into(),
        }
    }

    fn from_layout(layout: &HeartbeatLayout) -> Result<Self, DecodeError> {
        reserved_bytes("reserved", &layout.reserved)?;
        Ok(Self {
            node: NodeId(layout.node.get()),
            incarnation: layout.incarnation.get(),
            storage: u128::from_be_bytes(layout.storage),
            sent_ns: layout.sent_ns.get(),
            unanswered: layout.unanswered.get(),
            space: DiskSpace::decode(layout.space)?,
        })
    }
}
fixed_message!(Heartbeat, Heartbeat);

/// The serving lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The leader's term.
    pub term: Term,
    /// Of the heartbeat.
    pub incarnation: u64,
    /// Of the heartbeat.
    pub sent_ns: u64,
    /// The node may answer gets until `sent_ns + lease_ns` on its own clock; 0 grants nothing.
    pub lease_ns: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeartbeatReplyLayout {
    term: U64,
    incarnation: U64,
    sent_ns: U64,
    lease_ns: U64,
}

impl HeartbeatReply {
    fn layout(&self) -> HeartbeatReplyLayout {
        HeartbeatReplyLayout {
            term: self.term.0.into(),
            incarnation: self.incarnation.into(),
            sent_ns: self.sent_ns.into(),
            lease_ns: self.lease_ns.into(),
        }
    }

    fn from_layout(layout: &HeartbeatReplyLayout) -> Result<Self, DecodeError> {
        Ok(Self {
            term: Term(layout.term.get()),
            incarnation: layout.incarnation.get(),
            sent_ns: layout.sent_ns.get(),
            lease_ns: layout.lease_ns.get(),
        })
    }
}
fixed_message!(HeartbeatReply, HeartbeatReply);

/// A member's standing in its replica set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Takes part in puts, still copies, answers no get (R7).
    Joining,
    /// Holds everything that it is to hold; answers gets. An original may become primary.
    Consistent,
}

/// One replica of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub node: NodeId,
    /// Its standing.
    pub state: MemberState,
    /// Whether it stands in for an original member that is away (R8): it holds only what was decided since.
    pub handoff: bool,
    /// Where node-to-node messages reach it (UDP; the copying stream is TCP on the same port).
    pub address: SocketAddrV4,
}

/// A partition's epoch: its keys, its replica set and roles. All that a node knows of a partition, it knows from this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    /// The leader's term; a node refuses older ones.
    pub term: Term,
    /// The process of the receiver that is meant (R9).
    pub incarnation: u64,
    /// The partition.
    pub partition: PartitionId,
    /// The keyspace that it is a part of.
    pub keyspace: KeyspaceId,
    /// Which of its keys the partition owns.
    pub range: MatchRange,
    /// How the members keep the same. The R of a quorum is `replicas`.
    pub replication: Replication,
    /// An address of the keyspace's multicast vring, in the partition: what is sent to it reaches all members.
    pub multicast: SocketAddrV4,
    /// Its epoch.
    pub epoch: Epoch,
    /// Whether a removed member can answer no more gets (R6): decisions may be answered and shown.
    pub activated: bool,
    /// One of the consistent original members.
    pub primary: NodeId,
    /// R: the partition's original members, here or away.
    pub replicas: u8,
    /// At most [`MEMBERS_MAX`]; without the receiver in it, the receiver is no member any more.
    pub members: Vec<Member>,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AssignLayout {
    term: U64,
    incarnation: U64,
    partition: U32,
    epoch: U32,
    keyspace: U16,
    primary: U16,
    activated: u8,
    member_count: u8,
    replicas: u8,
    /// See [`Replication`]; `write_set` is k of a quorum, else 0.
    replication: u8,
    write_set: u8,
    reserved: u8,
    multicast_port: U16,
    multicast_ip: [u8; 4],
    first: [u8; 16],
    last: [u8; 16],
}
const _: () = assert!(size_of::<AssignLayout>() == 72);

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct MemberLayout {
    node: U16,
    consistent: u8,
    handoff: u8,
    ip: [u8; 4],
    port: U16,
    reserved2: U16,
}
const _: () = assert!(
    Header::BYTES + size_of::<AssignLayout>() + MEMBERS_MAX * size_of::<MemberLayout>() <= DATAGRAM_BYTES_MAX
);

const MULTICAST: u8 = 0;
const QUORUM: u8 = 1;

impl Assign {
    /// Writes the datagram to `out`, which is cleared.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.members.len() <= MEMBERS_MAX);
        let (replication, write_set) = match self.replication {
            Replication::Multicast => (MULTICAST, 0),
            Replication::Quorum(quorum) => {
                assert_eq!(quorum.replicas(), usize::from(self.replicas));
                (QUORUM, quorum.write_set() as u8)
            }
        };
        Header::internal(Opcode::Assign).encode(out, |out| {
            let layout = AssignLayout {
                term: self.term.0.into(),
                incarnation: self.incarnation.into(),
                partition: self.partition.0.into(),
                epoch: self.epoch.0.into(),
                keyspace: self.keyspace.0.into(),
                primary: self.primary.0.into(),
                activated: self.activated.into(),
                member_count: self.members.len() as u8,
                replicas: self.replicas,
                replication,
                write_set,
                reserved: 0,
                multicast_port: self.multicast.port().into(),
                multicast_ip: self.multicast.ip().octets(),
                first: self.range.first().to_be_bytes(),
                last: self.range.last().to_be_bytes(),
            };
            put(out, &layout);
            for member in &self.members {
                let layout = MemberLayout {
                    node: member.node.0.into(),
                    consistent: (member.state == MemberState::Consistent).into(),
                    handoff: member.handoff.into(),
                    ip: member.address.ip().octets(),
                    port: member.address.port().into(),
                    reserved2: 0.into(),
                };
                put(out, &layout);
            }
        });
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let layout: AssignLayout = reader.layout("assign")?;
        reserved("reserved", layout.reserved.into())?;
        let count = in_range("member_count", layout.member_count.into(), 0, MEMBERS_MAX)?;
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let member: MemberLayout = reader.layout("member")?;
            let consistent = flag("consistent", member.consistent)?;
            reserved("reserved", member.reserved2.get().into())?;
            members.push(Member {
                node: NodeId(member.node.get()),
                state: if consistent { MemberState::Consistent } else { MemberState::Joining },
                handoff: flag("handoff", member.handoff)?,
                address: SocketAddrV4::new(Ipv4Addr::from(member.ip), member.port.get()),
            });
        }
        reader.finish("assign")?;
        Ok(Self {
            term: Term(layout.term.get()),
            incarnation: layout.incarnation.get(),
            partition: PartitionId(layout.partition.get()),
            keyspace: KeyspaceId(layout.keyspace.get()),
            range: layout.range()?,
            replication: layout.replication()?,
            multicast: SocketAddrV4::new(Ipv4Addr::from(layout.multicast_ip), layout.multicast_port.get()),
            epoch: Epoch(layout.epoch.get()),
            activated: flag("activated", layout.activated)?,
            primary: NodeId(layout.primary.get()),
            replicas: layout.replicas,
            members,
        })
    }
}

impl AssignLayout {
    fn range(&self) -> Result<MatchRange, DecodeError> {
        let refused = DecodeError::UnknownValue { field: "last", value: self.last[0].into() };
        let (first, last) = (u128::from_be_bytes(self.first), u128::from_be_bytes(self.last));
        MatchRange::new(first, last).map_err(|_| refused)
    }

    fn replication(&self) -> Result<Replication, DecodeError> {
        match self.replication {
            MULTICAST => {
                reserved("write_set", self.write_set.into())?;
                Ok(Replication::Multicast)
            }
            QUORUM => {
                let refused = DecodeError::UnknownValue { field: "write_set", value: self.write_set.into() };
                let quorum = Quorum::new(self.replicas, self.write_set).map_err(|_| refused)?;
                Ok(Replication::Quorum(quorum))
            }
            other => Err(DecodeError::UnknownValue { field: "replication", value: other.into() }),
        }
    }
}

/// A node has taken up an [`Assign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignAck {
    /// Who.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u64,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that it is in.
    pub epoch: Epoch,
    /// Whether it knows that the epoch is activated.
    pub activated: bool,
}

/// What a node tells the metadata service of its own accord, again and again until a newer epoch answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Who.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u64,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that it is in.
    pub epoch: Epoch,
    /// What.
    pub kind: ReportKind,
}

/// See [`Report`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The joiner has copied everything and made it durable (R7 step 3).
    CopyDone,
    /// This member has let two timeouts pass.
    Accuse(NodeId),
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct NodeStateLayout {
    partition: U32,
    epoch: U32,
    incarnation: U64,
    node: U16,
    accused: U16,
    kind: u8,
    reserved: [u8; 3],
}
const _: () = assert!(size_of::<NodeStateLayout>() == 24);

impl AssignAck {
    fn layout(&self) -> NodeStateLayout {
        NodeStateLayout {
            node: self.node.0.into(),
            partition: self.partition.0.into(),
            epoch: self.epoch.0.into(),
            incarnation: self.incarnation.into(),
            kind: self.activated.into(),
            reserved: [0; 3],
            accused: 0.into(),
        }
    }

    fn from_layout(layout: &NodeStateLayout) -> Result<Self, DecodeError> {
        reserved_bytes("reserved", &layout.reserved)?;
        reserved("accused", layout.accused.get().into())?;
        Ok(Self {
            node: NodeId(layout.node.get()),
            incarnation: layout.incarnation.get(),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            activated: flag("activated", layout.kind)?,
        })
    }
}
fixed_message!(AssignAck, AssignAck);

impl Report {
    fn layout(&self) -> NodeStateLayout {
        let (kind, accused) = match self.kind {
            ReportKind::CopyDone => (1, NodeId(0)),
            ReportKind::Accuse(node) => (2, node),
        };
        NodeStateLayout {
            node: self.node.0.into(),
            partition: self.partition.0.into(),
            epoch: self.epoch.0.into(),
            incarnation: self.incarnation.into(),
            kind,
            reserved: [0; 3],
            accused: accused.0.into(),
        }
    }

    fn from_layout(layout: &NodeStateLayout) -> Result<Self, DecodeError> {
        reserved_bytes("reserved", &layout.reserved)?;
        Ok(Self {
            node: NodeId(layout.node.get()),
            incarnation: layout.incarnation.get(),
            partition: PartitionId(layout.partition.get()),
            epoch: Epoch(layout.epoch.get()),
            kind: match layout.kind {
                1 => {
                    reserved("accused", layout.accused.get().into())?;
                    ReportKind::CopyDone
                }
                2 => ReportKind::Accuse(NodeId(layout.accused.get())),
                other => return Err(DecodeError::UnknownValue { field: "kind", value: other.into() }),
            },
        })
    }
}
fixed_message!(Report, Report);

/// Asks a node whether it hears and is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The leader's term.
    pub term: Term,
    /// Echoed.
    pub nonce: u64,
}

/// The answer to a [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeReply {
    /// Who.
    pub node: NodeId,
    /// Its process.
    pub incarnation: u64,
    /// Of the probe.
    pub nonce: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ProbeLayout {
    first: U64,
    nonce: U64,
    node: U16,
    reserved: [u8; 6],
}

impl Probe {
    fn layout(&self) -> ProbeLayout {
        ProbeLayout { first: self.term.0.into(), nonce: self.nonce.into(), node: 0.into(), reserved: [0; 6] }
    }

    fn from_layout(layout: &ProbeLayout) -> Result<Self, DecodeError> {
        reserved("node", layout.node.get().into())?;
        reserved_bytes("reserved", &layout.reserved)?;
        Ok(Self { term: Term(layout.first.get()), nonce: layout.nonce.get() })
    }
}
fixed_message!(Probe, Probe);

impl ProbeReply {
    fn layout(&self) -> ProbeLayout {
        ProbeLayout {
            first: self.incarnation.into(),
            nonce: self.nonce.into(),
            node: self.node.0.into(),
            reserved: [0; 6],
        }
    }

    fn from_layout(layout: &ProbeLayout) -> Result<Self, DecodeError> {
        reserved_bytes("reserved", &layout.reserved)?;
        Ok(Self {
            node: NodeId(layout.node.get()),
            incarnation: layout.first.get(),
            nonce: layout.nonce.get(),
        })
    }
}
fixed_message!(ProbeReply, ProbeReply);
