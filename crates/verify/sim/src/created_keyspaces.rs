//! Keyspaces that were created during a run, and whether they still exist.

use crate::keyspace::Shape;
use nicekv_client::Keyspace;
use std::collections::BTreeMap;

/// Those that were created, by number.
#[derive(Clone, Debug, Default)]
pub struct Created {
    pub(crate) by_number: BTreeMap<u16, Life>,
    /// Of the state that was looked at last.
    pub(crate) version: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) shape: Shape,
    pub(crate) known: Keyspace,
    pub(crate) is_there: bool,
    /// The call since which nobody may answer.
    pub(crate) quiet_since: Option<u64>,
}

impl Created {
    /// What is replicated how.
    pub(crate) fn shape(&self, number: u16) -> Option<Shape> {
        self.by_number.get(&number).map(|life| life.shape)
    }

    /// Those that are there.
    pub fn there(&self) -> impl Iterator<Item = (u16, Shape)> {
        self.by_number.iter().filter(|(_, life)| life.is_there).map(|(number, life)| (*number, life.shape))
    }

    /// Whether there is no keyspace of this number any more.
    pub fn is_gone(&self, number: u16) -> bool {
        self.by_number.get(&number).is_some_and(|life| !life.is_there)
    }

    /// The call since which nobody may answer for this number.
    pub fn quiet_since(&self, number: u16) -> Option<u64> {
        self.by_number.get(&number)?.quiet_since
    }
}
