//! All messages and their opcodes.

use crate::DecodeError;

/// Invokes a macro with all opcodes: one per message, then additional ones of messages that have
/// several.
macro_rules! for_all_datagrams {
    ($callback:ident) => {
        $callback! {
            /// Client to unicast vnode.
            1 => Get<'a>,
            /// Client to multicast vnode: every operation that changes a key.
            2 => Update<'a>,
            /// Node to client.
            3 => Reply<'a>,
            /// Client to multicast vnode, in a quorum keyspace: asks for the newest version.
            4 => QuorumQuery<'a>,
            /// Client to multicast vnode, in a quorum keyspace: stores a version.
            5 => QuorumStore<'a>,
            /// The answer to both.
            6 => QuorumHeld<'a>,
            /// Several requests to one vnode, or several replies to one client.
            7 => Bundle<'a>,
            /// Client to unicast vnode: asks for keys of a range.
            8 => Scan<'a>,
            /// The answer.
            9 => ScanPiece<'a>,
            /// Client or node to the node that its partition table names: a request.
            10 => Directed<'a>,
            /// The answer if that table is outdated.
            11 => Misdirected,
            /// Client to node, or node to metadata service: asks for the partition table.
            12 => DirectoryQuery,
            /// The answer.
            13 => DirectoryPage<'a>,
            /// A fragment of a long message.
            14 => Fragment<'a>,
            /// Secondary to primary: prepares and decisions that are durable here.
            17 => Acks<'a>,
            /// Primary to every member: decisions, and how far they may be visible.
            18 => Decisions<'a>,
            /// A prepare, passed on by a member that has it.
            19 => Resend<'a>,
            /// Primary of a new epoch to a member: asks for its undecided ops.
            20 => RecoverRequest,
            /// The answer.
            21 => RecoverReply,
            /// Primary to a member: asks for missing prepares or decisions.
            22 => Fetch,
            /// Member that cannot read a key, to another: asks for its entry.
            23 => RepairRequest<'a>,
            /// The answer.
            24 => RepairReply<'a>,
            /// Member to member: digests of a range of keys.
            25 => ScrubPage<'a>,
            /// Member to member, in a quorum keyspace: tombstones to be stored, or forgotten.
            26 => Tombstones<'a>,
            /// The answer.
            27 => TombstonesAck,
            /// Leaving member to its successor, in a quorum keyspace: a version to be stored.
            28 => Entrust<'a>,
            /// The answer.
            29 => Entrusted,
            /// Node of a chain to its successor: logged entries.
            30 => Forwards<'a>,
            /// Node to metadata service: liveness.
            32 => Heartbeat,
            /// Metadata service to node: the serving lease.
            33 => HeartbeatReply,
            /// Metadata service to node: a partition's epoch, members and roles.
            34 => Assign,
            /// The answer.
            35 => AssignAck,
            /// Node to metadata service: a copy is complete, or a peer does not respond.
            36 => Report,
            /// Metadata service to node, on both request paths: liveness.
            37 => Probe,
            /// The answer.
            38 => ProbeReply,
            /// Node to metadata service: statistics for operators.
            39 => Usage,
            /// Node to metadata service: gets by source address.
            40 => Sources,
            /// Node to metadata service: load by partition.
            41 => Heat,
            /// Copy holder of a hot key to unicast vnode, for the switch: the label of its copy.
            42 => HotConfirm,
            /// Primary of a hot key to unicast vnode, for the switch: stop redirecting gets with
            /// older stamps.
            43 => HotClose,
            /// Answer of the switch.
            44 => HotClosed,
            /// Metadata service to the primary of a hot key: where to keep copies.
            45 => HotAssign,
            /// Primary of a hot key to a copy holder: a copy.
            46 => HotCopy<'a>,
            /// Likewise: copies are obsolete.
            47 => HotDrop,
            /// Likewise: a lease for copies.
            48 => HotPulse,
            /// The answer.
            49 => HotPulsed,
            /// Primary of a hot key to unicast vnode, for the switch: a prepared reply.
            50 => HotValue<'a>,
            /// Likewise: a lease for prepared replies.
            51 => HotLease,
            /// Answer of the switch.
            52 => HotLeased,
            /// Client to multicast vnode, or node to client: a chunk of a large value.
            53 => Chunk<'a>,
            /// Replica to client: which chunks have arrived.
            54 => TransferReport,
            /// Client to unicast vnode: asks for chunks.
            55 => ReadChunks,
            /// Initiator to negotiating group: asks for bids, or for a chunk.
            56 => ChunkRequest,
            /// Initiator to negotiating group: the accepted bids.
            57 => ChunkAccept,
            /// Initiator to a target: asks for frames of a chunk.
            58 => ChunkRead,
            /// Target to initiator.
            59 => ChunkAnswer,
            /// Client to multicast vnode: subscribes to a channel or to a pattern.
            60 => Listen<'a>,
            /// The answer.
            61 => Listening,
            /// Client to multicast vnode: publishes a message.
            62 => Publish<'a>,
            /// Node to a subscriber.
            63 => Published<'a>,
            also
            /// A fragment of a long message between nodes.
            31 => PeerFragment is Fragment,
            /// A get that a secondary forwards to the primary.
            16 => ForwardedGet is Get,
            /// A scan that a secondary forwards to the primary.
            15 => ForwardedScan is Scan,
        }
    };
}

macro_rules! opcodes {
    (
        $($(#[$meta:meta])* $code:literal => $message:ident $(<$life:lifetime>)?,)*
        also $($(#[$also_meta:meta])* $also_code:literal => $also:ident is $of:ident,)*
    ) => {
        /// The type of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$meta])* $message = $code,)*
            $($(#[$also_meta])* $also = $also_code,)*
        }

        impl Opcode {
            /// Name and number of each.
            pub(crate) const ALL: &[(&str, u8)] =
                &[$((stringify!($message), $code),)* $((stringify!($also), $also_code),)*];

            pub(crate) fn decode(code: u8) -> Result<Self, DecodeError> {
                match code {
                    $($code => Ok(Self::$message),)*
                    $($also_code => Ok(Self::$also),)*
                    other => Err(DecodeError::UnknownOpcode(other)),
                }
            }
        }
    };
}

for_all_datagrams!(opcodes);

pub(crate) use for_all_datagrams;
