//! A change that an operator asked for is on probation until every switch has installed the tables that follow from it. If one refuses them, the change is taken back: what a
//! switch refuses must not stand in the way of the next failover.
//!
//! ```text
//!   change ── persisted ──▶ tables g ── all switches installed g ──▶ stays
//!                                    └─ one refused g, or later ───▶ undone by the next step; the operator is told
//! ```
//!
//! This is the leader's own: a new leader finds the change made, and reports the refusal like any other.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_proto::KeyspaceId;

use crate::announce::rules;
use crate::config::Config;
use crate::leader::Metadata;
use crate::state::{State, Wish};

/// Most changes taken back that are remembered.
const TAKEN_BACK_MAX: usize = 8;

/// What a change is undone by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// The node is to be what it was: none of the cluster's, or drained.
    Node { name: String, wish: Wish },
    /// The keyspace is dropped.
    Keyspace { id: KeyspaceId, name: String },
}

#[derive(Clone, Debug)]
struct Watched {
    undo: Undo,
    /// Of the state with the change.
    version: u64,
    /// Of the tables that follow from it, once that state is persisted.
    generation: Option<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probation {
    watched: Option<Watched>,
    taken_back: Vec<String>,
}

impl Probation {
    /// What was taken back, the newest last.
    pub(crate) fn taken_back(&self) -> &[String] {
        &self.taken_back
    }

    /// The tables of the state with this version have this generation.
    pub(crate) fn handle_tables(&mut self, version: u64, generation: u64) {
        let watched = self.watched.as_mut().filter(|watched| watched.version == version);
        if let Some(watched) = watched {
            watched.generation = Some(generation);
        }
    }
}

impl Metadata {
    /// From now on the change that is being persisted is taken back if a switch refuses what follows from it.
    pub(crate) fn watch_switches(&mut self, undo: Undo) {
        // A switch that refuses what is there already does not refuse because of this change.
        let watched = Watched { undo, version: self.committed.version + 1, generation: None };
        let is_watched = self.observations.switches.connected_are_current();
        self.probation.watched = is_watched.then_some(watched);
    }

    /// The state without the change that a switch has just refused, if it has.
    pub(crate) fn taken_back(&mut self) -> Option<State> {
        let generation = self.probation.watched.as_ref()?.generation?;
        let Some((switch, reason)) = self.observations.switches.take_refusal(generation) else {
            if self.observations.switches.all_current() {
                self.probation.watched = None;
            }
            return None;
        };
        let Watched { undo, .. } = self.probation.watched.take()?;
        let mut next = self.committed.clone();
        let what = match &undo {
            Undo::Node { name, wish } => {
                let node = next.nodes.iter_mut().find(|node| node.config.name == *name)?;
                node.wish = *wish;
                let what = if *wish == Wish::Removed { "removed" } else { "drained" };
                format!("node {name} is {what} again")
            }
            Undo::Keyspace { id, name } => {
                next.keyspaces.iter().find(|spec| spec.id == *id)?;
                next.drop_keyspace(*id);
                format!("keyspace {name} is dropped again")
            }
        };
        self.probation.taken_back.push(format!("{what}: switch {} refused the tables: {reason}", switch.0));
        if self.probation.taken_back.len() > TAKEN_BACK_MAX {
            self.probation.taken_back.remove(0);
        }
        next.version += 1;
        Some(next)
    }

    /// Whether switches would have no room for a state, although they have room for the one that is there.
    pub(crate) fn overflows(&self, next: &State) -> bool {
        let vrings = self.config.vrings();
        let is_refused = |state: &State| {
            let config = Config { nodes: state.node_configs(), ..self.config.clone() };
            rules::compile(&config, state).validate(&vrings).is_err()
        };
        is_refused(next) && !is_refused(&self.committed)
    }
}
