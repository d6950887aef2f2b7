//! The two clocks that cores are told of.

use nicekv_wire::Now;
use rustix::time::{ClockId, clock_gettime};

/// Reads both clocks. The boot-time clock goes on while the machine is suspended: a lease cannot outlive a nap (R12).
pub fn now() -> Now {
    let boot = clock_gettime(ClockId::Boottime);
    let unix = clock_gettime(ClockId::Realtime);
    Now {
        boot_ns: boot.tv_sec as u64 * 1_000_000_000 + boot.tv_nsec as u64,
        // A wall clock set before 1970 reads as 1970: it decides about expiry only.
        unix_ms: u64::try_from(unix.tv_sec).unwrap_or(0) * 1_000 + unix.tv_nsec as u64 / 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn both_clocks_are_the_systems() {
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
