//! The memory of connections, within limits for all of them together.
//!
//! Short commands and replies are taken first and counted: if there are too many, the connection that
//! holds the most is closed (`thread_memory`). Large arguments and values are granted first: whoever
//! finds no room waits, and is not read from meanwhile (`governor`, `admission`). While somebody waits,
//! peers that neither send nor read what they have room for are closed (`peer_progress`).

mod admission;
mod governor;
mod large_reads;
mod peer_progress;
mod thread_memory;

pub(crate) use admission::Position;
pub(crate) use governor::{Admission, Grant, GrantedValue, MemoryGovernor};
pub(crate) use large_reads::{LargeReads, Need};
pub(crate) use peer_progress::{CHECK_INTERVAL, PeerCheck, PeerProgress};
pub(crate) use thread_memory::ThreadMemory;
