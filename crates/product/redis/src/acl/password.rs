//! Passwords. Only their SHA-256 hashes are kept; the host computes these.

use alloc::format;
use alloc::string::String;
use core::fmt;

const HASH_BYTES: usize = 32;

/// The SHA-256 of a password.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; HASH_BYTES]);

impl PasswordHash {
    pub fn new(sha256: [u8; HASH_BYTES]) -> Self {
        Self(sha256)
    }

    /// Parses 64 lower-case hexadecimal digits, as in ACL files.
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; HASH_BYTES];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(bytes))
    }

    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// Encodes bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in constant time.
impl PartialEq for PasswordHash {
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |all, (one, other)| all | (one ^ other));
        core::hint::black_box(difference) == 0
    }
}

impl Eq for PasswordHash {}

/// Shows nothing, because a weak password can be guessed from its hash.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PasswordHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha256(bytes: &[u8]) -> PasswordHash {
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        PasswordHash::new(digest.as_ref().try_into().unwrap())
    }

    #[test]
    fn hashes_equal_those_of_redis_and_are_never_shown() {
        let digits = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let hashed = sha256(b"secret");
        assert_eq!((hashed.hex().as_str(), format!("{hashed:?}").as_str()), (digits, "PasswordHash(…)"));
        assert_eq!(PasswordHash::parse(digits.as_bytes()), Some(hashed));
        assert_ne!(sha256(b"Secret"), hashed);
        for wrong in [&digits[1..], &digits.to_ascii_uppercase(), &digits.replace('2', "g"), ""] {
            assert_eq!(PasswordHash::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
