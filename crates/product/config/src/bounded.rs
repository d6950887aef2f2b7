//! Bounded numbers that the configuration files and the command line share.

use nicekv_proto::limits::{LARGE_BYTES_MAX, LARGE_VALUE_BYTES_MAX};
use nicekv_runtime::node::RESERVE_BYTES_MIN;
use serde::{Deserialize, Serialize};
use std::num::NonZero;
use std::thread::available_parallelism;

/// Conversions for a `usize` within `$bounds`; the error message may contain `{min}`, `{max}` and
/// `{number}`.
macro_rules! bounded {
    ($name:ident, $bounds:expr, $error:literal) => {
        impl TryFrom<usize> for $name {
            type Error = String;

            fn try_from(number: usize) -> Result<Self, String> {
                let bounds = $bounds;
                match bounds.contains(&number) {
                    true => Ok(Self(number)),
                    false => Err(format!($error, min = bounds.start(), max = bounds.end(), number = number)),
                }
            }
        }

        impl From<$name> for usize {
            fn from(bounded: $name) -> Self {
                bounded.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                text.parse::<usize>().map_err(|error| error.to_string())?.try_into()
            }
        }
    };
}

/// The longest value in MiB, 1 to 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct ValueLimit(usize);

impl ValueLimit {
    const MIB_MAX: usize = LARGE_BYTES_MAX as usize >> 20;
    pub const DEFAULT: Self = Self(LARGE_VALUE_BYTES_MAX as usize >> 20);

    pub fn bytes(self) -> usize {
        self.0 << 20
    }
}

bounded!(ValueLimit, 1..=ValueLimit::MIB_MAX, "the longest value has {min} to {max} MiB, not {number}");

/// Equals `nicekv_gateway::THREADS_MAX`.
const THREADS_MAX: usize = 64;

/// Threads of a gateway, 1 to [`THREADS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct ThreadCount(usize);

impl ThreadCount {
    /// Upper bound of the default, which is half of the processors: the other half is left for
    /// replicas, clients and the kernel.
    const DEFAULT_MAX: usize = 8;

    /// The default on a machine with this many processors.
    fn default_of(processors: usize) -> Self {
        Self((processors / 2).clamp(1, Self::DEFAULT_MAX))
    }

    pub fn default_here() -> Self {
        Self::default_of(available_parallelism().map_or(1, NonZero::get))
    }

    pub const ONE: Self = Self(1);
}

bounded!(ThreadCount, 1..=THREADS_MAX, "a gateway has {min} to {max} threads, not {number}");

const MIB: u64 = 1 << 20;

/// MiB that a node sets aside for a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct ReserveMib(u64);

impl TryFrom<u64> for ReserveMib {
    type Error = String;

    fn try_from(mib: u64) -> Result<Self, String> {
        let least = RESERVE_BYTES_MIN / MIB;
        match mib {
            _ if mib < least => Err(format!("a reserve of {mib} MiB is too small: at least {least}")),
            _ if mib > u64::MAX / MIB / 64 => Err(format!("a reserve of {mib} MiB is larger than any disk")),
            mib => Ok(Self(mib)),
        }
    }
}

impl std::str::FromStr for ReserveMib {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<u64>().map_err(|_| format!("{text:?} is not a whole number of MiB"))?.try_into()
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
    fn value_limit_is_bounded_by_the_largest_transfer() {
        assert_eq!("512".parse::<ValueLimit>().unwrap().bytes(), LARGE_BYTES_MAX as usize);
        for refused in ["0", "513"] {
            let error = refused.parse::<ValueLimit>().unwrap_err();
            assert_eq!(error, format!("the longest value has 1 to 512 MiB, not {refused}"));
        }
        assert!("64M".parse::<ValueLimit>().is_err());
    }

    #[test]
    fn thread_count_is_bounded_and_defaults_to_half_the_processors() {
        let defaults = [1, 2, 3, 4, 8, 16, 128].map(|processors| ThreadCount::default_of(processors).0);
        assert_eq!(defaults, [1, 1, 1, 2, 4, 8, 8]);
        assert_eq!(THREADS_MAX, nicekv_gateway::THREADS_MAX);
        assert_eq!("64".parse(), Ok(ThreadCount(64)));
        for refused in ["0", "65"] {
            let error = refused.parse::<ThreadCount>().unwrap_err();
            assert_eq!(error, format!("a gateway has 1 to 64 threads, not {refused}"));
        }
        assert!("-1".parse::<ThreadCount>().is_err());
    }

    #[test]
    fn reserve_has_a_lower_bound() {
        assert_eq!("3".parse::<ReserveMib>().unwrap_err(), "a reserve of 3 MiB is too small: at least 4");
        assert_eq!("x".parse::<ReserveMib>().unwrap_err(), "\"x\" is not a whole number of MiB");
        assert!(u64::MAX.to_string().parse::<ReserveMib>().is_err());
        assert_eq!("4".parse(), Ok(ReserveMib(4)));
    }
}
