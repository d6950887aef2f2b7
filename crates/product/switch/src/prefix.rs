//! IPv4 prefixes.

use core::fmt;

use serde::{Deserialize, Serialize};

/// An IPv4 prefix. Bits below `length` must be zero ([`Prefix::is_canonical`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Prefix {
    /// The network address, in network byte order.
    pub address: [u8; 4],
    /// The number of leading bits that are compared, 0 to 32.
    pub length: u8,
}

impl Prefix {
    /// The prefix `address/length`.
    pub const fn new(address: [u8; 4], length: u8) -> Self {
        Self { address, length }
    }

    /// Whether the length is at most 32 and all bits below it are zero.
    pub fn is_canonical(&self) -> bool {
        self.length <= 32 && self.first() & !self.mask() == 0
    }

    /// Whether `address` lies inside.
    pub fn contains(&self, address: [u8; 4]) -> bool {
        u32::from_be_bytes(address) & self.mask() == self.first()
    }

    /// Whether every address of `other` lies inside.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// The netmask as a host-order number.
    pub fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length.min(32))).unwrap_or(0)
    }

    /// The lowest address inside, as a host-order number.
    pub fn first(&self) -> u32 {
        u32::from_be_bytes(self.address)
    }

    /// The highest address inside, as a host-order number.
    pub fn last(&self) -> u32 {
        self.first() | !self.mask()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.address;
        write!(formatter, "{a}.{b}.{c}.{d}/{}", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_contains_its_first_and_last_address() {
        let prefix = Prefix::new([10, 10, 0, 0], 16);
        assert!(prefix.contains([10, 10, 0, 0]) && prefix.contains([10, 10, 255, 255]));
        assert!(!prefix.contains([10, 9, 255, 255]) && !prefix.contains([10, 11, 0, 0]));
        assert!(Prefix::new([0; 4], 0).contains([255; 4]));
        assert!(Prefix::new([1, 2, 3, 4], 32).contains([1, 2, 3, 4]));
        assert_eq!(prefix.last(), u32::from_be_bytes([10, 10, 255, 255]));
        assert!(!Prefix::new([10, 10, 0, 1], 16).is_canonical());
        assert!(!Prefix::new([10, 10, 0, 0], 33).is_canonical());
    }
}
