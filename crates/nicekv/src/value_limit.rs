//! How long values may be that a gateway takes.

use nicekv_wire::limits::LARGE_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The longest value that a gateway takes, in MiB: 1 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub(crate) struct ValueLimit(usize);

impl ValueLimit {
    const MIB_MAX: usize = LARGE_BYTES_MAX as usize >> 20;

    pub(crate) fn bytes(self) -> usize {
        self.0 << 20
    }
}

impl TryFrom<usize> for ValueLimit {
    type Error = String;

    fn try_from(mib: usize) -> Result<Self, String> {
        let is_possible = (1..=Self::MIB_MAX).contains(&mib);
        is_possible.then_some(Self(mib)).ok_or(format!(
            "the longest value that a gateway takes has 1 to {} MiB, not {mib}",
            Self::MIB_MAX
        ))
    }
}

impl From<ValueLimit> for usize {
    fn from(limit: ValueLimit) -> Self {
        limit.0
    }
}

impl FromStr for ValueLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<usize>().map_err(|error| error.to_string())?.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_at_most_what_a_transfer_has() {
        assert_eq!("512".parse::<ValueLimit>().unwrap().bytes(), LARGE_BYTES_MAX as usize);
        for refused in ["0", "513"] {
            let error = refused.parse::<ValueLimit>().unwrap_err();
            assert_eq!(
                error,
                format!("the longest value that a gateway takes has 1 to 512 MiB, not {refused}")
            );
        }
        assert!("64M".parse::<ValueLimit>().is_err());
    }
}
