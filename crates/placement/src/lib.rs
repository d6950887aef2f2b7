//! Where keys live (NICE §3.2).
//!
//! ```text
//! key ──BLAKE3──▶ digest (128 bits) ──top 16 bits──▶ vnode ──▶ 10.10.x.y (gets)  or  10.11.x.y (updates)
//!                                                      └─top bits──▶ partition ──hash ring──▶ replica set
//! ```
//!
//! Clients know only the first line: a digest and two address ranges. Which node serves a partition is the business of the metadata
//! service, which writes it into the switch.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod keyspace;
mod partition;
mod ring;
mod rings;
mod vring;

pub use keyspace::{
    CREATED_FIRST, KEYSPACE_NAME_BYTES_MAX, KEYSPACE_PARTITIONS_MAX, KEYSPACES_MAX, KeyOrder,
    KeyspaceDefaults, KeyspaceError, KeyspaceSpec, PARTITIONS_MAX, Protocol, Refusal, check_keyspaces,
    parse_keyspaces, partitions_for,
};
pub use partition::{PARTITION_BITS_MAX, Partitioning, VnodeBlock, vnode_blocks};
pub use ring::{replica_sets, replica_sets_of};
pub use rings::{RingsBase, ring_pairs};
pub use vring::Vrings;

use nicekv_wire::KeyDigest;

/// Digest of a key: the first 128 bits of its BLAKE3 hash, which nobody can collide at will.
pub fn key_digest(key: &[u8]) -> KeyDigest {
    let hash = blake3::hash(key);
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash.as_bytes()[..16]);
    KeyDigest(digest)
}
