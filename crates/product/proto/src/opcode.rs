//! The list of all messages, with their opcodes.

use crate::DecodeError;

/// Calls a macro with the opcodes: one of each message, and further ones of messages that have several.
macro_rules! for_all_datagrams {
    ($callback:ident) => {
        $callback! {
            /// Client to unicast vnode.
            1 => Get<'a>,
            /// Client to multicast vnode: every operation that changes a key.
            2 => Update<'a>,
            /// Node to client.
            3 => Reply<'a>,
            /// Client to multicast vnode, of a quorum keyspace: what do you hold?
            4 => QuorumQuery<'a>,
            /// Client to multicast vnode, of a quorum keyspace: hold this.
            5 => QuorumStore<'a>,
            /// The answer to both.
            6 => QuorumHeld<'a>,
            /// Several requests to a vnode, or replies to a client.
            7 => Bundle<'a>,
            /// Client to unicast vnode: what do you hold from here on?
            8 => Scan<'a>,
            /// The answer.
            9 => ScanPiece<'a>,
            /// Client or node to whom a directory names: a request.
            10 => Directed<'a>,
            /// The answer, if the directory is out of date.
            11 => Misdirected,
            /// Client to node, or node to metadata: whom do you name?
            12 => DirectoryQuery,
            /// The answer.
            13 => DirectoryPage<'a>,
            /// A part of a message, from or to a client.
            14 => Fragment<'a>,
            /// Secondary to primary: prepares and decisions that are safe here.
            17 => Acks<'a>,
            /// Primary to every member: what was decided, and what may be shown.
            18 => Decisions<'a>,
            /// A prepare passed on by a member that holds it.
            19 => Resend<'a>,
            /// Primary of a new epoch to a member: what do you hold?
            20 => RecoverRequest,
            /// The answer.
            21 => RecoverReply,
            /// Primary to a member: send me what I lack.
            22 => Fetch,
            /// Member that cannot read a key to one that may.
            23 => RepairRequest<'a>,
            /// The answer.
            24 => RepairReply<'a>,
            /// Member to member: what I have of these keys.
            25 => ScrubPage<'a>,
            /// Member to member, of a quorum keyspace: hold these deletions, or forget them.
            26 => Tombstones<'a>,
            /// The answer.
            27 => TombstonesAck,
            /// Member that leaves, of a quorum keyspace, to its successor: hold this.
            28 => Entrust<'a>,
            /// The answer.
            29 => Entrusted,
            /// Node of a chain to its successor: what is forced here.
            30 => Forwards<'a>,
            /// Node to metadata.
            32 => Heartbeat,
            /// Metadata to node: the serving lease.
            33 => HeartbeatReply,
            /// Metadata to node: a partition's epoch, members and roles.
            34 => Assign,
            /// The answer.
            35 => AssignAck,
            /// Node to metadata: copied everything, or accuses a peer.
            36 => Report,
            /// Metadata to node, both directions of the request path: are you there?
            37 => Probe,
            /// The answer.
            38 => ProbeReply,
            /// Node to metadata: what it stores and is asked, for operators.
            39 => Usage,
            /// Node to metadata: who asks it for what.
            40 => Sources,
            /// Node to metadata: where the load of its partitions lies.
            41 => Heat,
            /// Holder of a hot key to unicast vnode, for the switch: what my copy is.
            42 => HotConfirm,
            /// Primary of a hot key to unicast vnode, for the switch: redirect no more gets by what it has seen.
            43 => HotClose,
            /// The switch's answer.
            44 => HotClosed,
            /// Metadata to the primary of a hot key: where copies are to be.
            45 => HotAssign,
            /// Primary of a hot key to a holder: what is shown.
            46 => HotCopy<'a>,
            /// The same: copies are of no use any more.
            47 => HotDrop,
            /// The same: copies may be shown until then.
            48 => HotPulse,
            /// The answer.
            49 => HotPulsed,
            /// Primary of a hot key to unicast vnode, for the switch: a reply that it may give.
            50 => HotValue<'a>,
            /// The same: replies may be given until then.
            51 => HotLease,
            /// The switch's answer.
            52 => HotLeased,
            /// Client to multicast vnode, node to client: a part of a large value.
            53 => Chunk<'a>,
            /// Replica to client: what is here of one.
            54 => TransferReport,
            /// Client to unicast vnode: send parts of one.
            55 => ReadChunks,
            /// Initiator to negotiating group.
            56 => ChunkRequest,
            /// Initiator to negotiating group: whose bids it takes.
            57 => ChunkAccept,
            /// Initiator to a target that holds a chunk.
            58 => ChunkRead,
            /// Target to initiator.
            59 => ChunkAnswer,
            /// Client to multicast vnode: who listens to a channel, or to a pattern of channels.
            60 => Listen<'a>,
            /// The answer.
            61 => Listening,
            /// Client to multicast vnode: a message to a channel.
            62 => Publish<'a>,
            /// Node to a client that listens.
            63 => Published<'a>,
            also
            /// The same of a message of nodes to nodes.
            31 => PeerFragment is Fragment,
            /// Secondary that cannot answer a get itself, to the primary.
            16 => ForwardedGet is Get,
            /// The same of a scan.
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
