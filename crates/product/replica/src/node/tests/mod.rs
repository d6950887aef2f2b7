//! What a node does for every protocol that it hosts, shown by one that only writes down what it is told: who is let through to a
//! partition and who is refused, what comes back from the disk to whom, and what leaves in which datagram.

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
