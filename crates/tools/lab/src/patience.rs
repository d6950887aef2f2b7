//! Trying until it succeeds.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::up::stop_if;

/// For how long, over all tries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    timeout: Duration,
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    /// For so long from `begin` on, with a pause between two tries.
    pub(crate) fn from(begin: Instant, timeout: Duration, pause: Duration) -> Self {
        Self { timeout, deadline: begin + timeout, pause }
    }

    /// Tries at least once; what went wrong is a reason, and the last one is told. An error, and an interruption, end it.
    pub(crate) fn retry<T>(
        self,
        interrupted: &AtomicBool,
        mut attempt: impl FnMut() -> Result<std::result::Result<T, String>>,
    ) -> Result<T> {
        loop {
            stop_if(interrupted)?;
            match attempt()? {
                Ok(success) => return Ok(success),
                Err(reason) if Instant::now() >= self.deadline => {
                    return Err(LabError::NotReady { seconds: self.timeout.as_secs(), reason });
                }
                Err(_) => std::thread::sleep(self.pause),
            }
        }
    }
}
