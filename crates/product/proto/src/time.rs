//! The project's own time: cores have no clock, drivers tell them what time it is.

pub use core::time::Duration;

/// One reading of the driver's two clocks.
///
/// `boot_ns` is the boot-time clock (it runs on while the machine is suspended), the only one that leases and timeouts use; it
/// never goes backwards. `unix_ms` is the wall clock, used to decide that an expiry time has passed, and for nothing else: it may be
/// wrong or jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since boot.
    pub boot_ns: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl Now {
    /// The boot-time clock's reading `duration` later, in nanoseconds.
    pub fn after(self, duration: Duration) -> u64 {
        self.boot_ns.saturating_add(duration.as_nanos() as u64)
    }
}
