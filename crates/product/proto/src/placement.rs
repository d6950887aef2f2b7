//! Where keys live (NICE §3.2).
//!
//! ```text
//! key ──BLAKE3──▶ digest (128 bits) ──top 16 bits──▶ vnode ──▶ 10.10.x.y (gets)  or  10.11.x.y (updates)
//!                                                      └─top bits──▶ partition ──hash ring──▶ replica set
//! ```
//!
//! In a keyspace partitioned by range (TurboKV §4.1.1), the first 16 bytes of the key take the
//! place of the digest ([`match_digest`]), and a partition is any range of match values.
//!
//! Clients know only the first line: a digest and two address ranges. The metadata service assigns
//! partitions to nodes and writes the assignment into the switch.

mod directory;
mod group;
mod keyspace;
mod partition;
mod rendezvous;
mod ring;
mod rings;
mod rings_base;
mod vring;

pub use directory::{Directory, DirectoryFetch};
pub use group::{
    CHUNK_SLOTS, GROUP_MASK_ALL, GROUP_MASK_BITS, GROUP_MEMBERS_MAX, GROUPS_MAX, GroupRing, mask_of,
};
pub use keyspace::{
    ChunkDelivery, KEYSPACE_NAME_BYTES_MAX, KEYSPACE_PARTITIONS_MAX, KEYSPACE_SETTINGS, KeyspaceDefaults,
    KeyspaceError, KeyspaceSpec, LoadBalancing, PARTITIONS_MAX, Protocol, Refusal, check_keyspaces,
    parse_keyspaces, partitions_for,
};
pub use partition::{PARTITION_BITS_MAX, Partitioning, VnodeBlock, vnode_blocks, vnodes};
pub use rendezvous::rendezvous_rank;
pub use ring::{replica_sets, replica_sets_of};
pub use rings::{ring_pairs, usual_group_ring};
pub use rings_base::{CREATED_FIRST, KEYSPACES_MAX, RingsBase};
pub use vring::Vrings;

pub use crate::KeyOrder;

use crate::KeyDigest;

/// Digest of a key: the first 128 bits of its BLAKE3 hash, for which no one can construct
/// collisions.
pub fn key_digest(key: &[u8]) -> KeyDigest {
    let hash = blake3::hash(key);
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash.as_bytes()[..16]);
    KeyDigest(digest)
}

/// Leading bytes of the digest that keys with the same hash tag share; no partition is small enough
/// to separate them.
const TAG_BYTES: usize = 8;

/// The hash tag: the bytes between the first `{` and the next `}`, as in Redis Cluster.
/// `{user:1}:name` and `{user:1}:age` share a partition.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    // Most keys have no tag, and this search is faster than one for its position.
    if !key.contains(&b'{') {
        return None;
    }
    let from = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[from..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &key[from..from + length])
}

/// Match value of a key. By hash: the key's digest, with the first half taken from the hash tag, if
/// there is one. By range: the first 16 bytes of the key, padded with zeros, so that match values
/// never contradict the order of keys. Keys that share these 16 bytes share a match value, and with
/// it partition and record.
pub fn match_digest(order: KeyOrder, key: &[u8]) -> KeyDigest {
    match order {
        KeyOrder::Hash => match hash_tag(key) {
            None => key_digest(key),
            // The first half determines the partition, the second one distinguishes keys.
            Some(tag) => {
                let mut digest = key_digest(key).0;
                digest[..TAG_BYTES].copy_from_slice(&key_digest(tag).0[..TAG_BYTES]);
                KeyDigest(digest)
            }
        },
        KeyOrder::Range => {
            let mut first = [0; 16];
            let length = key.len().min(first.len());
            first[..length].copy_from_slice(&key[..length]);
            KeyDigest(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_one_hash_tag_share_a_partition_and_stay_distinct() {
        let digest = |key: &str| match_digest(KeyOrder::Hash, key.as_bytes()).0;
        let half = |key: &str| digest(key)[..8].to_vec();
        for (key, tag) in
            [("{user:1}:name", "user:1"), ("age{user:1}", "user:1"), ("a{b}{c}", "b"), ("{{b}}", "{b")]
        {
            assert_eq!(half(key), half(tag), "{key}");
            assert_ne!(digest(key), digest(tag), "{key}");
        }
        assert_ne!(digest("{user:1}:name"), digest("{user:1}:age"));
        for key in ["{}a", "{a", "a}", "}{", ""] {
            assert_eq!(digest(key), key_digest(key.as_bytes()).0, "{key}: no tag");
        }
    }

    #[test]
    fn match_values_preserve_key_order() {
        let value = |key: &[u8]| match_digest(KeyOrder::Range, key).match_value();
        let keys: [&[u8]; 7] =
            [b"", b"\0\x01", b"a", b"a\x01", b"ab", b"abcdefghijklmnop", b"abcdefghijklmnoq"];
        assert!(keys.windows(2).all(|pair| value(pair[0]) < value(pair[1])));
        assert_eq!(value(b"a"), 0x61 << 120);
        assert_eq!(value(b"abcdefghijklmnop"), value(b"abcdefghijklmnopq"), "16 bytes are shared");
        assert_eq!(value(b"a"), value(b"a\0\0"), "keys are padded with zeros");
        assert_eq!((value(&[0xff; 16]), value(&[0xff; 40])), (u128::MAX, u128::MAX));
        assert_eq!(match_digest(KeyOrder::Hash, b"a"), key_digest(b"a"));
    }
}
