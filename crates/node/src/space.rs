//! What a node's disk has room for (docs/FAULTS.md, row 9).

use nicekv_wire::Operation;

/// What a node's disk has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskSpace {
    /// Everything.
    #[default]
    Enough,
    /// What was set aside: decisions, and deletes, which are how space returns.
    Reserve,
    /// Decisions only, and perhaps not even these.
    Exhausted,
}

impl DiskSpace {
    /// Whether there is room for such an update.
    pub fn admits(self, operation: &Operation<'_>) -> bool {
        match self {
            Self::Enough => true,
            Self::Reserve => matches!(operation, Operation::Delete),
            Self::Exhausted => false,
        }
    }
}
