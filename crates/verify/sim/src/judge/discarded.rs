//! Data that is no longer needed (R16) is discarded, and no node answers for it.

use super::{PROGRESS_NS, Report};
use crate::cluster::Cluster;
use crate::node::Node;
use nicekv_proto::{NodeId, PartitionId};

/// Whether somebody still holds what nobody needs, as far as the metadata service knows.
fn has_leftovers(cluster: &Cluster) -> bool {
    cluster.metadata().is_none_or(|metadata| {
        let status = metadata.status();
        status.leftovers > 0 || !status.dropped.is_empty()
    })
}

/// What a node holds of partitions that it has left, or whose keyspace is dropped, is discarded; what is dropped is not answered for.
pub(crate) fn judge(cluster: &mut Cluster, report: &mut Report) {
    let end_ns = cluster.now_ns() + PROGRESS_NS;
    // Load may still move partitions: what one of them has just left is told with a node's next heartbeat only.
    cluster.run_until(end_ns, |cluster| !has_leftovers(cluster) && needless(cluster).is_empty());
    judge_nodes(cluster, report);
    judge_dropped(cluster, report);
}

fn judge_nodes(cluster: &Cluster, report: &mut Report) {
    let Some(metadata) = cluster.metadata() else { return };
    let status = metadata.status();
    if status.leftovers > 0 || !status.dropped.is_empty() {
        let line = format!("{} leftovers, dropped: {:?}", status.leftovers, status.dropped);
        report.violations.push(format!("what nobody needs is kept (V): {line}"));
    }
    let kept = needless(cluster).into_iter();
    report
        .violations
        .extend(kept.map(|(node, id)| format!("{node} keeps something of partition {id} (R16)")));
}

/// Of each node of the cluster the first partition of which it holds something that nobody needs.
fn needless(cluster: &Cluster) -> Vec<(NodeId, PartitionId)> {
    let Some(metadata) = cluster.metadata() else { return Vec::new() };
    let status = metadata.status();
    // What is removed is none of ours.
    let is_known = |id: NodeId| status.nodes.iter().any(|known| known.id == id.0);
    let of_node = |node: &Node| {
        // An original that is away comes back to what it holds.
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

/// Nobody answers for a keyspace that is gone (R16).
fn judge_dropped(cluster: &Cluster, report: &mut Report) {
    let keys = &cluster.scenario().workload.keys;
    for call in cluster.clients().iter().flat_map(|client| client.history()) {
        let number = keys[call.key].keyspace;
        let since = cluster.created().quiet_since(number);
        if since.is_some_and(|since| call.call.called > since) && call.call.answered.is_some() {
            report
                .violations
                .push(format!("keyspace {number} is dropped, and answers a call after that (R16)"));
            return;
        }
    }
}
