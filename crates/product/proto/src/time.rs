//! Time as the cores see it: they have no clock, so their drivers pass it in.

pub use core::time::Duration;

/// A reading of the driver's two clocks.
///
/// `boot_ns` is the boot-time clock (it also runs while the machine is suspended), the only one
/// used for leases and timeouts; it never goes backwards. `unix_ms` is the wall clock, used only to
/// compare expiry times: it may be wrong or jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since boot.
    pub boot_ns: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl Now {
    /// The boot-time clock `duration` from now, in nanoseconds.
    pub fn after(self, duration: Duration) -> u64 {
        self.boot_ns.saturating_add(duration.as_nanos() as u64)
    }
}
