//! The same store with targets by hash, over TCP, as most object stores do it (Replicast §II-A);
//! `uch-ccp` of the paper's simulations.
//!
//! ```text
//!   client   id ──rendezvous hashing──▶ three of nine ──▶ on each one's connection: sequence, id, length, bytes   (all at once, one behind the other)
//!   server   bytes ──▶ ChunkDisk: written, verified, synced ──▶ sequence, whether it is stored
//! ```
//!
//! It is tuned: connections are kept, Nagle's algorithm is off, and a chunk's bytes go from the
//! caller's buffer to the socket, and from the socket to the disk's thread in pieces, which are
//! verified while others arrive. The kernel controls congestion.

mod client;
mod server;

pub(super) use client::HashedClient;
pub(super) use server::HashedServer;

use nicekv_proto::chunk::ChunkId;

/// Bytes before those of a chunk.
const HEAD_BYTES: usize = 44;
/// Bytes of an answer.
const ANSWER_BYTES: usize = 9;
/// Last byte of an answer.
const STORED: u8 = 1;
const NOT_STORED: u8 = 0;

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    sequence: u64,
    id: ChunkId,
    length: u32,
}

impl Head {
    fn encode(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..40].copy_from_slice(&self.id.0);
        bytes[40..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEAD_BYTES]) -> Self {
        let part = |from: usize| bytes[from..].first_chunk();
        Self {
            sequence: u64::from_be_bytes(*part(0).expect("it is longer")),
            id: ChunkId(*bytes[8..].first_chunk().expect("it is longer")),
            length: u32::from_be_bytes(*bytes[40..].first_chunk().expect("it is longer")),
        }
    }
}

/// Chooses targets by rendezvous hashing: those with the highest weights for this chunk.
fn targets_of(id: &ChunkId, targets: usize, copies: usize) -> Vec<usize> {
    let word = u64::from_be_bytes(*id.0.first_chunk().expect("it is longer"));
    let mut places: Vec<usize> = (0..targets).collect();
    places.sort_by_key(|target| std::cmp::Reverse(mixed(word ^ mixed(*target as u64 + 1))));
    places.truncate(copies);
    places
}

/// Mixes all bits of a word (the finalizer of SplitMix64).
fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_objects::chunk_id;

    #[test]
    fn a_head_is_decoded_as_it_was_encoded() {
        let head = Head { sequence: 7, id: chunk_id(b"x"), length: 1 << 20 };
        assert_eq!(Head::decode(&head.encode()), head);
    }

    #[test]
    fn each_target_gets_a_third_of_all_chunks() {
        let mut counts = [0; 9];
        for number in 0..9_000_u32 {
            let places = targets_of(&chunk_id(&number.to_be_bytes()), counts.len(), 3);
            assert!(
                places.len() == 3
                    && places[0] != places[1]
                    && places[1] != places[2]
                    && places[0] != places[2]
            );
            places.iter().for_each(|place| counts[*place] += 1);
        }
        assert!(counts.iter().all(|count| (2_850..3_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_new_target_moves_only_its_share() {
        for number in 0..100_u32 {
            let id = chunk_id(&number.to_be_bytes());
            let (before, after) = (targets_of(&id, 9, 3), targets_of(&id, 10, 3));
            let kept = after.iter().filter(|place| before.contains(place)).count();
            assert_eq!(kept, if after.contains(&9) { 2 } else { 3 });
        }
    }
}
