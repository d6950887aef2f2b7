//! Tests of values that are too long for a datagram, with replicas that receive and send them in
//! chunks.

mod gets;
mod pending_reads;
mod puts;
mod world;
