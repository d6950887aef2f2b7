//! Manifests: the value of an object's name, which lists its chunks (P9).
//!
//! ```text
//!   "NKOB" │ version u8, 3 zeros │ length u64 │ chunk bytes u32 │ number of chunks u32 │ id, id, …
//! ```

use alloc::vec::Vec;
use nicekv_proto::chunk::{CHUNK_LENGTH_MAX, ChunkId};

const MAGIC: [u8; 4] = *b"NKOB";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 24;
const ID_BYTES: usize = 32;

/// The chunks of an object. All but the last one have the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Length of the object in bytes.
    pub length: u64,
    /// Length of each chunk but the last.
    pub chunk_bytes: u32,
    /// The chunks, in order.
    pub chunks: Vec<ChunkId>,
}

/// Why a value is no valid manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It has another magic number, or is too short.
    #[error("the value is not the manifest of an object")]
    NotOurs,
    /// It has the format of another release.
    #[error("manifest format {0} is not supported: this release reads format {VERSION}")]
    Version(u8),
    /// Its fields are inconsistent.
    #[error("inconsistent manifest: {0}")]
    Contradiction(&'static str),
}

impl Manifest {
    /// Encodes it as the value of a name.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FIXED_BYTES + self.chunks.len() * ID_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.chunk_bytes.to_be_bytes());
        out.extend_from_slice(&(self.chunks.len() as u32).to_be_bytes());
        self.chunks.iter().for_each(|id| out.extend_from_slice(&id.0));
        out
    }

    /// Length of a chunk, by its number; 0 beyond the last one.
    pub fn chunk_length(&self, number: usize) -> u32 {
        let left = self.length.saturating_sub(number as u64 * u64::from(self.chunk_bytes));
        left.min(self.chunk_bytes.into()) as u32
    }

    /// Decodes a value, strictly.
    ///
    /// # Errors
    /// It is no valid manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (fixed, ids) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(ManifestError::NotOurs)?;
        if fixed[..4] != MAGIC {
            return Err(ManifestError::NotOurs);
        }
        if fixed[4] != VERSION {
            return Err(ManifestError::Version(fixed[4]));
        }
        let u64_at = |at: usize| u64::from_be_bytes(*fixed[at..].first_chunk().expect("24 bytes"));
        let u32_at = |at: usize| u32::from_be_bytes(*fixed[at..].first_chunk().expect("24 bytes"));
        let (length, chunk_bytes, count) = (u64_at(8), u32_at(16), u32_at(20));
        let contradicts = |what| Err(ManifestError::Contradiction(what));
        if fixed[5..8] != [0; 3] {
            return contradicts("reserved bytes");
        }
        if !(1..=CHUNK_LENGTH_MAX).contains(&chunk_bytes) {
            return contradicts("the length of a chunk");
        }
        if length.div_ceil(chunk_bytes.into()) != u64::from(count) || ids.len() != count as usize * ID_BYTES {
            return contradicts("the number of chunks");
        }
        let (ids, _) = ids.as_chunks::<ID_BYTES>();
        Ok(Self { length, chunk_bytes, chunks: ids.iter().map(|id| ChunkId(*id)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(length: u64, chunks: usize) -> Manifest {
        let chunks = (0..chunks).map(|at| ChunkId([at as u8; 32])).collect();
        Manifest { length, chunk_bytes: 1 << 20, chunks }
    }

    #[test]
    fn manifest_round_trips() {
        for manifest in [manifest(0, 0), manifest(1, 1), manifest(1 << 20, 1), manifest((1 << 20) + 1, 2)] {
            assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }
    }

    #[test]
    fn all_chunks_but_the_last_have_the_same_length() {
        let lengths = |length, chunks| {
            let manifest = manifest(length, chunks);
            [0, 1, 2].map(|number| manifest.chunk_length(number))
        };
        assert_eq!(lengths((1 << 20) + 1, 2), [1 << 20, 1, 0]);
        assert_eq!(lengths(2 << 20, 2), [1 << 20, 1 << 20, 0]);
        assert_eq!(lengths(0, 0), [0, 0, 0]);
    }

    #[test]
    fn invalid_manifests_are_refused() {
        let whole = manifest(3 << 20, 3).encode();
        assert_eq!(Manifest::decode(b"hello"), Err(ManifestError::NotOurs));
        for bit in 0..FIXED_BYTES * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A changed length with the same number of chunks is a valid, but different manifest.
            if let Ok(other) = Manifest::decode(&changed) {
                assert_ne!(other, manifest(3 << 20, 3));
                assert_eq!(other.encode(), changed);
            }
        }
        for length in 0..whole.len() {
            assert!(Manifest::decode(&whole[..length]).is_err(), "{length}");
        }
        assert!(Manifest::decode(&[&whole[..], b"x"].concat()).is_err());
    }
}
