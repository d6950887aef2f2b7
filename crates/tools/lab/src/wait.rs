//! Waits until something succeeds, until a time, or until an operator interrupts; prints progress
//! lines while that takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{LabError, Result};

/// Maximum time until an interruption is noticed.
const NAP: Duration = Duration::from_millis(50);
/// Interval between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// A flag that SIGINT, SIGTERM and SIGHUP set.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, interrupted.clone())
            .map_err(LabError::system("handle signals"))?;
    }
    Ok(interrupted)
}

pub(crate) fn fail_if(interrupted: &AtomicBool) -> Result<()> {
    if interrupted.load(Ordering::Relaxed) { Err(LabError::Interrupted) } else { Ok(()) }
}

pub(crate) fn sleep_until(at: Instant, interrupted: &AtomicBool) -> Result<()> {
    loop {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        fail_if(interrupted)?;
        std::thread::sleep(left.min(NAP));
    }
}

/// Retries until a deadline, which several attempts may share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    timeout: Duration,
    deadline: Instant,
    pause: Duration,
}

impl Retry {
    /// Retries until `timeout` after `begin`, with a pause between two attempts.
    pub(crate) fn from(begin: Instant, timeout: Duration, pause: Duration) -> Self {
        Self { timeout, deadline: begin + timeout, pause }
    }

    /// Makes at least one attempt. The inner error is a reason to try again, and is returned if the
    /// time is over; an outer error or an interruption ends the attempts at once.
    pub(crate) fn run<T>(
        self,
        interrupted: &AtomicBool,
        mut attempt: impl FnMut() -> Result<std::result::Result<T, String>>,
    ) -> Result<T> {
        loop {
            fail_if(interrupted)?;
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

/// Progress lines of a slow command on standard error; none while it is fast.
pub(crate) struct Progress {
    command: &'static str,
    last: Instant,
}

impl Progress {
    pub(crate) fn of(command: &'static str) -> Self {
        Self { command, last: Instant::now() }
    }

    /// Prints a line if none was printed for a while.
    pub(crate) fn report(&mut self, what: impl FnOnce() -> String) {
        if self.last.elapsed() >= PROGRESS_INTERVAL {
            eprintln!("nicekv: {}: {}", self.command, what());
            self.last = Instant::now();
        }
    }
}
