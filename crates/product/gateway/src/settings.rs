//! The settings that CONFIG SET can change; the changes last until the process ends.

use nicekv_proto::Duration;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The settings, shared by all threads.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `slowlog-log-slower-than`, in microseconds; if negative, nothing is logged.
    slow_us: AtomicI64,
    /// `slowlog-max-len`.
    slow_kept: AtomicU64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { slow_us: AtomicI64::new(10_000), slow_kept: AtomicU64::new(128) }
    }
}

impl Settings {
    pub(crate) fn slow_us(&self) -> i64 {
        self.slow_us.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow_us(&self, slow_us: i64) {
        self.slow_us.store(slow_us, Ordering::Relaxed);
    }

    pub(crate) fn slow_kept(&self) -> u64 {
        self.slow_kept.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow_kept(&self, slow_kept: u64) {
        self.slow_kept.store(slow_kept, Ordering::Relaxed);
    }

    /// Whether the slow log may need the arguments of a command. `is_answered`: the command sends
    /// no request to the store, so its measured duration is 0.
    pub(crate) fn may_log(&self, is_answered: bool) -> bool {
        let slow_us = self.slow_us();
        slow_us == 0 || (slow_us > 0 && !is_answered)
    }

    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        u64::try_from(self.slow_us()).is_ok_and(|slow_us| took.as_micros() >= slow_us.into())
    }
}
