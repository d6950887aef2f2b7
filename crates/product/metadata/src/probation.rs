//! Probation of operators' changes: a change is rolled back if a switch refuses the tables that
//! follow from it. Otherwise the refusal would also block the next failover.
//!
//! ```text
//!   change ── persisted ──▶ tables g ── all switches installed g ──▶ stays
//!                                    └─ one refused g, or later ───▶ rolled back by the next step; reported to the operator
//! ```
//!
//! Probation is not persisted: a new leader keeps the change, and reports the refusal like any
//! other.

use alloc::string::String;
use alloc::vec::Vec;

use nicekv_proto::KeyspaceId;

use crate::state::DesiredState;

/// Upper bound of rolled-back changes that are kept for status.
const ROLLED_BACK_MAX: usize = 8;

/// How to undo a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Restore the node's desired state, removed or drained.
    Node { name: String, desired: DesiredState },
    /// Drop the keyspace.
    Keyspace { id: KeyspaceId, name: String },
}

/// A change on probation.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) undo: Undo,
    /// The version of the state that contains the change.
    pub(crate) version: u64,
    /// The generation of the tables that follow from it; `None` until that state is persisted.
    pub(crate) generation: Option<u64>,
}

/// The newest change, while it is on probation, and changes that were rolled back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probation {
    pub(crate) watched: Option<Watched>,
    rolled_back: Vec<String>,
}

impl Probation {
    /// Descriptions of changes that were rolled back, the newest last.
    pub(crate) fn rolled_back(&self) -> &[String] {
        &self.rolled_back
    }

    /// Records that the tables of the state with this version are generation `generation`.
    pub(crate) fn handle_tables(&mut self, version: u64, generation: u64) {
        let watched = self.watched.as_mut().filter(|watched| watched.version == version);
        if let Some(watched) = watched {
            watched.generation = Some(generation);
        }
    }

    /// Records the description of a change that was rolled back.
    pub(crate) fn record_rollback(&mut self, description: String) {
        self.rolled_back.push(description);
        if self.rolled_back.len() > ROLLED_BACK_MAX {
            self.rolled_back.remove(0);
        }
    }
}
