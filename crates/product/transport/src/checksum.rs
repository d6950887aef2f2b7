//! Checksums of large values: the first half of the BLAKE3 digest, as a big-endian number.

/// Checksum of a value that is hashed in parts, in order.
#[derive(Clone, Debug, Default)]
pub struct Checksum(blake3::Hasher);

impl Checksum {
    /// The checksum of no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next part.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all parts so far.
    pub fn finish(&self) -> u128 {
        half(self.0.finalize())
    }
}

/// The checksum of a whole value.
pub fn checksum(bytes: &[u8]) -> u128 {
    half(blake3::hash(bytes))
}

fn half(digest: blake3::Hash) -> u128 {
    let (half, _) = digest.as_bytes().split_first_chunk().expect("32 bytes have a first half");
    u128::from_be_bytes(*half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_parts_equals_that_of_the_whole() {
        // The first half of the digest of nothing, as BLAKE3's test vectors have it.
        assert_eq!(checksum(b""), 0xaf13_49b9_f5f9_a1a6_a040_4dea_36dc_c949);
        let value: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
        let mut parts = Checksum::new();
        value.chunks(1408).for_each(|part| parts.update(part));
        assert_eq!(parts.finish(), checksum(&value));
        assert_ne!(checksum(&value), checksum(&value[1..]));
    }
}
