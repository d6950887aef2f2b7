//! What a node does in every mode, shown with a partition that records its calls: which requests
//! and messages are let through, which completion goes where, and which datagram carries what.

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
