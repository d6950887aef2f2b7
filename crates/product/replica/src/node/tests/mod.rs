//! Tests of what a node does in every mode, with a partition that records its calls: which requests
//! and messages are accepted, which partition gets a completion, and what datagrams contain.

mod dispatch;
mod outbox;
pub(crate) mod recorder;
mod scrub;
mod session;
mod storage;
mod streams;
mod transfers;
mod usage;
mod values;
