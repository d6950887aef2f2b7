//! What a slow command is doing, on standard error: nothing while it is fast.

use std::time::{Duration, Instant};

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(3);

/// The lines of one command.
pub(crate) struct Progress {
    command: &'static str,
    last: Instant,
}

impl Progress {
    /// The command begins.
    pub(crate) fn of(command: &'static str) -> Self {
        Self { command, last: Instant::now() }
    }

    /// Says what is being done, if nothing has been said for a while.
    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.last.elapsed() >= INTERVAL {
            eprintln!("nicekv: {}: {}", self.command, what());
            self.last = Instant::now();
        }
    }
}
