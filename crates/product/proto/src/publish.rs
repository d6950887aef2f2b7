//! Messages to whoever listens (PUBLISH and SUBSCRIBE of Redis): at most once, and nothing of it is kept on a disk.
//!
//! ```text
//!   listener  ──Listen───▶ multicast vnode of the channel ─▶ every member notes it; the primary ──Listening──▶ listener
//!   publisher ──Publish──▶ multicast vnode of the channel ─▶ the primary ─┬─Published──▶ each listener
//!                                                                         └─Reply──────▶ publisher: how many were told
//! ```
//!
//! What members note is forgotten after [`Listen::hold_ms`], so that listeners say it again before. A pattern may be of channels of every partition: it is told to all
//! of them one after the other, as [`Listening`] says how far each one goes.

use crate::codec::Bytes;
use crate::declare::{code, codec_of, layout, message};
use crate::limits::{KEY_BYTES_MAX, MESSAGE_BYTES_MAX, PUBLISHED_BYTES_MAX};
use crate::{DecodeError, KeyDigest, KeyspaceId, MatchRange, OpId};
use core::net::SocketAddrV4;

code! {
    /// What is listened to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ListenKind {
        /// One channel, by its name.
        Channel = 1,
        /// All channels whose names are a [pattern](crate::glob)'s.
        Pattern = 2,
    }
}

message! {
    /// Somebody listens, or does not any more.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Listen<'a>: Listen {
        header {
            /// The keyspace, of whose partitions channels are as keys are.
            keyspace: KeyspaceId,
            /// Names the request. Of two that one client sends of the same name, the later sequence counts.
            op: OpId,
            /// Digest of the channel; of a pattern, the match value of which the partition is told.
            digest: KeyDigest,
            /// Where the answer goes, and what is published, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// What [`Self::name`] is.
            kind: ListenKind => 3 zeros,
            /// For how long, unless it is said again.
            hold_ms: u32,
            /// How many listen there; 0: nobody any more.
            count: u32,
            /// The channel, or the pattern.
            name: &'a [u8] as Bytes<0, KEY_BYTES_MAX>,
        }
    }
}

message! {
    /// The answer to a [`Listen`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Listening: Listening {
        header {
            /// The request that is answered.
            op: OpId,
        }
        body {
            /// The match values of the partition that was told.
            range: MatchRange,
        }
    }
}

message! {
    /// A message to whoever listens to a channel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Publish<'a>: Publish where fits {
        header {
            /// The keyspace, of whose partitions channels are as keys are.
            keyspace: KeyspaceId,
            /// Names the message, so that a repeated one is recognised.
            op: OpId,
            /// Digest of the channel.
            digest: KeyDigest,
            /// Where the answer goes, if not to the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// The channel.
            channel: &'a [u8] as Bytes<0, KEY_BYTES_MAX>,
            /// The message; with the channel at most [`PUBLISHED_BYTES_MAX`] bytes.
            message: &'a [u8] as Bytes<0, PUBLISHED_BYTES_MAX>,
        }
    }
}

message! {
    /// What was published, to one who listens.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Published<'a>: Published where fits {
        header {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// The publisher's name of the message.
            op: OpId,
        }
        body {
            /// The channel.
            channel: &'a [u8] as Bytes<0, KEY_BYTES_MAX>,
            /// The message.
            message: &'a [u8] as Bytes<0, PUBLISHED_BYTES_MAX>,
        }
    }
}

const _: () = assert!(
    Publish::FIXED_BYTES + PUBLISHED_BYTES_MAX <= MESSAGE_BYTES_MAX && KEY_BYTES_MAX <= PUBLISHED_BYTES_MAX
);

fn fits(channel: &[u8], message: &[u8]) -> Result<(), DecodeError> {
    let bytes = channel.len() + message.len();
    match bytes <= PUBLISHED_BYTES_MAX {
        true => Ok(()),
        false => Err(DecodeError::UnknownValue { field: "message", value: bytes as u64 }),
    }
}

impl Publish<'_> {
    fn fits(&self) -> Result<(), DecodeError> {
        fits(self.channel, self.message)
    }
}

impl Published<'_> {
    fn fits(&self) -> Result<(), DecodeError> {
        fits(self.channel, self.message)
    }
}
