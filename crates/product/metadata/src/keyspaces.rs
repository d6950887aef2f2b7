//! Commands that create and drop keyspaces in a running cluster (R16).
//!
//! A new keyspace gets an id that no keyspace has ever had, and the last free pair of rings. The
//! rings of a dropped keyspace are not free until no node holds data of it. One step removes a
//! dropped keyspace from all tables, and all members from its partitions; the rest follows
//! ([`crate::decide`]).

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use nicekv_proto::KeyspaceId;
use nicekv_proto::placement::{KeyspaceDefaults, KeyspaceSpec, RingsBase, check_keyspaces};
use serde::{Deserialize, Serialize};

use crate::change::Refused;
use crate::decide;
use crate::leader::Metadata;
use crate::probation::Undo;
use crate::state::State;

/// A change of the set of keyspaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyspaceChange {
    /// Create a keyspace.
    Create {
        /// The keyspace's definition, as [`KeyspaceSpec::parse`] reads it, without id and rings.
        /// Settings that it leaves out are those of the default keyspace, except that replication
        /// is multicast.
        text: String,
    },
    /// Drop a keyspace with its data.
    Drop { name: String },
}

/// The effect of a [`KeyspaceChange`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyspacePlan {
    pub id: u16,
    pub name: String,
    /// The keyspace's definition with all of its settings.
    pub text: String,
    /// Replicas of partitions by node: its name, and the number that it will hold, or has held if
    /// the keyspace is dropped.
    pub replicas: Vec<(String, usize)>,
}

impl Metadata {
    /// The effect that a change would have.
    ///
    /// # Errors
    /// Why the change would be refused.
    pub fn plan_keyspace(&self, change: &KeyspaceChange) -> Result<KeyspacePlan, Refused> {
        self.with_keyspace(change).map(|(plan, _)| plan)
    }

    /// Begins a change like [`Metadata::change`].
    ///
    /// # Errors
    /// Why the change is refused.
    pub fn change_keyspace(&mut self, change: &KeyspaceChange) -> Result<KeyspacePlan, Refused> {
        let plan = self.begin_change(|metadata| metadata.with_keyspace(change))?;
        if let KeyspaceChange::Create { .. } = change {
            self.begin_probation(Undo::Keyspace { id: KeyspaceId(plan.id), name: plan.name.clone() });
        }
        Ok(plan)
    }

    fn with_keyspace(&self, change: &KeyspaceChange) -> Result<(KeyspacePlan, State), Refused> {
        self.check_begun()?;
        let mut next = self.committed.clone();
        match change {
            KeyspaceChange::Create { text } => {
                let spec = self.new_keyspace(text)?;
                if spec.chunks.is_some() && self.config.group_ring.is_none() {
                    return Err(Refused::NoGroupRing);
                }
                self.config.check_matching(&spec)?;
                self.check_fits(&spec)?;
                next.next_keyspace = next.next_keyspace.max(spec.id.0.saturating_add(1));
                decide::found(&self.situation(), &mut next, &spec)
                    .map_err(|absent| Refused::Absent { nodes: self.names(&absent) })?;
                self.check_tables(&next)?;
                Ok((plan_of(&next, &spec), next))
            }
            KeyspaceChange::Drop { name } => {
                let spec = next.keyspaces.iter().find(|spec| spec.name == *name).cloned();
                let spec = spec.ok_or_else(|| Refused::UnknownKeyspace { name: name.clone() })?;
                if spec.id == KeyspaceId::DEFAULT {
                    return Err(Refused::DefaultKeyspace { name: name.clone() });
                }
                let plan = plan_of(&next, &spec);
                next.drop_keyspace(spec.id);
                Ok((plan, next))
            }
        }
    }

    /// The keyspace to create, with an id and rings.
    fn new_keyspace(&self, text: &str) -> Result<KeyspaceSpec, Refused> {
        let state = &self.committed;
        let default = state.keyspaces.iter().find(|spec| spec.id == KeyspaceId::DEFAULT);
        let default = default.ok_or(Refused::NotBegun("it has no default keyspace"))?;
        // The largest id is not assigned, because `next_keyspace` could not follow it.
        if state.next_keyspace == u16::MAX {
            return Err(Refused::NoKeyspaceNumber);
        }
        let id = KeyspaceId(state.next_keyspace);
        let KeyspaceSpec { replicas, partitions, unicast, .. } = *default;
        let defaults = KeyspaceDefaults { id, replicas, partitions, rings: RingsBase::of(unicast) };
        let asked = KeyspaceSpec::parse(text, &defaults)?;
        let usual = KeyspaceSpec::of(&defaults);
        if (asked.id, asked.unicast, asked.multicast) != (usual.id, usual.unicast, usual.multicast) {
            return Err(Refused::Given { name: asked.name });
        }
        let (unicast, multicast) = self.free_rings()?;
        Ok(KeyspaceSpec { unicast, multicast, ..asked })
    }

    /// The last free pair of rings, because configured keyspaces usually take the first ones.
    fn free_rings(&self) -> Result<(Ipv4Addr, Ipv4Addr), Refused> {
        let state = &self.committed;
        let dropped = state.dropped.iter().map(|dropped| &dropped.spec);
        let taken: Vec<&KeyspaceSpec> =
            state.keyspaces.iter().chain(dropped).chain(state.unfounded(&self.config)).collect();
        let is_free = |pair: &(Ipv4Addr, Ipv4Addr)| taken.iter().all(|spec| spec.unicast != pair.0);
        let pairs = self.config.ring_pairs();
        let full = Refused::NoRings { pairs: pairs.len(), dropped: state.dropped.len() };
        pairs.into_iter().rfind(is_free).ok_or(full)
    }

    fn check_fits(&self, new: &KeyspaceSpec) -> Result<(), Refused> {
        let state = &self.committed;
        let there = state.keyspaces.iter().chain(state.unfounded(&self.config));
        let all: Vec<KeyspaceSpec> = there.chain([new]).cloned().collect();
        check_keyspaces(&all, state.ring().len())?;
        self.check_count(new.partitions)
    }
}

fn plan_of(state: &State, spec: &KeyspaceSpec) -> KeyspacePlan {
    let mut replicas = BTreeMap::<_, usize>::new();
    for (_, partition) in state.partitions().filter(|(_, partition)| partition.keyspace == spec.id) {
        for node in &partition.originals {
            *replicas.entry(*node).or_default() += 1;
        }
    }
    let name = |id| state.node(id).map_or_else(String::new, |node| node.config.name.clone());
    let replicas = replicas.into_iter().map(|(node, count)| (name(node), count)).collect();
    KeyspacePlan { id: spec.id.0, name: spec.name.clone(), text: spec.to_string(), replicas }
}
