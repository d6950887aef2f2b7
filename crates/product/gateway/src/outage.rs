//! Since when no metadata service answers this process: part of what clients are told when no replica answers them.
//!
//! Without one that leads, the leases of the nodes end and gets stop, and nothing stands in for a node that fails; but a request that
//! times out shows nothing of that by itself.

use nicekv_runtime::{in_words, now};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// On the boot-time clock; 0: it answers, or nobody has asked it.
static SILENT_SINCE_NS: AtomicU64 = AtomicU64::new(0);

/// The metadata service has not answered since this moment of the boot-time clock; `None`: it answers.
pub fn note_metadata_silence(since_ns: Option<u64>) {
    SILENT_SINCE_NS.store(since_ns.map_or(0, |since_ns| since_ns.max(1)), Ordering::Relaxed);
}

/// What is added to the error of a request that nobody has answered.
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
    fn the_cause_says_for_how_long_and_what_to_do() {
        let cause = cause_at(63_000_000_000, 1_000_000_000);
        assert!(cause.contains("for 62 s") && cause.contains("start it again"), "{cause}");
    }
}
