//! Tests of replicas of a partition, message by message.

mod chain_joining;
mod chain_replay;
mod harness;
mod joining;
mod lone_node;
mod recovery;
mod reshaping;
mod returning;
mod scrubbing;
mod succession;
mod transactions;
mod two_members;
