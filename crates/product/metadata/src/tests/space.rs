//! Nodes whose disks are full.

use nicekv_proto::NodeId;
use nicekv_proto::control::DiskSpace;

use super::scenarios::{is_gone, puts_go_on, ready};
use crate::DiskState;

const FULL: NodeId = NodeId(2);

#[test]
fn a_node_returns_when_its_disk_has_room() {
    let mut cluster = ready(3, 3);
    cluster.kill(FULL);
    cluster.run_until(2000, "removed", |cluster| is_gone(cluster, FULL));
    cluster.nodes.get_mut(&FULL).unwrap().space = DiskSpace::Reserve;
    cluster.start(FULL);
    cluster.run(1000);
    assert!(is_gone(&cluster, FULL), "the full node is live, but not a member");
    puts_go_on(&mut cluster);
    let status = cluster.status();
    assert_eq!(status.nodes[1].disk, DiskState::Reserve);
    assert_eq!(status.why_not_ready.unwrap(), "partition 0: node-2 is barred until its disk has space");
    cluster.nodes.get_mut(&FULL).unwrap().space = DiskSpace::Enough;
    cluster.run_until_ready(2000);
    assert_eq!(cluster.status().nodes[1].disk, DiskState::Enough);
}

#[test]
fn a_member_that_becomes_full_stays() {
    let mut cluster = ready(3, 3);
    let before = super::scenarios::epochs(&cluster);
    cluster.nodes.get_mut(&FULL).unwrap().space = DiskSpace::Exhausted;
    cluster.run(1000);
    assert_eq!(super::scenarios::epochs(&cluster), before);
    assert_eq!(cluster.status().nodes[1].disk, DiskState::Exhausted);
    assert!(cluster.status().ready);
}
