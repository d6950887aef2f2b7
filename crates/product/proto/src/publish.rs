//! Publish/subscribe messages (PUBLISH and SUBSCRIBE of Redis): delivered at most once, never
//! stored on disk.
//!
//! ```text
//!   listener  ──Listen───▶ multicast vnode of the channel ─▶ every member notes it; the primary ──Listening──▶ listener
//!   publisher ──Publish──▶ multicast vnode of the channel ─▶ the primary ─┬─Published──▶ each listener
//!                                                                         └─Reply──────▶ publisher: number of receivers
//! ```
//!
//! Members forget a subscription after [`Listen::hold_ms`]; subscribers renew it before. A pattern
//! may match channels of every partition: the subscriber sends it to all of them in turn, as
//! [`Listening`] says how far each one extends.

use crate::codec::Bytes;
use crate::declare::{code, codec_of, layout, message};
use crate::limits::{KEY_BYTES_MAX, MESSAGE_BYTES_MAX, PUBLISHED_BYTES_MAX};
use crate::{DecodeError, KeyDigest, KeyspaceId, MatchRange, OpId};
use core::net::SocketAddrV4;

code! {
    /// Kind of a subscription.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ListenKind {
        /// One channel, by its name.
        Channel = 1,
        /// All channels that match a [pattern](crate::glob).
        Pattern = 2,
    }
}

message! {
    /// Subscribes, renews or unsubscribes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Listen<'a>: Listen {
        header {
            /// The keyspace; channels belong to partitions as keys do.
            keyspace: KeyspaceId,
            /// Names the request. Of two requests of one client with the same name, the later
            /// sequence counts.
            op: OpId,
            /// Digest of the channel; for a pattern, the match value whose partition is asked.
            digest: KeyDigest,
            /// Address for the answer and for messages, if not the sender.
            reply_to: Option<SocketAddrV4>,
        }
        body {
            /// Kind of [`Self::name`].
            kind: ListenKind => 3 zeros,
            /// Lifetime in milliseconds, unless renewed.
            hold_ms: u32,
            /// Number of subscribers there; 0 unsubscribes.
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
            /// The request.
            op: OpId,
        }
        body {
            /// Match values of the partition that has answered.
            range: MatchRange,
        }
    }
}

message! {
    /// Publishes a message to a channel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Publish<'a>: Publish where fits {
        header {
            /// The keyspace; channels belong to partitions as keys do.
            keyspace: KeyspaceId,
            /// Names the message, so that a retransmission is recognised.
            op: OpId,
            /// Digest of the channel.
            digest: KeyDigest,
            /// Address for the answer, if not the sender.
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
    /// A published message, to a subscriber.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Published<'a>: Published where fits {
        header {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// The publisher's id of the message.
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
