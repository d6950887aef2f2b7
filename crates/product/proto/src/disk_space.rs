//! Free disk space of a node, as replicas report it.

use crate::Operation;
use crate::declare::code;

code! {
    /// Free disk space of a node (docs/FAULTS.md, row 9).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum DiskSpace {
        /// Enough for everything.
        #[default]
        Enough = 0,
        /// Only the reserve is left: decisions are stored, and deletes, which free space.
        Reserve = 1,
        /// Even the reserve may be used up: decisions are stored as long as possible.
        Exhausted = 2,
    }
}

impl DiskSpace {
    /// Whether there is room for this update.
    pub fn admits(self, operation: &Operation<'_>) -> bool {
        match self {
            Self::Enough => true,
            Self::Reserve => matches!(operation, Operation::Delete),
            Self::Exhausted => false,
        }
    }
}
