//! Large values in chunks: one sender, one receiver or many, any k of which are enough (NICE §5).
//!
//! ```text
//!   sender ──chunk 0, 1, 2 …, mask──▶ switch ──▶ receivers of the mask          once, paced by the slowest one that is required
//!          ◀──report: prefix, missing, limit── each receiver                    every 32 chunks or 1 ms, and at the end
//!          ──chunk 7──▶ who asked                                               a repair, by unicast
//!          ──probe──▶ who is silent                                             when reports stay out: the end may have been lost
//! ```
//!
//! Both ends are state machines: input comes with the time, output is polled. Neither holds a byte of a value: a sender says which chunk to send, a receiver whether a chunk is
//! new. What a chunk, a report or a probe looks like on a wire, is for who uses them,
//! and so is that a value is right as a whole, by its [`checksum`](checksum()).
//!
//! *Loss costs time, and nothing else.* A receiver tells what it has and what it misses, never what happened, so that a report may be lost, repeated or late. It asks for a hole only
//! after a random part of a round trip: what is out of order is not lost, and receivers that have lost the same do not ask at once. A sender repairs a chunk for a receiver
//! at most once in a round trip.
//!
//! *Any k.* A transfer to R receivers of which k are required goes as fast as the k-th best takes it. Who cannot keep up leaves the mask, so that the switch copies no more to it, and gets the rest by
//! unicast at a pace of its own, until it has everything or [`STRAGGLER_NS`] are over.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod assembly;
mod checksum;
mod chunks;
mod member;
mod pace;
mod receiver;
mod report;
mod round_trip;
mod sender;
mod spare;
mod stragglers;
mod traffic;

pub use assembly::{Assembler, Malformed, Part, name_of};
pub use checksum::{Checksum, checksum};
pub use chunks::Chunks;
pub use pace::{CHUNKS_PER_SECOND_MAX, CHUNKS_PER_SECOND_MIN, Pace};
pub use receiver::{ABANDONED_NS, Receiver, Refused, Taken, WINDOW_MAX};
pub use report::{MISSING_MAX, REPORT_CHUNKS, REPORT_NS, Report};
pub use sender::{Counters, Event, MEMBERS_MAX, Mask, Sender, SenderConfig, Transmit};
pub use stragglers::{STRAGGLER_NS, STRAGGLERS_MAX, Stragglers};
