//! What a node sets aside on its disk, as it is written in a file or on a command line.

use nicekv_runtime::node::RESERVE_BYTES_MIN;
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

/// MiB that a node sets aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct ReserveMib(u64);

impl TryFrom<u64> for ReserveMib {
    type Error = String;

    fn try_from(mib: u64) -> Result<Self, String> {
        let least = RESERVE_BYTES_MIN / MIB;
        match mib {
            _ if mib < least => Err(format!("a reserve of {mib} MiB: a node needs at least {least}")),
            _ if mib > u64::MAX / MIB / 64 => Err(format!("a reserve of {mib} MiB is larger than any disk")),
            mib => Ok(Self(mib)),
        }
    }
}

impl std::str::FromStr for ReserveMib {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<u64>().map_err(|_| format!("{text:?} is no number of MiB"))?.try_into()
    }
}

impl ReserveMib {
    pub fn bytes(self) -> u64 {
        self.0 * MIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_that_a_node_cannot_work_with_is_refused() {
        assert!("3".parse::<ReserveMib>().unwrap_err().contains("at least 4"));
        assert!("x".parse::<ReserveMib>().unwrap_err().contains("no number"));
        assert!(u64::MAX.to_string().parse::<ReserveMib>().is_err());
        assert_eq!("4".parse(), Ok(ReserveMib(4)));
    }
}
