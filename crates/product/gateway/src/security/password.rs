//! Passwords, of which only the SHA-256 is kept.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use std::fmt;

/// The SHA-256 of a password.
#[derive(Clone, Copy)]
pub(crate) struct Hashed([u8; SHA256_OUTPUT_LEN]);

impl Hashed {
    pub(crate) fn of(password: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, password).as_ref());
        Self(bytes)
    }

    /// From 64 digits in lower case, as files have it.
    pub(crate) fn of_digits(digits: &[u8]) -> Option<Self> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }

    pub(crate) fn digits(&self) -> String {
        digits(&self.0)
    }
}

/// Bytes in hexadecimal, in lower case.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In a time that does not depend on where they differ.
impl PartialEq for Hashed {
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(difference) == 0
    }
}

impl Eq for Hashed {}

/// A hash of a weak password is as good as the password.
impl fmt::Debug for Hashed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hashed(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_redis_and_shown_to_nobody_by_chance() {
        let digits = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let hashed = Hashed::of(b"secret");
        assert_eq!((hashed.digits().as_str(), format!("{hashed:?}").as_str()), (digits, "Hashed(…)"));
        assert_eq!(Hashed::of_digits(digits.as_bytes()), Some(hashed));
        assert_ne!(Hashed::of(b"Secret"), hashed);
        for wrong in [&digits[1..], &digits.to_ascii_uppercase(), &digits.replace('2', "g"), ""] {
            assert_eq!(Hashed::of_digits(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
