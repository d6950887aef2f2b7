//! Reliable transfer of large values in chunks, from one sender to one or more receivers, of which
//! any k are enough (NICE §5).
//!
//! ```text
//!   sender ──chunk 0, 1, 2 …, mask──▶ switch ──▶ receivers in the mask    once each, paced by the k-th best receiver
//!          ◀──report: prefix, missing, limit── each receiver              every 32 chunks or 1 ms, and at the end
//!          ──chunk 7──▶ the receiver that misses it                       a repair, by unicast
//!          ──probe──▶ receivers that are silent                           asks for a report: the last chunks may be lost
//! ```
//!
//! Both ends are state machines: the caller passes input with the current time, and polls output.
//! Neither holds the bytes of a value: a [`Sender`] says which chunk to send, and a [`Receiver`]
//! whether a chunk is new. The caller encodes chunks, reports and probes, and verifies the whole
//! value by its [`checksum`](checksum()).
//!
//! *Loss costs time only.* A report states what a receiver has and what it misses, not what happened, so reports may be lost, repeated or late. A receiver reports a missing range after a random part of a round trip, so that a reordered chunk is not requested, and receivers that miss the same chunk do not all report at once. A sender repairs a chunk for a receiver at most once per round trip.
//!
//! *Any k.* A transfer to R receivers, of which k are required, runs at the pace of the k-th best receiver. A receiver that cannot keep up leaves the multicast mask, so that the switch sends it no more copies. It gets the remaining chunks by unicast at its own pace, until it has all of them or [`STRAGGLER_NS`] have passed.
//!
//! Reading order: `report` (the protocol), `receiver`, then `sender` with `member` (the sender's
//! state for a receiver), `pace`, `round_trip`, `traffic` and `spare_share`. [`Stragglers`] limits
//! slow receivers over all transfers of a process. [`Assembler`] is simpler: it reassembles
//! messages of a few parts, without repairs.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod assembly;
mod checksum;
mod chunk_set;
mod member;
mod pace;
mod receiver;
mod report;
mod round_trip;
mod sender;
mod spare_share;
mod stragglers;
mod traffic;

pub use assembly::{Assembler, Malformed, Part, name_of};
pub use checksum::{Checksum, checksum};
pub use chunk_set::ChunkSet;
pub use pace::{CHUNKS_PER_SECOND_MAX, CHUNKS_PER_SECOND_MIN, Pace};
pub use receiver::{ABANDONED_NS, Received, Receiver, Refused, WINDOW_MAX};
pub use report::{MISSING_MAX, REPORT_CHUNKS, REPORT_NS, Report};
pub use sender::{Counters, Event, MEMBERS_MAX, Mask, Sender, SenderConfig, Transmit};
pub use stragglers::{STRAGGLER_NS, STRAGGLERS_MAX, Stragglers};
