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
    /// Periodic liveness report of a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Heartbeat: Heartbeat {
        header {}
        body {
            /// The sender.
            node: NodeId,
            /// Heartbeats sent without an answer since the last answer that arrived; saturates. It
            /// shows that a node receives nothing, although it can send.
            unanswered: u16,
            /// Free disk space; a node without space cannot become a joiner.
            space: DiskSpace => 3 zeros,
            /// Random number of this process (R9): a restarted process serves nothing until a new
            /// epoch admits it.
            incarnation: u64,
            /// Random number of this storage: a new one means that all data of the node was lost.
            storage: u128,
            /// Send time on the node's boot-time clock; echoed, so that the lease starts at the
            /// send time (R12).
            sent_ns: u64,
            /// Log position that was durable when this process started; 0 if the storage is
            /// volatile. A value below one that the storage has confirmed before proves that the
            /// storage lost data (R18).
            opened: u64,
            /// Log position that is durable now.
            durable: u64,
        }
    }
}

message! {
    /// Grants a serving lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct HeartbeatReply: HeartbeatReply {
        header {}
        body {
            /// Term of the leader.
            term: Term,
            /// Copied from the heartbeat.
            incarnation: u64,
            /// Copied from the heartbeat.
            sent_ns: u64,
            /// The node may answer gets until `sent_ns + lease_ns` on its own clock; 0 grants
            /// nothing.
            lease_ns: u64,
        }
    }
}

/// Part of a lease, in nanoseconds, during which a node answers gets that may have bypassed the
/// switches: two thirds. A service that knows that no switch routes to the node need not wait for
/// the last third (R6); with default settings the two thirds end before the node is suspected.
pub const fn direct_lease_ns(lease_ns: u64) -> u64 {
    lease_ns - lease_ns / 3
}

code! {
    /// How far a member has caught up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MemberState {
        /// Takes part in puts while it copies; answers no gets (R7).
        Joining = 0,
        /// Holds all data and answers gets. An original member in this state may become primary.
        Consistent = 1,
    }
}

code! {
    /// Role of a member in its replica set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MemberRole {
        /// One of the R members that the ring assigns. Data from an earlier membership counts when
        /// it returns (R7).
        Original = 0,
        /// An original member that has never been consistent: data from an earlier membership is
        /// void.
        Newcomer = 1,
        /// Holds all data, is no longer assigned by the ring, and leaves once the R assigned
        /// members are consistent.
        Leaving = 2,
        /// Replaces an absent original member (R8); it holds only what was decided since then.
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
    /// One member of a partition.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Member {
        /// The node.
        node: NodeId,
        /// How far it has caught up.
        state: MemberState,
        /// Its role.
        role: MemberRole,
        /// Address for node-to-node messages (UDP; copy streams use TCP on the same port).
        address: SocketAddrV4 => 2 zeros,
    }
}

impl Member {
    /// Whether it holds all data.
    pub fn holds_all(&self) -> bool {
        self.state == MemberState::Consistent && self.role != MemberRole::Handoff
    }
}

/// Most children of a split, and most parents of a merge (R17).
pub const RESHAPED_MAX: usize = 2;

part! {
    /// A child partition, which takes over keys of its parent (R17).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Child {
        /// Id that no partition has had before.
        partition: PartitionId,
        /// Match values that it will own; after a merge more than the parent's.
        range: MatchRange,
        /// How its keys map to match values.
        order: KeyOrder,
    }
}

part! {
    /// A parent partition, whose keys a child has taken over (R17).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Parent {
        /// Its id.
        partition: PartitionId,
        /// Index of its last decision, which is durable at every member.
        index: u64,
    }
}

message! {
    /// One epoch of a partition: its keys, its members and their roles. A node learns everything
    /// about a partition from this message.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Assign: Assign where is_possible {
        header {}
        body {
            /// Term of the leader; a node refuses older terms.
            term: Term,
            /// Process of the receiver that is addressed (R9).
            incarnation: u64,
            /// The partition.
            partition: PartitionId,
            /// Its epoch.
            epoch: Epoch,
            /// The keyspace that the partition belongs to.
            keyspace: KeyspaceId,
            /// One of the consistent original members.
            primary: NodeId,
            /// Whether removed members can no longer answer gets (R6), so that decisions may be
            /// made visible.
            activated: bool,
            /// At most [`MEMBERS_MAX`]. A receiver that is not listed is no longer a member. Empty:
            /// the keyspace was dropped.
            members: Vec<Member> as List<u8, Member, MEMBERS_MAX>,
            /// R: number of original members, present or absent.
            replicas: u8,
            /// Replication mode. The R of a quorum is `replicas`.
            replication: Replication,
            /// Address in the keyspace's multicast vring that reaches all members of the partition.
            multicast: SocketAddrV4,
            /// Match values that the partition owns.
            range: MatchRange,
            /// How its keys map to match values.
            order: KeyOrder,
            /// The receiver is not a member and must discard its data of the partition, which
            /// nobody needs (R16).
            discard: bool,
            /// Children that the members must form, to replace this partition; empty: discard
            /// children formed so far (R17).
            children: Vec<Child> as List<u8, Child, RESHAPED_MAX>,
            /// The partition accepts no new ops: open ops are decided, then the children replace it
            /// (R17).
            sealed: bool,
            /// Parents that this partition replaces: a consistent member creates it from the
            /// children it has formed (R17).
            parents: Vec<Parent> as List<u8, Parent, RESHAPED_MAX>,
            /// In keyspaces of object names, the oldest stamp that an update may carry (P8); else
            /// 0.
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
    /// A node has applied an [`Assign`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AssignAck: AssignAck {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the node.
            epoch: Epoch,
            /// Process of the node.
            incarnation: u64,
            /// The node.
            node: NodeId,
            /// Whether the node knows that the epoch is activated.
            activated: bool,
            /// The node has discarded all its data of the partition, durably, as this epoch
            /// demanded.
            discarded: bool => 4 zeros,
        }
    }
}

tagged! {
    /// Subject of a [`Report`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReportKind {
        /// The joiner has copied all data and made it durable (R7 step 3).
        1 => CopyDone,
        /// This member has missed two timeouts.
        2 => Accuse(NodeId),
        /// The member needs a new epoch with the same members, in which messages of the old one no
        /// longer count (R14).
        3 => Fence,
        /// The member has formed the partition's children, durably (R17).
        4 => Formed,
        /// From the primary of a sealed epoch: this was the last decision, every member has it
        /// durably, and no op is open (R17).
        5 => Drained(u64),
        /// From the primary: this member lacks decisions that it had confirmed as durable, so its
        /// storage lost data (R18).
        6 => Forgot(NodeId),
        /// The process found this partition on disk and has received no assignment for it: unless
        /// its data is needed, the node should discard it (R16).
        7 => Stray(Replication),
    }
}

message! {
    /// Report of a node to the metadata service, repeated until a newer epoch responds to it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Report: Report {
        header {}
        body {
            /// The partition.
            partition: PartitionId,
            /// The epoch of the node.
            epoch: Epoch,
            /// Process of the node.
            incarnation: u64,
            /// The node.
            node: NodeId,
            /// The subject.
            kind: ReportKind => 5 zeros,
        }
    }
}

/// Most keyspaces in one [`Usage`].
pub const USAGE_KEYSPACES_MAX: usize = 16;

part! {
    /// Statistics of a node about one keyspace, for operators.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KeyspaceUsage {
        /// The keyspace.
        keyspace: KeyspaceId,
        /// Partitions that the node leads and whose keys it has counted.
        partitions: u32,
        /// Keys with a value in these partitions.
        keys: u64,
        /// Total bytes of their keys and values.
        bytes: u64,
        /// Number of these keys with an expiry time.
        expiring: u64,
        /// Mean expiry time in milliseconds since 1970; 0 if no key expires.
        expiry_ms: u64,
        /// Age of the oldest of these counts, in milliseconds; 0 if they are current.
        age_ms: u32,
        /// Gets that the node has received since it started, retransmissions included.
        gets: u64,
        /// Updates that the node has received as primary, likewise.
        updates: u64,
    }
}

message! {
    /// Statistics of a node, sent about once a second. No decision depends on them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Usage: Usage {
        header {}
        body {
            /// The node.
            node: NodeId,
            /// Each keyspace at most once; at most [`USAGE_KEYSPACES_MAX`].
            keyspaces: Vec<KeyspaceUsage> as List<u8, KeyspaceUsage, USAGE_KEYSPACES_MAX> => 5 zeros,
            /// Process of the node.
            incarnation: u64,
            /// Send time on the node's boot-time clock.
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
    /// Gets for one partition from one client address.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SourceGets {
        /// The partition.
        partition: PartitionId,
        /// IPv4 address of the clients, as a number.
        source: u32,
        /// Gets since the last report, retransmissions included.
        gets: u32,
    }
}

message! {
    /// Gets by partition and source address; a node sends some cells with each heartbeat. They are
    /// the input of load balancing (NICE §4.5); loss and duplication only make it less exact.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Sources: Sources {
        header {}
        body {
            /// The node.
            node: NodeId,
            /// Cells with most gets first; at most [`SOURCES_MAX`].
            gets: Vec<SourceGets> as List<u8, SourceGets, SOURCES_MAX> => 5 zeros,
            /// Process of the node.
            incarnation: u64,
            /// Send time on the node's boot-time clock.
            sent_ns: u64,
        }
    }
}
const _: () = assert!(
    Sources::FIXED_BYTES + SOURCES_MAX * size_of::<<SourceGets as crate::codec::Codec>::Layout>()
        <= DATAGRAM_BYTES_MAX
);

message! {
    /// Tests whether a node can receive and send.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Probe: Probe {
        header {}
        body {
            /// Term of the leader.
            term: Term,
            /// Copied into the answer.
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
            /// Process of the node.
            incarnation: u64,
            /// Copied from the probe.
            nonce: u64,
            /// The node.
            node: NodeId => 6 zeros,
        }
    }
}
