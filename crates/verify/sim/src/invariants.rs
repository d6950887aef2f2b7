//! Invariants on the messages of a running cluster, those of its nodes and of the metadata service.
//!
//! * A single process leads a partition in an epoch: only a primary multicasts watermarks (check
//!   P).
//! * Tables send gets to the primary and to serving members, and to no other node (R6, R7).
//! * An epoch's primary decides an op once, and gives each index to one op (checks P and X).

use nicekv_metadata::{MemberStanding, Status as Metadata};
use nicekv_proto::chain::ChainEntry;
use nicekv_proto::{Datagram, Epoch, OpId, Opcode, PartitionId, Status};
use nicekv_switch::{HostId, TableSet};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Index of a node, and the number of its process.
type Process = (usize, u64);

#[derive(Clone, Debug, Default)]
pub struct Watch {
    leaders: HashMap<(PartitionId, Epoch), Process>,
    by_index: HashMap<(PartitionId, Epoch, u64), OpId>,
    by_op: HashMap<(PartitionId, Epoch, OpId), u64>,
    violation: Option<String>,
}

impl Watch {
    /// The first violation.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Records a violation, unless there is one already.
    pub fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Checks a datagram that a node sends, maybe to all members of a partition.
    pub fn node_sends(&mut self, sender: Process, is_to_members: bool, bytes: &[u8]) {
        if bytes.get(3) == Some(&(Opcode::Forwards as u8)) {
            return self.node_forwards(bytes);
        }
        if bytes.get(3) != Some(&(Opcode::Decisions as u8)) || self.violation.is_some() {
            return;
        }
        let Ok((_, Datagram::Decisions(decisions))) = Datagram::decode(bytes) else { return };
        if is_to_members {
            for watermark in decisions.watermarks.iter() {
                self.leads(sender, watermark.partition, watermark.epoch);
            }
        }
        // An op that was evicted from the client table may arrive again. It gets another decision,
        // without effect (R10).
        for decision in decisions.decisions.iter().filter(|decision| decision.status != Status::Expired) {
            self.decides(decision.partition, decision.origin, decision.index, decision.op);
        }
    }

    /// Checks a datagram that a node passes along a chain.
    fn node_forwards(&mut self, bytes: &[u8]) {
        let Ok((_, Datagram::Forwards(forwards))) = Datagram::decode(bytes) else { return };
        for ChainEntry { decision, .. } in forwards.entries.iter() {
            self.decides(decision.partition, decision.origin, decision.index, decision.op);
        }
    }

    /// Checks the tables that the metadata service sends to a switch in this state.
    pub fn tables_sent(&mut self, status: &Metadata, tables: &TableSet) {
        let asked = tables.unicast.iter().map(|entry| (entry.partition, entry.host.0));
        let asked = asked.chain(tables.division.iter().map(|entry| (entry.partition, entry.host.0)));
        // An entry that leads to another switch stands for several nodes, and names any of them.
        let is_here = |node: u16| tables.host(HostId(node)).is_some_and(|host| !host.is_remote);
        for (id, node) in asked.filter(|(_, node)| is_here(*node)) {
            let found = status.partitions.iter().find(|partition| partition.id == id);
            let serves = found.is_some_and(|partition| {
                let mut members = partition.members.iter();
                let serving = members.find(|member| member.node == node).map(|member| member.standing);
                let keyspace = status.keyspaces.iter().find(|keyspace| keyspace.id == partition.keyspace);
                let is_chain = keyspace.is_some_and(|keyspace| keyspace.replication == "chain");
                // The tail of a chain knows by itself whether it may answer (C7).
                let is_tail = is_chain && serving == Some(MemberStanding::Promoted);
                partition.primary == node || is_tail || serving == Some(MemberStanding::Serving)
            });
            if !serves && self.violation.is_none() {
                self.violation =
                    Some(format!("tables send gets of partition {id} to node-{node}, which does not serve"));
            }
        }
    }

    fn leads(&mut self, sender: Process, partition: PartitionId, epoch: Epoch) {
        let leader = *self.leaders.entry((partition, epoch)).or_insert(sender);
        if leader != sender {
            let (one, other, epoch) = (leader.0 + 1, sender.0 + 1, epoch.0);
            self.violation =
                Some(format!("partition {partition}: node-{one} and node-{other} lead in epoch {epoch} (P)"));
        }
    }

    fn decides(&mut self, partition: PartitionId, origin: Epoch, index: u64, op: OpId) {
        let known_op = *self.by_index.entry((partition, origin, index)).or_insert(op);
        let known_index = match self.by_op.entry((partition, origin, op)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(index),
        };
        let epoch = origin.0;
        if known_op != op {
            self.violation = Some(format!(
                "partition {partition}: decision {index} of epoch {epoch} is both {known_op} and {op} (P)"
            ));
        } else if known_index != index {
            self.violation = Some(format!(
                "partition {partition}: {op} is decided twice in epoch {epoch}, at {known_index} and {index} (X)"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::ClientId;

    fn op(sequence: u64) -> OpId {
        OpId { client: ClientId(1), sequence }
    }

    #[test]
    fn one_leader_one_decision() {
        let (partition, epoch) = (PartitionId(0), Epoch(3));
        let mut watch = Watch::default();
        watch.leads((0, 1), partition, epoch);
        watch.leads((0, 1), partition, epoch);
        watch.leads((1, 1), partition, Epoch(4));
        watch.decides(partition, epoch, 1, op(1));
        watch.decides(partition, epoch, 1, op(1));
        watch.decides(partition, Epoch(4), 1, op(2));
        watch.decides(partition, Epoch(4), 2, op(1));
        assert_eq!(watch.violation(), None);
        for spoil in [
            |watch: &mut Watch| watch.leads((0, 2), PartitionId(0), Epoch(3)),
            |watch: &mut Watch| watch.decides(PartitionId(0), Epoch(3), 1, op(9)),
            |watch: &mut Watch| watch.decides(PartitionId(0), Epoch(3), 5, op(1)),
        ] {
            let mut spoilt = watch.clone();
            spoil(&mut spoilt);
            assert!(spoilt.violation().is_some());
        }
    }
}
