//! How many threads a gateway has.

use crate::bounded::bounded;
use serde::{Deserialize, Serialize};
use std::num::NonZero;
use std::thread::available_parallelism;

/// As `nicekv_gateway::THREADS_MAX`.
const THREADS_MAX: usize = 64;

/// How many threads a gateway has: 1 to [`THREADS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct ThreadCount(usize);

impl ThreadCount {
    /// A half of the processors, but not more than this: the other half is for replicas, clients and the kernel.
    const DEFAULT_MAX: usize = 8;

    /// Where nothing is said, on a machine with so many processors.
    fn default_of(processors: usize) -> Self {
        Self((processors / 2).clamp(1, Self::DEFAULT_MAX))
    }

    pub fn default_here() -> Self {
        Self::default_of(available_parallelism().map_or(1, NonZero::get))
    }

    /// One thread alone.
    pub const ONE: Self = Self(1);
}

bounded!(ThreadCount, 1..=THREADS_MAX, "a gateway has {min} to {max} threads, not {number}");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_gateway_are_bounded_and_half_the_processors_unless_said() {
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
}
