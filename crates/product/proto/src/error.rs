//! Why a datagram was refused.

use thiserror::Error;

/// A datagram that is not exactly one well-formed message, with the offending field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Shorter than the fixed part.
    #[error("datagram is too short for its {field}")]
    TooShort {
        /// First field that does not fit.
        field: &'static str,
    },
    /// Wrong magic number.
    #[error("bad magic {0:#06x}")]
    BadMagic(u16),
    /// Version of another release.
    #[error("unsupported version {0}")]
    UnsupportedVersion(u8),
    /// Unknown opcode.
    #[error("unknown opcode {0}")]
    UnknownOpcode(u8),
    /// A stated length does not match the datagram.
    #[error("{field} says {stated} bytes, the datagram has {actual}")]
    LengthMismatch {
        /// The length field.
        field: &'static str,
        /// Stated length.
        stated: usize,
        /// Actual length.
        actual: usize,
    },
    /// A number outside its limits (`limits`).
    #[error("{field} of {value} is outside {minimum}..={maximum}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: usize,
        /// Smallest allowed value.
        minimum: usize,
        /// Largest allowed value.
        maximum: usize,
    },
    /// An invalid value.
    #[error("{field} has the unknown value {value}")]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
