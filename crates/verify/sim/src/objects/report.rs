//! The result of a run.

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ObjectReport {
    /// What was wrong; empty if nothing was.
    pub violations: Vec<String>,
    /// Objects that were put, got, copied and deleted; those whose end is unknown.
    pub put: u64,
    /// See `put`.
    pub got: u64,
    /// See `put`.
    pub deleted: u64,
    /// See `put`.
    pub unknown: u64,
    /// Events of the run.
    pub events: u64,
    /// Rounds of garbage collection that began, and chunks that were deleted in them.
    pub rounds: u64,
    /// See `rounds`.
    pub collected: u64,
    /// Processes that were killed.
    pub crashes: u64,
    /// Targets that were lost for good, and reshapings of groups that came to their end.
    pub lost: u64,
    /// Disks that were put back as they were.
    pub older: u64,
    /// See `lost`.
    pub reshaped: u64,
    /// Chunks that targets put again, and copies that they dropped because there were enough.
    pub put_again: u64,
    /// See `put_again`.
    pub surplus: u64,
}
