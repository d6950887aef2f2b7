//! The result of a run.

#[derive(Clone, Debug, Default)]
pub struct ObjectReport {
    /// The violations; empty if there are none.
    pub violations: Vec<String>,
    /// Objects that were put.
    pub put: u64,
    /// Objects that were got.
    pub got: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    pub events: u64,
    /// Rounds of garbage collection that began.
    pub rounds: u64,
    /// Chunks that were deleted in these rounds.
    pub collected: u64,
    /// Processes that were killed.
    pub crashes: u64,
    /// Targets that were lost for good.
    pub lost: u64,
    /// Disks that were replaced by an older copy.
    pub older: u64,
    /// Changes of groups that completed.
    pub reshaped: u64,
    /// Chunks that targets put again since copies were missing.
    pub put_again: u64,
    /// Surplus copies that targets deleted.
    pub surplus: u64,
}
