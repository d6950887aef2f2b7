//! CLIENT PAUSE: for a while no commands are run, or only those that do not write.

use nicekv_proto::{Duration, Now};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A held connection checks again after this time, because a pause may be ended early.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    paused: Mutex<Option<Paused>>,
    /// False if there is certainly no pause; then the lock need not be taken.
    is_any: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Paused {
    until_ns: u64,
    writes_only: bool,
}

impl Pause {
    fn change(&self, change: impl FnOnce(&mut Option<Paused>)) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut paused);
        self.is_any.store(paused.is_some(), Ordering::Release);
    }

    /// As in Redis, a pause during another one extends it to the later end and the stricter mode.
    pub(crate) fn begin(&self, now: Now, time: Duration, writes_only: bool) {
        let until_ns = now.after(time);
        self.change(|paused| {
            let before = paused.filter(|before| before.until_ns > now.boot_ns);
            let until_ns = before.map_or(until_ns, |before| before.until_ns.max(until_ns));
            let writes_only = writes_only && before.is_none_or(|before| before.writes_only);
            *paused = Some(Paused { until_ns, writes_only });
        });
    }

    pub(crate) fn end(&self) {
        self.change(|paused| *paused = None);
    }

    /// When to try a command again; `None` if no pause holds it back.
    pub(crate) fn holds(&self, now: Now, writes: bool) -> Option<u64> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        let mut found = None;
        self.change(|paused| {
            *paused = paused.filter(|paused| paused.until_ns > now.boot_ns);
            found = paused.filter(|paused| writes || !paused.writes_only);
        });
        found.map(|paused| paused.until_ns.min(now.after(CHECK_INTERVAL)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { boot_ns: ms * 1_000_000, unix_ms: ms }
    }

    #[test]
    fn commands_continue_when_a_pause_expires_or_is_ended() {
        let pause = Pause::default();
        assert_eq!(pause.holds(at(1), true), None);
        pause.begin(at(10), Duration::from_millis(100), true);
        assert_eq!((pause.holds(at(11), false), pause.holds(at(11), true)), (None, Some(31_000_000)));
        pause.begin(at(20), Duration::from_millis(1), false);
        assert_eq!((pause.holds(at(100), false), pause.holds(at(110), true)), (Some(110_000_000), None));
        pause.begin(at(120), Duration::from_millis(100), false);
        pause.end();
        assert_eq!(pause.holds(at(121), true), None);
    }
}
