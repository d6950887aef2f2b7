//! The one entry for received bytes: a datagram is decoded strictly, by its opcode.

use crate::bundle::Bundle;
use crate::chain::Forwards;
use crate::chunk::{ChunkAccept, ChunkAnswer, ChunkRead, ChunkRequest};
use crate::control::{
    Assign, AssignAck, Heartbeat, HeartbeatReply, Probe, ProbeReply, Report, Sources, Usage,
};
use crate::declare::Message;
use crate::directory::{Directed, DirectoryPage, DirectoryQuery, Misdirected};
use crate::fragment::Fragment;
use crate::header::Header;
use crate::heat::Heat;
use crate::hot::{
    HotAssign, HotClose, HotClosed, HotConfirm, HotCopy, HotDrop, HotLease, HotLeased, HotPulse, HotPulsed,
    HotValue,
};
use crate::large::{Chunk, ReadChunks, TransferReport};
use crate::opcode::for_all_datagrams;
use crate::publish::{Listen, Listening, Publish, Published};
use crate::quorum::{Entrust, Entrusted, QuorumHeld, QuorumQuery, QuorumStore, Tombstones, TombstonesAck};
use crate::recovery::{Fetch, RecoverReply, RecoverRequest};
use crate::repair::{RepairReply, RepairRequest};
use crate::replication::{Acks, Decisions, Resend};
use crate::scan::{Scan, ScanPiece};
use crate::scrub::ScrubPage;
use crate::{DecodeError, Get, Opcode, Reply, Update};
use alloc::vec::Vec;

macro_rules! datagrams {
    (
        $($(#[$meta:meta])* $code:literal => $message:ident $(<$life:lifetime>)?,)*
        also $($(#[$also_meta:meta])* $also_code:literal => $also:ident is $of:ident,)*
    ) => {
        /// A received datagram, checked to the last byte. Keys and values borrow from it.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Datagram<'a> {
            $($message($message $(<$life>)?),)*
        }

        impl<'a> Datagram<'a> {
            /// Decodes a whole UDP payload, strictly.
            pub fn decode(bytes: &'a [u8]) -> Result<(Header, Self), DecodeError> {
                let (header, body) = Header::decode(bytes)?;
                Ok((header, Self::of(&header, body)?))
            }

            /// Decodes what follows a header, strictly.
            pub fn of(header: &Header, body: &'a [u8]) -> Result<Self, DecodeError> {
                Ok(match header.opcode {
                    $(Opcode::$message => Self::$message(Message::decode(header, body)?),)*
                    $(Opcode::$also => Self::$of(Message::decode(header, body)?),)*
                })
            }

            /// Writes the datagram to `out`, which is cleared.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$message(message) => message.encode(out),)*
                }
            }
        }

        #[cfg(test)]
        #[allow(non_snake_case, reason = "each is named by its message")]
        mod every_bit_counts {
            use super::*;
            use crate::samples::{Sample, check};

            $(
                #[test]
                fn $message() {
                    check(|random| Datagram::$message(Sample::sample(random)));
                }
            )*
        }
    };
}

for_all_datagrams!(datagrams);
