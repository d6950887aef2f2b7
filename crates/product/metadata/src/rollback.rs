//! Rolls back a change whose tables a switch has refused ([`crate::probation`]).

use alloc::format;

use crate::announce::rules;
use crate::config::Config;
use crate::leader::Metadata;
use crate::probation::{Undo, Watched};
use crate::state::{DesiredState, State};

impl Metadata {
    /// Puts the change that is being persisted on probation.
    pub(crate) fn begin_probation(&mut self, undo: Undo) {
        // If a switch already refuses the current tables, that is not because of this change.
        let watched = Watched { undo, version: self.committed.version + 1, generation: None };
        let is_watched = self.observations.switches.connected_are_current();
        self.probation.watched = is_watched.then_some(watched);
    }

    /// The state after the change is rolled back; `None` unless a switch has refused its tables.
    pub(crate) fn rolled_back(&mut self) -> Option<State> {
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
            Undo::Node { name, desired } => {
                let node = next.nodes.iter_mut().find(|node| node.config.name == *name)?;
                node.desired = *desired;
                let what = if *desired == DesiredState::Removed { "removed" } else { "drained" };
                format!("node {name} is {what} again")
            }
            Undo::Keyspace { id, name } => {
                next.keyspaces.iter().find(|spec| spec.id == *id)?;
                next.drop_keyspace(*id);
                format!("keyspace {name} is dropped again")
            }
        };
        self.probation.record_rollback(format!("{what}: switch {} refused the tables: {reason}", switch.0));
        next.version += 1;
        Some(next)
    }

    /// Whether the tables of `next` exceed the switches' capacity, although the tables of the
    /// committed state do not.
    pub(crate) fn overflows(&self, next: &State) -> bool {
        let vrings = self.config.vrings();
        let is_refused = |state: &State| {
            let config = Config { nodes: state.node_configs(), ..self.config.clone() };
            rules::compile(&config, state).validate(&vrings).is_err()
        };
        is_refused(next) && !is_refused(&self.committed)
    }
}
