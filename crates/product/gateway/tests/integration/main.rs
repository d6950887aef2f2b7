//! Tests of a gateway and its clients over real sockets, in front of an in-memory store.

mod access;
mod batches;
mod behaviour;
mod floats;
mod globs;
mod hostile;
mod keyspaces;
mod many_arguments;
mod memory;
mod moving;
mod ordering;
mod publishing;
mod random;
mod scans;
mod scripts;
mod support;
mod threads;
mod tls;
mod transactions;
mod transcripts;
mod watching;
