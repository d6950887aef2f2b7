//! Faults injected into a partition under load: one of its nodes is killed, or an operator splits,
//! merges and moves it.

use super::unreadable;
use crate::error::{BenchError, Result};
use crate::lab::Lab;
use nicekv_lab::topology::Host;
use serde_json::Value;

/// The role of a node in the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Primary,
    Secondary,
    /// Roles of a chain.
    Head,
    Middle,
    Tail,
}

/// A fault, or an operator's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill(Role),
    Split,
    /// Merges the two halves of the last split.
    Merge,
    /// A member's node is drained: another node takes its place.
    MoveAway,
    /// The drained node joins again.
    MoveBack,
}

const OPERATED: [Fault; 4] = [Fault::Split, Fault::Merge, Fault::MoveAway, Fault::MoveBack];

impl Fault {
    /// All faults of partitions with a primary, or of chains, in the order of a round.
    pub(crate) fn all(is_chain: bool) -> Vec<Self> {
        let roles: &[Role] = match is_chain {
            true => &[Role::Head, Role::Middle, Role::Tail],
            false => &[Role::Secondary, Role::Primary],
        };
        roles.iter().copied().map(Self::Kill).chain(OPERATED).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill(Role::Primary) => "SIGKILL of a primary",
            Self::Kill(Role::Secondary) => "SIGKILL of a secondary",
            Self::Kill(Role::Head) => "SIGKILL of a head",
            Self::Kill(Role::Middle) => "SIGKILL of a middle",
            Self::Kill(Role::Tail) => "SIGKILL of a tail",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::MoveAway => "move of a member away",
            Self::MoveBack => "move of a member back",
        }
    }

    /// Target for the median time without a put.
    pub(crate) fn target_ms(self) -> f64 {
        if matches!(self, Self::Kill(_)) { 200.0 } else { 100.0 }
    }

    /// Returns when it has happened; a killed node is still down. `drained` is the node that a
    /// member was moved away from.
    pub(crate) fn inject(self, lab: &Lab, partition: &Partition, drained: &mut Option<String>) -> Result<()> {
        match self {
            Self::Kill(role) => lab.command(&["kill", &partition.node(role)?]),
            Self::Split => lab.operate(&["partition", "split", &partition.id]),
            Self::Merge => lab.operate(&["partition", "merge", &partition.id, &partition.next_id]),
            Self::MoveAway => {
                let node = drained.insert(partition.node(Role::Secondary)?);
                lab.operate(&["node", "drain", node])
            }
            Self::MoveBack => {
                let node = drained.take().ok_or_else(|| BenchError::Failed("no node is drained".into()))?;
                let status = lab.status()?;
                let config = status["config"].as_str().ok_or_else(|| unreadable(&status))?;
                lab.operate(&["node", "add", &node, "--config", config])
            }
        }
    }

    /// Starts a killed node again.
    pub(crate) fn undo(self, lab: &Lab, partition: &Partition) -> Result<()> {
        match self {
            Self::Kill(role) => lab.command(&["start", &partition.node(role)?]),
            _ => Ok(()),
        }
    }
}

/// The first partition of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    id: String,
    /// Id of the next partition.
    next_id: String,
    /// Node ids, that of the primary or the head first.
    members: Vec<u64>,
    /// First and last match value.
    pub(crate) range: (u128, u128),
}

impl Partition {
    /// Read from the cluster's status.
    pub(crate) fn first_of(keyspace: u16, status: &Value) -> Result<Self> {
        let mut all: Vec<&Value> = status["partitions"].as_array().into_iter().flatten().collect();
        all.retain(|partition| partition["keyspace"] == keyspace);
        all.sort_by_key(|partition| value(partition, "first"));
        let (Some(partition), Some(next)) = (all.first(), all.get(1)) else { return Err(unreadable(status)) };
        let read = || {
            let first = partition["primary"].as_u64()?;
            let members = partition["members"].as_array()?.iter();
            let mut members: Vec<u64> = members.filter_map(|member| member["node"].as_u64()).collect();
            // The members of a chain are in its order already.
            members.sort_by_key(|node| *node != first);
            Some(Self {
                id: partition["id"].as_u64()?.to_string(),
                next_id: next["id"].as_u64()?.to_string(),
                members,
                range: (value(partition, "first")?, value(partition, "last")?),
            })
        };
        read().ok_or_else(|| unreadable(status))
    }

    /// The name of the node that has this role.
    pub(crate) fn node(&self, role: Role) -> Result<String> {
        let node = match role {
            Role::Primary | Role::Head => self.members.first(),
            Role::Secondary | Role::Middle => self.members.get(1),
            Role::Tail => self.members.last(),
        };
        let node = node.and_then(|node| u8::try_from(*node).ok());
        let missing = || BenchError::Failed(format!("partition {} has no {role:?}", self.id));
        node.map(|node| Host::Node(node).to_string()).ok_or_else(missing)
    }
}

fn value(partition: &Value, name: &str) -> Option<u128> {
    u128::from_str_radix(partition[name].as_str()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_partition_is_read_from_the_status() {
        let member = |node: u64| json!({ "node": node });
        let of = |keyspace: u64, id: u64, first: &str, members: [u64; 3]| {
            let (last, members) = (format!("{first}f"), members.map(member));
            json!({ "keyspace": keyspace, "id": id, "first": first, "last": last, "primary": 2, "members": members })
        };
        let partitions = [
            of(1, 9, "8", [0, 1, 2]),
            of(0, 1, "0", [0, 1, 2]),
            of(0, 5, "4", [2, 1, 0]),
            of(1, 7, "0", [4, 2, 3]),
        ];
        let status = json!({ "partitions": partitions });
        let read = Partition::first_of(1, &status).unwrap();
        assert_eq!((read.id.as_str(), read.next_id.as_str(), read.range), ("7", "9", (0, 0xf)));
        let roles = [Role::Head, Role::Middle, Role::Tail].map(|role| read.node(role).unwrap());
        assert_eq!(roles, ["node-2", "node-4", "node-3"], "the primary comes first");
        assert!(Partition::first_of(2, &status).is_err());
        assert!(Partition { members: Vec::new(), ..read }.node(Role::Head).is_err());
    }
}
