//! How much room a node's disk has left, as replicas report it.

use crate::Operation;
use crate::declare::code;

code! {
    /// What a node's disk has room for (docs/FAULTS.md, row 9).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum DiskSpace {
        /// Everything.
        #[default]
        Enough = 0,
        /// What was set aside: decisions, and deletes, which are how space returns.
        Reserve = 1,
        /// Decisions only, and perhaps not even these.
        Exhausted = 2,
    }
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
