//! Values that are too long for a datagram, against replicas that take and give them in chunks.

mod gets;
mod pending_reads;
mod puts;
mod world;
