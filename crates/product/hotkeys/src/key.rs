//! How a switch identifies a key.

use nicekv_proto::{KeyDigest, KeyspaceId};

/// A key as the switch sees it: 18 bytes of the header. Entries of the hot table also compare the
/// full key, since digests can be forged to collide (G4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HotKey {
    /// The key's keyspace.
    pub keyspace: KeyspaceId,
    /// Its digest, or match value.
    pub digest: KeyDigest,
}

impl HotKey {
    /// A seeded hash made of operations that kernel programs have: multiply, shift, exclusive or.
    /// Digests are hashes already, but clients can choose the match values of ranges, and each
    /// stage needs a different hash function.
    pub fn hash(&self, seed: u64) -> u64 {
        let value = self.digest.match_value();
        let (high, low) = ((value >> 64) as u64, value as u64);
        let mixed = mix(high ^ seed) ^ low;
        mix(mixed ^ (u64::from(self.keyspace.0) << 48))
    }

    /// Maps the hash to a place in 0..`places`, without a division.
    pub fn place(&self, seed: u64, places: u32) -> u32 {
        (((self.hash(seed) >> 32) * u64::from(places)) >> 32) as u32
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every bit depends on
/// every bit. The switch's kernel program computes the same function.
pub(crate) fn mix(value: u64) -> u64 {
    let mut mixed = value;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The key with this number. Neighbouring numbers have neighbouring digests, as in a keyspace
    /// that is partitioned by range.
    pub(crate) fn key(number: u64) -> HotKey {
        HotKey { keyspace: KeyspaceId(1), digest: KeyDigest(u128::from(number).to_be_bytes()) }
    }

    #[test]
    fn neighbours_spread_evenly_and_differently_for_each_seed() {
        const PLACES: u32 = 64;
        const KEYS: u64 = 64_000;
        let places = |seed| (0..KEYS).map(move |number| key(number).place(seed, PLACES));
        for seed in [0, 1, u64::MAX] {
            let mut counts = [0_u32; PLACES as usize];
            places(seed).for_each(|place| counts[place as usize] += 1);
            // 1,000 are expected in each place, with a standard deviation of 32.
            assert!(counts.iter().all(|count| (840..1160).contains(count)), "{counts:?}");
        }
        let same = places(1).zip(places(2)).filter(|(one, other)| one == other).count();
        assert!((800..1200).contains(&same), "two seeds agree as often as chance: {same}");
        assert!((0..KEYS).all(|number| key(number).place(3, 1) == 0));
    }

    #[test]
    fn equal_digests_of_two_keyspaces_hash_differently() {
        let other = HotKey { keyspace: KeyspaceId(2), ..key(7) };
        assert_ne!(key(7).hash(1), other.hash(1));
    }
}
