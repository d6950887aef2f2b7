//! Why a datagram was refused.

use thiserror::Error;

/// A datagram that is not exactly one well-formed message, by the field that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Shorter than its fixed part.
    #[error("datagram is too short for its {field}")]
    TooShort {
        /// What did not fit.
        field: &'static str,
    },
    /// Not ours.
    #[error("bad magic {0:#06x}")]
    BadMagic(u16),
    /// From a newer or older release.
    #[error("unsupported version {0}")]
    UnsupportedVersion(u8),
    /// No such opcode.
    #[error("unknown opcode {0}")]
    UnknownOpcode(u8),
    /// A stated length disagrees with the datagram.
    #[error("{field} says {stated} bytes, the datagram has {actual}")]
    LengthMismatch {
        /// The length field.
        field: &'static str,
        /// What it says.
        stated: usize,
        /// What is there.
        actual: usize,
    },
    /// Outside its limit (`limits`).
    #[error("{field} of {value} is outside {minimum}..={maximum}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: usize,
        /// Least allowed.
        minimum: usize,
        /// Most allowed.
        maximum: usize,
    },
    /// Not one of the values that the field may have.
    #[error("{field} has the unknown value {value}")]
    UnknownValue {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
