//! The two clocks that cores use.

use nicekv_proto::Now;
use rustix::time::{ClockId, clock_gettime};

/// Reads both clocks. The boot-time clock also advances while the machine is suspended, so a lease
/// cannot outlive a suspension (R12).
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    let unix = clock_gettime(ClockId::Realtime);
    Now {
        boot_ns: boot.tv_sec as u64 * 1_000_000_000 + boot.tv_nsec as u64,
        // A wall clock before 1970 reads as 1970: it is used for expiry only.
        unix_ms: u64::try_from(unix.tv_sec).unwrap_or(0) * 1_000 + unix.tv_nsec as u64 / 1_000_000,
    }
}

/// Formats a duration for people: in seconds from ten seconds on, in tenths of a second below that,
/// in milliseconds below one second.
pub fn in_words(duration: std::time::Duration) -> String {
    match duration.as_millis() + u128::from(duration.subsec_nanos() % 1_000_000 >= 500_000) {
        milliseconds @ 0..1_000 => format!("{milliseconds} ms"),
        milliseconds => match (milliseconds + 50) / 100 {
            tenths @ 0..100 if tenths % 10 != 0 => format!("{}.{} s", tenths / 10, tenths % 10),
            _ => format!("{} s", (milliseconds + 500) / 1_000),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durations_are_rounded_for_people() {
        for (nanoseconds, words) in [
            (4_999_999_964, "5 s"),
            (0, "0 ms"),
            (1_499_999, "1 ms"),
            (999_600_000, "1 s"),
            (1_500_000_000, "1.5 s"),
            (9_970_000_000, "10 s"),
            (59_600_000_000, "60 s"),
        ] {
            assert_eq!(in_words(Duration::from_nanos(nanoseconds)), words);
        }
    }

    #[test]
    fn the_boot_clock_never_goes_back() {
        let mut last = now();
        for _ in 0..1_000 {
            let next = now();
            assert!(next.boot_ns >= last.boot_ns);
            last = next;
        }
        assert!(last.unix_ms > 1_600_000_000_000);
    }

    #[test]
    fn both_clocks_match_the_system() {
        let system = |clock| {
            let read = clock_gettime(clock);
            core::time::Duration::new(read.tv_sec as u64, read.tv_nsec as u32)
        };
        for _ in 0..10 {
            let before = (system(ClockId::Boottime), system(ClockId::Realtime));
            let now = now();
            let after = (system(ClockId::Boottime), system(ClockId::Realtime));
            assert!((before.0.as_nanos()..=after.0.as_nanos()).contains(&now.boot_ns.into()));
            assert!((before.1.as_millis()..=after.1.as_millis()).contains(&now.unix_ms.into()));
            std::thread::sleep(core::time::Duration::from_millis(7));
        }
    }
}
