//! Values that are too long for a datagram, against replicas that take and give them in chunks.

mod gets;
mod puts;
mod pending_reads;
mod world;
