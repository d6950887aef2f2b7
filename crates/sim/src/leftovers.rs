//! What must hold of what nobody needs any more (R16): it is discarded, and not answered for.

use crate::cluster::Cluster;
use crate::judge::{PROGRESS_NS, Report};
use nicekv_wire::PartitionId;

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
    cluster.run_until(end_ns, |cluster| !has_leftovers(cluster));
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
    for node in cluster.nodes() {
        // What is removed is none of ours.
        if status.nodes.iter().all(|known| known.id != node.id.0) {
            continue;
        }
        // An original that is away comes back to what it holds.
        let is_needed = |id: PartitionId| {
            let partition = status.partitions.iter().find(|partition| partition.id == id.0);
            partition.is_some_and(|known| {
                let is_member = known.members.iter().any(|member| member.node == node.id.0);
                is_member || known.away.contains(&node.id.to_string())
            })
        };
        if let Some((id, _)) = node.disk.entries().keys().find(|(id, _)| !is_needed(*id)) {
            report.violations.push(format!("{} keeps something of partition {id} (R16)", node.id));
        }
    }
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
