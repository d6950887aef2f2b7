//! The encoded form of the numbers of INCRBYFLOAT: the 80-bit format of the x87. `nicekv-numbers` computes
//! with them.

/// A number of 80 bits: finite or infinite, never NaN, and never a negative zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongDouble {
    negative: bool,
    exponent: u16,
    significand: u64,
}

const SIGN_BIT: u16 = 0x8000;

impl LongDouble {
    /// Bytes of the encoded form.
    pub const BYTES: usize = 10;
    /// The exponent of infinities, as encoded.
    pub const EXPONENT_INFINITE: u16 = 0x7fff;
    /// The highest bit of a significand, set in every number whose exponent is not 0.
    pub const HIGHEST_BIT: u64 = 1 << 63;

    /// A number from its parts: the sign, the exponent as encoded (0 for numbers too small for 64 bits
    /// of significand), and all 64 bits of the significand. `None` if there is no such number.
    pub fn from_parts(negative: bool, exponent: u16, significand: u64) -> Option<Self> {
        let well_formed = match exponent {
            0 => significand < Self::HIGHEST_BIT && (significand != 0 || !negative),
            Self::EXPONENT_INFINITE => significand == Self::HIGHEST_BIT,
            0x8000.. => false,
            _ => significand >= Self::HIGHEST_BIT,
        };
        well_formed.then_some(Self { negative, exponent, significand })
    }

    /// Sign, exponent and significand, as [`Self::from_parts`] takes them.
    pub fn parts(self) -> (bool, u16, u64) {
        (self.negative, self.exponent, self.significand)
    }

    /// False for the infinities.
    pub fn is_finite(self) -> bool {
        self.exponent != Self::EXPONENT_INFINITE
    }

    /// The encoded form: sign and exponent, then the significand.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let sign = if self.negative { SIGN_BIT } else { 0 };
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&(sign | self.exponent).to_be_bytes());
        bytes[2..].copy_from_slice(&self.significand.to_be_bytes());
        bytes
    }

    /// Decodes what [`Self::to_bytes`] encodes; refuses all other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, significand) = bytes.split_first_chunk::<2>()?;
        let head = u16::from_be_bytes(*head);
        let significand = u64::from_be_bytes(significand.try_into().ok()?);
        Self::from_parts(head & SIGN_BIT != 0, head & !SIGN_BIT, significand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encoding_is_canonical() {
        const HIGHEST_BIT: u64 = LongDouble::HIGHEST_BIT;
        let with = |head: u16, significand: u64| {
            LongDouble::from_bytes(&[&head.to_be_bytes()[..], &significand.to_be_bytes()].concat())
        };
        assert_eq!(with(0, 0).map(LongDouble::parts), Some((false, 0, 0)));
        assert_eq!(with(0x3fff, HIGHEST_BIT), LongDouble::from_parts(false, 0x3fff, HIGHEST_BIT));
        assert_eq!(with(0xffff, HIGHEST_BIT), LongDouble::from_parts(true, 0x7fff, HIGHEST_BIT));
        // Negative zero; a number without its highest bit; exponent 0 with the highest bit;
        // the exponent of infinity with any other significand.
        for (head, significand) in
            [(0x8000, 0), (0x3fff, 1), (0, HIGHEST_BIT), (0x7fff, HIGHEST_BIT + 1), (0x7fff, 0)]
        {
            assert_eq!(with(head, significand), None, "{head:x} {significand:x}");
        }
        assert_eq!(LongDouble::from_bytes(&[0; 9]), None);
        assert_eq!(LongDouble::from_bytes(&[0; 11]), None);
    }

    proptest! {
        #[test]
        fn bytes_read_back(head in any::<u16>(), significand in any::<u64>()) {
            let bytes = [&head.to_be_bytes()[..], &significand.to_be_bytes()].concat();
            if let Some(value) = LongDouble::from_bytes(&bytes) {
                prop_assert_eq!(&value.to_bytes()[..], &bytes[..]);
            }
        }
    }
}
