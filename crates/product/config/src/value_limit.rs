//! How long values may be: those that a gateway takes, and those that nodes make by adding to others.

use crate::bounded::bounded;
use nicekv_proto::limits::{LARGE_BYTES_MAX, LARGE_VALUE_BYTES_MAX};
use serde::{Deserialize, Serialize};

/// The longest value, in MiB: 1 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct ValueLimit(usize);

impl ValueLimit {
    const MIB_MAX: usize = LARGE_BYTES_MAX as usize >> 20;
    /// Unless something is said.
    pub const DEFAULT: Self = Self(LARGE_VALUE_BYTES_MAX as usize >> 20);

    pub fn bytes(self) -> usize {
        self.0 << 20
    }
}

bounded!(ValueLimit, 1..=ValueLimit::MIB_MAX, "the longest value has {min} to {max} MiB, not {number}");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_at_most_what_a_transfer_has() {
        assert_eq!("512".parse::<ValueLimit>().unwrap().bytes(), LARGE_BYTES_MAX as usize);
        for refused in ["0", "513"] {
            let error = refused.parse::<ValueLimit>().unwrap_err();
            assert_eq!(error, format!("the longest value has 1 to 512 MiB, not {refused}"));
        }
        assert!("64M".parse::<ValueLimit>().is_err());
    }
}
