//! Damaged entries and large values are repaired in time, even if no client reads them
//! (docs/FAULTS.md row 10).

use super::{PROGRESS_NS, Report, describe, is_quiet, members};
use crate::cluster::Cluster;
use nicekv_proto::PartitionId;

/// Damages some values of every node, and waits until its scrub has repaired them.
pub(crate) fn judge(cluster: &mut Cluster, report: &mut Report) {
    cluster.damage_values();
    let is_repaired = |cluster: &Cluster| {
        let mut partitions = cluster.repaired_partitions().into_iter();
        partitions.all(|partition| {
            members(cluster, partition).into_iter().all(|node| is_intact(cluster, node, partition))
        })
    };
    let end_ns = cluster.now_ns() + PROGRESS_NS;
    // An expired value may be about to be deleted just then: also wait until no op is open.
    cluster.run_until(end_ns, |cluster| is_repaired(cluster) && is_quiet(cluster));
    if !is_repaired(cluster) {
        report.violations.push(format!("damage is not repaired: {}", describe(cluster)));
    }
}

/// Whether all entries of a partition at a node are intact, and the large values that they refer
/// to.
fn is_intact(cluster: &Cluster, node: usize, partition: PartitionId) -> bool {
    let disk = &cluster.nodes()[node].disk;
    let has_value = |key| disk.large_value(key).is_none_or(|reference| disk.has_large(&reference));
    disk.entries().keys().filter(|(of, _)| *of == partition).all(|key| disk.is_intact(key) && has_value(key))
}
