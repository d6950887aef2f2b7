//! Since when no metadata service has answered this process. The error for an unanswered request
//! mentions it.
//!
//! Without a leader of the metadata service, the leases of nodes expire, gets stop, and failed
//! nodes are not replaced; a timeout alone would not show the cause.

use nicekv_runtime::{in_words, now};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Boot-time clock; 0: the metadata service answers, or was never polled.
static SILENT_SINCE_NS: AtomicU64 = AtomicU64::new(0);

/// Records that no metadata service has answered since this moment of the boot-time clock; `None`:
/// it answers.
pub fn note_metadata_silence(since_ns: Option<u64>) {
    SILENT_SINCE_NS.store(since_ns.map_or(0, |since_ns| since_ns.max(1)), Ordering::Relaxed);
}

/// Text appended to the error of an unanswered request; empty if the metadata service answers.
pub(crate) fn cause() -> String {
    match SILENT_SINCE_NS.load(Ordering::Relaxed) {
        0 => String::new(),
        since_ns => cause_at(now().boot_ns, since_ns),
    }
}

fn cause_at(now_ns: u64, since_ns: u64) -> String {
    let silent = in_words(Duration::from_nanos(now_ns.saturating_sub(since_ns)));
    format!(
        "; no metadata service has answered for {silent}, and without one the leases of nodes end and gets stop: start it again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_says_how_long_and_what_to_do() {
        let cause = cause_at(63_000_000_000, 1_000_000_000);
        assert!(cause.contains("for 62 s") && cause.contains("start it again"), "{cause}");
    }
}
