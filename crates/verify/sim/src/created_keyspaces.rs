//! Keyspaces that were created during a run, and whether they still exist.

use crate::keyspace::Shape;
use nicekv_client::Keyspace;
use std::collections::BTreeMap;

/// The created keyspaces, by number.
#[derive(Clone, Debug, Default)]
pub struct Created {
    pub(crate) by_number: BTreeMap<u16, Life>,
    /// Version of the last observed metadata state.
    pub(crate) version: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) shape: Shape,
    pub(crate) known: Keyspace,
    pub(crate) is_there: bool,
    /// For a dropped keyspace: no node may answer calls made after this tick.
    pub(crate) quiet_since: Option<u64>,
}

impl Created {
    /// The shape of the keyspace with this number.
    pub(crate) fn shape(&self, number: u16) -> Option<Shape> {
        self.by_number.get(&number).map(|life| life.shape)
    }

    /// The keyspaces that exist.
    pub fn there(&self) -> impl Iterator<Item = (u16, Shape)> {
        self.by_number.iter().filter(|(_, life)| life.is_there).map(|(number, life)| (*number, life.shape))
    }

    /// Whether the keyspace with this number was dropped.
    pub fn is_gone(&self, number: u16) -> bool {
        self.by_number.get(&number).is_some_and(|life| !life.is_there)
    }

    /// The tick after which no node may answer for this keyspace number.
    pub fn quiet_since(&self, number: u16) -> Option<u64> {
        self.by_number.get(&number)?.quiet_since
    }
}
