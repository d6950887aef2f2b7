//! Handoffs join and leave, and primaries change, when the originals of a partition come and go.
//! Five nodes, three replicas.

use nicekv_proto::{Duration, NodeId, PartitionId};

use super::cluster::{Cluster, config, partitions};
use super::scenarios::{epochs, is_gone, is_member, partition, puts_go_on};
use crate::state::{Partition, Standing};
use crate::{Health, MemberStanding};

const P0: PartitionId = PartitionId(0);

fn ready(change: impl FnOnce(&mut crate::Timing)) -> Cluster {
    let mut config = config(5, 3);
    config.timing.handoff_delay = Some(Duration::from_millis(200));
    change(&mut config.timing);
    let mut cluster = Cluster::new(config, 1);
    cluster.run_until_ready(200);
    cluster
}

fn original(cluster: &Cluster, index: usize) -> NodeId {
    partition(cluster, P0).originals[index]
}

fn handoffs(partition: &Partition) -> Vec<NodeId> {
    partition.handoffs().map(|member| member.node).collect()
}

fn serving_handoffs(cluster: &Cluster, id: PartitionId) -> usize {
    let serves = |member: &&crate::state::Member| member.standing == Standing::Serving;
    partition(cluster, id).handoffs().filter(serves).count()
}

/// Partitions of which the node is an original.
fn of(cluster: &Cluster, node: NodeId) -> Vec<PartitionId> {
    partitions().filter(|id| partition(cluster, *id).originals.contains(&node)).collect()
}

#[test]
fn handoff_joins_for_an_absent_original_and_leaves_when_it_returns() {
    let mut cluster = ready(|_| {});
    let away = original(&cluster, 1);
    cluster.kill(away);
    cluster.run_until(400, "removed", |cluster| is_gone(cluster, away));
    let took = cluster.run_until(400, "a handoff", |cluster| !handoffs(&partition(cluster, P0)).is_empty());
    assert!((190..230).contains(&took), "{took} ms");
    let touched = of(&cluster, away);
    cluster
        .run_until(300, "it serves", |cluster| touched.iter().all(|id| serving_handoffs(cluster, *id) == 1));
    let stand_in = handoffs(&partition(&cluster, P0))[0];
    cluster.run(10);
    assert!(cluster.is_routed(P0, stand_in), "the handoff gets a part of the gets");
    puts_go_on(&mut cluster);
    let loads = cluster
        .node_ids()
        .into_iter()
        .map(|node| touched.iter().filter(|id| handoffs(&partition(&cluster, **id)).contains(&node)).count());
    assert!(loads.max().unwrap() < touched.len().max(2), "handoffs are spread over the nodes");

    cluster.start(away);
    cluster.run_until(300, "both", |cluster| is_member(cluster, P0, away));
    assert!(is_member(&cluster, P0, stand_in), "the handoff stays until the original serves");
    cluster.run_until_ready(600);
    assert!(!is_member(&cluster, P0, stand_in) && !cluster.is_routed(P0, stand_in));
    puts_go_on(&mut cluster);
}

#[test]
fn original_that_returns_in_time_gets_no_handoff() {
    let mut cluster = ready(|_| {});
    let away = original(&cluster, 1);
    cluster.kill(away);
    cluster.run_until(400, "removed", |cluster| is_gone(cluster, away));
    cluster.run(100);
    cluster.start(away);
    cluster.run_until_ready(600);
    assert!(epochs(&cluster).iter().all(|epoch| *epoch <= 4), "three epochs: removed, joined, consistent");
}

#[test]
fn without_a_delay_there_are_no_handoffs() {
    let mut cluster = ready(|timing| timing.handoff_delay = None);
    cluster.kill(original(&cluster, 1));
    cluster.run(1500);
    assert!(partitions().all(|id| handoffs(&partition(&cluster, id)).is_empty()));
}

#[test]
fn two_failures_get_two_handoffs_at_once_and_one_original_is_enough() {
    let mut cluster = ready(|timing| timing.handoff_delay = Some(Duration::from_secs(60)));
    let [last, b, c] = [0, 1, 2].map(|index| original(&cluster, index));
    cluster.kill(b);
    cluster.run_until(400, "removed", |cluster| is_gone(cluster, b));
    cluster.run(100);
    assert!(
        handoffs(&partition(&cluster, P0)).is_empty(),
        "two of three members accept puts, so the delay applies"
    );
    cluster.kill(c);
    let took = cluster.run_until(500, "handoffs", |cluster| handoffs(&partition(cluster, P0)).len() == 2);
    assert!(took < 220, "{took} ms");
    cluster.run_until(300, "they serve", |cluster| serving_handoffs(cluster, P0) == 2);
    cluster.run(10);
    let before = cluster.acknowledged[&P0];
    cluster.run(20);
    assert!(cluster.acknowledged[&P0] > before, "puts continue with one original and two handoffs");

    // A handoff does not become the primary even if the last original dies.
    cluster.kill(last);
    cluster.run(1000);
    let stuck = partition(&cluster, P0);
    assert!(stuck.primary == last && stuck.member(last).is_some(), "{stuck:?}");
    for node in [last, b, c] {
        cluster.start(node);
    }
    cluster.run_until_ready(3000);
    cluster.run_until(100, "no handoffs", |cluster| {
        partitions().all(|id| handoffs(&partition(cluster, id)).is_empty())
    });
    cluster.run_until_ready(3000);
    puts_go_on(&mut cluster);
}

#[test]
fn dead_handoff_is_removed_and_replaced() {
    let mut cluster = ready(|_| {});
    cluster.kill(original(&cluster, 2));
    cluster.run_until(900, "a handoff serves", |cluster| serving_handoffs(cluster, P0) == 1);
    cluster.run(10);
    let first = handoffs(&partition(&cluster, P0))[0];
    cluster.kill(first);
    cluster.run_until(400, "removed", |cluster| !is_member(cluster, P0, first));
    assert!(handoffs(&partition(&cluster, P0)).is_empty(), "a removal adds no handoff");
    cluster.run_until(300, "replaced", |cluster| serving_handoffs(cluster, P0) == 1);
    assert_ne!(handoffs(&partition(&cluster, P0)), [first]);
    puts_go_on(&mut cluster);
}

#[test]
fn a_handoff_that_restarts_with_its_storage_stays() {
    let mut cluster = ready(|_| {});
    cluster.kill(original(&cluster, 2));
    cluster.run_until(900, "a handoff serves", |cluster| serving_handoffs(cluster, P0) == 1);
    cluster.run(50);
    let before = partition(&cluster, P0);
    let stand_in = handoffs(&before)[0];
    cluster.start(stand_in);
    cluster.run_until(200, "readmitted", |cluster| partition(cluster, P0).epoch > before.epoch);
    let after = partition(&cluster, P0);
    assert!(after.activated && after.member(stand_in).unwrap().standing.is_consistent(), "{after:?}");
    cluster.run_until(200, "serves again", |cluster| serving_handoffs(cluster, P0) == 1);
}

#[test]
fn partitions_are_given_back_to_their_first_original() {
    let mut cluster = ready(|timing| timing.rebalance_delay = Some(Duration::from_millis(500)));
    let leads = |node: &NodeId| partitions().filter(|id| partition(&cluster, *id).primary == *node).count();
    let first = cluster.node_ids().into_iter().max_by_key(leads).unwrap();
    cluster.kill(first);
    cluster.run_until(500, "others lead", |cluster| is_gone(cluster, first));
    let led: Vec<_> = partitions().filter(|id| partition(&cluster, *id).originals[0] == first).collect();
    cluster.run(100);
    cluster.start(first);
    cluster.run_until_ready(900);
    cluster.run(450);
    assert!(
        led.iter().all(|id| partition(&cluster, *id).primary != first),
        "leadership is not given back at once"
    );
    let before: Vec<_> = led.iter().map(|id| partition(&cluster, *id)).collect();
    cluster.run_until(500, "it leads again", |cluster| {
        led.iter().all(|id| partition(cluster, *id).primary == first)
    });
    for (before, id) in before.iter().zip(&led) {
        let after = partition(&cluster, *id);
        assert_eq!(after.epoch, before.epoch + 1);
        assert!(after.activated && after.removed.is_empty() && after.members == before.members);
    }
    cluster.run_until_ready(100);
    puts_go_on(&mut cluster);
}

#[test]
fn leadership_is_not_given_back_if_disabled() {
    let mut cluster = ready(|timing| timing.rebalance_delay = None);
    let first = original(&cluster, 0);
    cluster.kill(first);
    cluster.run_until(500, "others lead", |cluster| is_gone(cluster, first));
    cluster.start(first);
    cluster.run_until_ready(900);
    let primary = partition(&cluster, P0).primary;
    cluster.run(7000);
    assert_eq!(partition(&cluster, P0).primary, primary);
}

#[test]
fn status_reports_the_health_of_each_partition() {
    let mut cluster = ready(|timing| timing.handoff_delay = Some(Duration::from_millis(400)));
    let health = |cluster: &Cluster| cluster.status().partitions[0].health;
    assert_eq!((health(&cluster), cluster.status().health.whole), (Health::Whole, 4));
    let [last, b, c] = [0, 1, 2].map(|index| original(&cluster, index));
    cluster.kill(b);
    cluster.run_until(300, "silent", |cluster| health(cluster) == Health::Waiting);
    cluster.run_until(300, "without it", |cluster| health(cluster) == Health::Reduced);
    cluster.run(50);
    let status = cluster.status();
    assert_eq!(status.partitions[0].away, [format!("node-{}", b.0)]);
    assert!(status.health.reduced >= 1 && status.health.whole + status.health.reduced == 4);
    cluster.run_until(700, "a handoff", |cluster| health(cluster) == Health::Covered);
    let members = cluster.status().partitions[0].members.clone();
    let stand_in = members.iter().find(|member| member.handoff).unwrap();
    assert!(matches!(stand_in.standing, MemberStanding::Promoted | MemberStanding::Serving));
    let json = serde_json::to_value(cluster.status()).unwrap();
    assert_eq!(json["partitions"][0]["health"], "covered");
    cluster.kill(last);
    cluster.kill(c);
    cluster.run_until(300, "none", |cluster| health(cluster) == Health::Unavailable);
}
