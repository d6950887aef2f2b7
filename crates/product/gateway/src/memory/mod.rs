//! The memory of connections, within limits for all of them together.
//!
//! Short commands and replies are first accepted, then counted: if there are too many, the
//! connection that holds the most is closed (`thread_memory`). Large arguments and values need a
//! grant first: a connection that gets none waits, and is not read in the meantime (`governor`,
//! `admission`). While a connection waits, peers that hold a grant and neither send nor read are
//! closed (`peer_progress`).

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
