//! Datagrams between nodes and the metadata service (NICE §4.1; rules R4, R7, R9, R12, R13).

use crate::chunk::Round;
use crate::codec::List;
use crate::declare::{code, codec_of, for_each, layout, message, part, tagged};
pub use crate::disk_space::DiskSpace;
use crate::limits::{DATAGRAM_BYTES_MAX, MEMBERS_MAX};
use crate::{DecodeError, Epoch, KeyOrder, KeyspaceId, MatchRange, NodeId, PartitionId, Replication, Term};
use alloc::vec::Vec;
use core::mem::size_of;
use core::net::SocketAddrV4;

message! {
    /// A node is alive.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Heartbeat: Heartbeat {
        header {}
        body {
            /// Who.
            node: NodeId,
            /// Heartbeats before this one that were sent since the newest answer was heard; stays at its largest value. A node that does
            /// not hear shows by it.
            unanswered: u16,
            /// What its disk has room for: one without room is no joiner.
            space: DiskSpace => 3 zeros,
            /// Random per start of the process (R9): a restarted one answers nothing until it is admitted in a new epoch.
            incarnation: u64,
            /// Random per life of its storage: when it changes, everything that the node held is lost.
            storage: u128,
            /// When it was sent, on the node's own boot-time clock; echoed, so that the lease counts from the sending (R12).
            sent_ns: u64,
            /// Position in the life of its log through which this process found it durable when it started; 0 of a storage that keeps nothing. Less than the storage once
            /// confirmed proves that the storage has forgotten something (R18).
            opened: u64,
            /// Position through which the log is durable now.
            durable: u64,
        }
    }
}

message! {
    /// The serving lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HeartbeatReply: HeartbeatReply {
        header {}
        body {
            /// The leader's term.
            term: Term,
            /// Of the heartbeat.
            incarnation: u64,
            /// Of the heartbeat.
            sent_ns: u64,
            /// The node may answer gets until `sent_ns + lease_ns` on its own clock; 0 grants nothing.
            lease_ns: u64,
        }
    }
}

/// How much of a lease it is, in nanoseconds, in which a node answers gets that may have come past the switches: two thirds. Nobody has to wait for the rest of it who knows
/// that no switch leads to the node (R6); by the defaults this part is over before the node is suspected.
pub const fn direct_lease_ns(lease_ns: u64) -> u64 {
    lease_ns - lease_ns / 3
}

code! {
    /// A member's standing in its replica set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MemberState {
        /// Takes part in puts, still copies, answers no get (R7).
        Joining = 0,
        /// Holds everything that it is to hold; answers gets. An original may become primary.
        Consistent = 1,
    }
}

code! {
    /// What a member is in its replica set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MemberRole {
        /// One of the R that the ring names. What it holds from before counts when it returns (R7).
        Original = 0,
        /// An original that has never been consistent as one: whatever it holds from another time is void.
        Newcomer = 1,
        /// Holds everything, is none of the R any more, and goes when they all do.
        Leaving = 2,
        /// Stands in for an original that is away (R8): it holds only what was decided since.
        Handoff = 3,
    }
}

impl MemberRole {
    /// Whether the member is one of the R.
    pub fn is_original(self) -> bool {
        matches!(self, Self::Original | Self::Newcomer)
    }
}

part! {
    /// One replica of a partition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Member {
        /// Who.
        node: NodeId,
        /// Its standing.
        state: MemberState,
        /// What it is there for.
        role: MemberRole,
        /// Where node-to-node messages reach it (UDP; the copying stream is TCP on the same port).
        address: SocketAddrV4 => 2 zeros,
    }
}

impl Member {
    /// Whether it holds everything.
    pub fn holds_all(&self) -> bool {
        self.state == MemberState::Consistent && self.role != MemberRole::Handoff
    }
}

/// Most partitions that one is divided into, or that become one (R17).
pub const RESHAPED_MAX: usize = 2;

part! {
    /// A partition that is to take over some of another one's keys (R17).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Child {
        /// Under an id that no partition had.
        partition: PartitionId,
        /// What of the keyspace it is to own; of a merge more than the parent's.
        range: MatchRange,
        /// How keys become match values there.
        order: KeyOrder,
    }
}

part! {
    /// A partition whose keys another one has taken over (R17).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Parent {
        /// Which.
        partition: PartitionId,
        /// Its last decision, which every member has forced.
        index: u64,
    }
}

message! {
    /// A partition's epoch: its keys, its replica set and roles. All that a node knows of a partition, it knows from this.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Assign: Assign where is_possible {
        header {}
        body {
            /// The leader's term; a node refuses older ones.
            term: Term,
            /// The process of the receiver that is meant (R9).
            incarnation: u64,
            /// The partition.
            partition: PartitionId,
            /// Its epoch.
            epoch: Epoch,
            /// The keyspace that it is a part of.
            keyspace: KeyspaceId,
            /// One of the consistent original members.
            primary: NodeId,
            /// Whether a removed member can answer no more gets (R6): decisions may be answered and shown.
            activated: bool,
            /// At most [`MEMBERS_MAX`]; without the receiver in it, the receiver is no member any more. None: its keyspace is dropped.
            members: Vec<Member> as List<u8, Member, MEMBERS_MAX>,
            /// R: the partition's original members, here or away.
            replicas: u8,
            /// How the members keep the same. The R of a quorum is `replicas`.
            replication: Replication,
            /// An address of the keyspace's multicast vring, in the partition: what is sent to it reaches all members.
            multicast: SocketAddrV4,
            /// Which of the keyspace's keys the partition owns.
            range: MatchRange,
            /// How keys become match values there.
            order: KeyOrder,
            /// The receiver is no member, and nobody needs what it holds of the partition: it is to discard that (R16).
            discard: bool,
            /// Its members form these, which are to take its place; none: what they have formed is void (R17).
            children: Vec<Child> as List<u8, Child, RESHAPED_MAX>,
            /// No op of a client begins any more: what is open is decided, then the children take its place (R17).
            sealed: bool,
            /// Whose place it takes: a consistent member makes it of what it has formed of them (R17).
            parents: Vec<Parent> as List<u8, Parent, RESHAPED_MAX>,
            /// Where keys are names of objects, the oldest stamp that an update of one may have (P8); else 0.
            stamp_min: Round,
        }
    }
}
const _: () = assert!(
    Assign::FIXED_BYTES
        + MEMBERS_MAX * size_of::<<Member as crate::codec::Codec>::Layout>()
        + RESHAPED_MAX * size_of::<<Child as crate::codec::Codec>::Layout>()
        + RESHAPED_MAX * size_of::<<Parent as crate::codec::Codec>::Layout>()
        <= DATAGRAM_BYTES_MAX
);

impl Assign {
    fn is_possible(&self) -> Result<(), DecodeError> {
        match self.replication.quorum() {
            Some(quorum) if quorum.replicas() != usize::from(self.replicas) => {
                Err(DecodeError::UnknownValue { field: "replicas", value: self.replicas.into() })
            }
            _ if self.sealed && self.children.is_empty() => {
                Err(DecodeError::UnknownValue { field: "sealed", value: 1 })
            }
            _ => Ok(()),
        }
    }
}

message! {
    /// A node has taken up an [`Assign`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AssignAck: AssignAck {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch that it is in.
            epoch: Epoch,
            /// Its process.
            incarnation: u64,
            /// Who.
            node: NodeId,
            /// Whether it knows that the epoch is activated.
            activated: bool,
            /// It holds nothing of the partition any more, durably: it was told to discard it in this epoch.
            discarded: bool => 4 zeros,
        }
    }
}

tagged! {
    /// See [`Report`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReportKind {
        /// The joiner has copied everything and made it durable (R7 step 3).
        1 => CopyDone,
        /// This member has let two timeouts pass.
        2 => Accuse(NodeId),
        /// The member needs an epoch after this one, of the same members: what is said in it counts with nothing that was said before (R14).
        3 => Fence,
        /// The member has formed the partition's children, durably (R17).
        4 => Formed,
        /// The primary of a sealed epoch: this was the partition's last decision, every member has forced it, nothing is open, and nothing is decided any more
        /// (R17).
        5 => Drained(u64),
        /// The primary has seen that this member lacks decisions that it had confirmed as durable: its storage has forgotten something (R18).
        6 => Forgot(NodeId),
        /// The process found this partition on its disk and has been told nothing of it: if nobody needs what it holds, it is to discard that (R16).
        7 => Stray(Replication),
    }
}

message! {
    /// What a node tells the metadata service of its own accord, again and again until a newer epoch answers it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Report: Report {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch that it is in.
            epoch: Epoch,
            /// Its process.
            incarnation: u64,
            /// Who.
            node: NodeId,
            /// What.
            kind: ReportKind => 5 zeros,
        }
    }
}

/// Most keyspaces that a [`Usage`] tells of.
pub const USAGE_KEYSPACES_MAX: usize = 16;

part! {
    /// What a node knows of a keyspace, for operators.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KeyspaceUsage {
        /// Which.
        keyspace: KeyspaceId,
        /// Of its partitions, those that the node leads and whose keys it has counted.
        partitions: u32,
        /// Keys that have a value in these.
        keys: u64,
        /// What keys and values are together.
        bytes: u64,
        /// Of these keys, those that expire.
        expiring: u64,
        /// When they expire on the average, in milliseconds since 1970; 0: none does.
        expiry_ms: u64,
        /// For how long at most these numbers have not been true any more; 0: they are.
        age_ms: u32,
        /// Gets that have come to the node since its start, repeats included.
        gets: u64,
        /// Updates that have come to the node as the one that leads, likewise.
        updates: u64,
    }
}

message! {
    /// What a node stores and is asked, about once a second. Nothing is decided by it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Usage: Usage {
        header {}
        body {
            /// Who.
            node: NodeId,
            /// Each once, at most [`USAGE_KEYSPACES_MAX`].
            keyspaces: Vec<KeyspaceUsage> as List<u8, KeyspaceUsage, USAGE_KEYSPACES_MAX> => 5 zeros,
            /// Its process.
            incarnation: u64,
            /// When it was sent, on the node's own boot-time clock.
            sent_ns: u64,
        }
    }
}
const _: () = assert!(
    Usage::FIXED_BYTES + USAGE_KEYSPACES_MAX * size_of::<<KeyspaceUsage as crate::codec::Codec>::Layout>()
        <= DATAGRAM_BYTES_MAX
);

/// Most cells of a [`Sources`].
pub const SOURCES_MAX: usize = 96;

part! {
    /// How often clients of one address have asked a node for keys of one partition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SourceGets {
        /// The partition.
        partition: PartitionId,
        /// The clients' IPv4 address, as a number.
        source: u32,
        /// Gets since the node told of them last, repeats included.
        gets: u32,
    }
}

message! {
    /// Who asks a node for what: gets by partition and source address, some cells at a heartbeat. Balancing follows from it (NICE §4.5); what is
    /// lost or comes twice makes it less exact, and nothing wrong.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Sources: Sources {
        header {}
        body {
            /// Who.
            node: NodeId,
            /// The most asked first, at most [`SOURCES_MAX`].
            gets: Vec<SourceGets> as List<u8, SourceGets, SOURCES_MAX> => 5 zeros,
            /// Its process.
            incarnation: u64,
            /// When it was sent, on the node's own boot-time clock.
            sent_ns: u64,
        }
    }
}
const _: () = assert!(
    Sources::FIXED_BYTES + SOURCES_MAX * size_of::<<SourceGets as crate::codec::Codec>::Layout>()
        <= DATAGRAM_BYTES_MAX
);

message! {
    /// Asks a node whether it hears and is heard.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Probe: Probe {
        header {}
        body {
            /// The leader's term.
            term: Term,
            /// Echoed.
            nonce: u64 => 8 zeros,
        }
    }
}

message! {
    /// The answer to a [`Probe`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ProbeReply: ProbeReply {
        header {}
        body {
            /// Its process.
            incarnation: u64,
            /// Of the probe.
            nonce: u64,
            /// Who.
            node: NodeId => 6 zeros,
        }
    }
}
