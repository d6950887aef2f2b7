//! Data that is no longer needed (R16) is discarded, and no node answers for it.

use super::{PROGRESS_NS, Report};
use crate::cluster::Cluster;
use crate::node::Node;
use nicekv_proto::{NodeId, PartitionId};

/// Whether the metadata service still knows of data that is no longer needed, or of dropped
/// keyspaces.
fn has_leftovers(cluster: &Cluster) -> bool {
    cluster.metadata().is_none_or(|metadata| {
        let status = metadata.status();
        status.leftovers > 0 || !status.dropped.is_empty()
    })
}

/// Checks that nodes have discarded partitions that they left and dropped keyspaces, and that no
/// node answers for a dropped keyspace.
pub(crate) fn judge(cluster: &mut Cluster, report: &mut Report) {
    let end_ns = cluster.now_ns() + PROGRESS_NS;
    // Load may still move partitions. A node reports that it has left one only with its next
    // heartbeat.
    cluster.run_until(end_ns, |cluster| !has_leftovers(cluster) && needless(cluster).is_empty());
    judge_nodes(cluster, report);
    judge_dropped(cluster, report);
}

fn judge_nodes(cluster: &Cluster, report: &mut Report) {
    let Some(metadata) = cluster.metadata() else { return };
    let status = metadata.status();
    if status.leftovers > 0 || !status.dropped.is_empty() {
        let line = format!("{} leftovers, dropped: {:?}", status.leftovers, status.dropped);
        report.violations.push(format!("unneeded data is not discarded (V): {line}"));
    }
    let kept = needless(cluster).into_iter();
    report
        .violations
        .extend(kept.map(|(node, id)| format!("{node} keeps something of partition {id} (R16)")));
}

/// For each node, the first partition of which it holds data that is no longer needed.
fn needless(cluster: &Cluster) -> Vec<(NodeId, PartitionId)> {
    let Some(metadata) = cluster.metadata() else { return Vec::new() };
    let status = metadata.status();
    // Removed nodes do not count.
    let is_known = |id: NodeId| status.nodes.iter().any(|known| known.id == id.0);
    let of_node = |node: &Node| {
        // An original member that is away still needs its data for its return.
        let is_needed = |id: PartitionId| {
            let partition = status.partitions.iter().find(|partition| partition.id == id.0);
            partition.is_some_and(|known| {
                let is_member = known.members.iter().any(|member| member.node == node.id.0);
                is_member || known.away.contains(&node.id.to_string())
            })
        };
        let (id, _) = node.disk.entries().keys().find(|(id, _)| !is_needed(*id))?;
        Some((node.id, *id))
    };
    cluster.nodes().iter().filter(|node| is_known(node.id)).filter_map(of_node).collect()
}

/// Checks that no node answered for a dropped keyspace (R16).
fn judge_dropped(cluster: &Cluster, report: &mut Report) {
    let keys = &cluster.scenario().workload.keys;
    for call in cluster.clients().iter().flat_map(|client| client.history()) {
        let number = keys[call.key].keyspace;
        let since = cluster.created().quiet_since(number);
        if since.is_some_and(|since| call.call.called > since) && call.call.answered.is_some() {
            report.violations.push(format!(
                "a call on keyspace {number} is answered after the keyspace was dropped (R16)"
            ));
            return;
        }
    }
}
