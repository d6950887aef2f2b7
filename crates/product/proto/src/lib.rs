//! Every byte layout of NICEKV, and nothing else.
//!
//! A datagram is a fixed 48-byte [`Header`] and a body whose shape the opcode names:
//!
//! ```text
//!  client ──Get──────▶ unicast vnode ──▶ one replica ──Reply──▶ client
//!  client ──Update───▶ multicast vnode ─▶ every replica
//!                                          secondary ──Acks──────▶ primary
//!                                          primary ──Decisions──▶ every replica
//!                                          primary ──Reply──────▶ client
//! ```
//!
//! * Each message is declared once (`declare`): its fields with their codecs (`codec`), from which come its struct, its layout, its codec
//!   and its tests; its opcode is in the list of all (`opcode`).
//! * Integers are big-endian. Layouts are `zerocopy` structs, so their sizes and offsets are checked at compile time; the header's and
//!   the opcodes are in the C header, too, that [`c_header`] generates.
//! * Decoding is strict: whatever is not exactly one well-formed datagram is a [`DecodeError`] that names the field. Nothing is
//!   trusted before [`Datagram::decode`] has returned `Ok`.
//! * Encoders append to a caller's buffer and assert the limits: sending too much is a bug of ours, not a condition.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

pub mod bundle;
pub mod bytes;
pub mod c_header;
mod c_layout;
pub mod chain;
mod chain_header;
pub mod chunk;
mod codec;
pub mod control;
mod datagram;
mod declare;
pub mod directory;
mod disk_space;
pub mod durations;
mod effect;
mod error;
mod form;
mod forwarded;
pub mod fragment;
pub mod glob;
pub mod hash;
mod header;
pub mod heat;
pub mod hot;
mod identifiers;
mod keyspace;
pub mod large;
pub mod limits;
pub mod number;
mod opcode;
pub mod placement;
pub mod publish;
pub mod quorum;
mod recent;
pub mod recovery;
pub mod repair;
pub mod replication;
mod reply;
mod request;
pub mod route;
#[cfg(test)]
mod samples;
pub mod scan;
pub mod scrub;
mod stamp;
mod status;
mod stored;
mod time;

pub use codec::Entries;
pub use datagram::Datagram;
pub use durations::Durations;
pub use error::DecodeError;
pub use form::Form;
pub use header::{Header, HeaderLayout, ROOM_CHAIN, ROOM_STAMP, lengthen, stamp_reply_to};
pub use identifiers::{ClientId, Epoch, KeyDigest, KeyspaceId, NodeId, OpId, PartitionId, Term};
pub use keyspace::{EmptyRange, KeyOrder, MatchRange, Replication};
pub use opcode::Opcode;
pub use recent::Recent;
pub use reply::Reply;
pub use request::{Condition, ExpireCondition, Expiry, Get, Operation, Update, transaction};
pub use status::Status;
pub use stored::{Keys as StoredKeys, StoredBytes, StoredKey, StoredUpdate};
pub use time::{Duration, Now};
