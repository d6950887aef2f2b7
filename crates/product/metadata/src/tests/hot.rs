//! Hot keys with the reference switch. A key that is requested often soon gets an entry, and loses
//! it when it is not. Entries follow the primaries of their keys, and are removed when their reason
//! is gone.

use std::net::SocketAddrV4;
use std::time::Duration;

use nicekv_proto::placement::LoadBalancing;
use nicekv_proto::{KeyDigest, KeyspaceId, NodeId, Now, PartitionId};
use nicekv_switch::control::{ControlReply, ControlRequest};
use nicekv_switch::{HostId, HotEntry, HotReading};

use super::cluster::{Cluster, config};
use crate::state::Partition;
use crate::{Config, HotSettings, HotStatus, KeyspaceChange, Refused, SwitchId};

/// The length of a period, in steps of a millisecond.
const PERIOD: u64 = 100;
const SWITCH: SwitchId = SwitchId(0);
const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

/// Six nodes, of which three hold each key.
fn hot_config() -> Config {
    let mut config = config(6, 3);
    config.keyspaces[0].balancing = LoadBalancing::Hot;
    config.switches = vec![SWITCH];
    config.balancing = crate::Balancing::None;
    config.hot = HotSettings { period: Duration::from_millis(PERIOD), ..HotSettings::default() };
    config
}

fn ready() -> Cluster {
    let mut cluster = Cluster::new(hot_config(), 7);
    cluster.run_until_ready(3_000);
    // The first reading is the baseline of later ones.
    cluster.run(PERIOD);
    cluster
}

fn digest(number: u16) -> KeyDigest {
    KeyDigest::of_match_value(u128::from(number) << 112 | 7)
}

fn vring(cluster: &Cluster, digest: &KeyDigest) -> SocketAddrV4 {
    cluster.config.keyspaces[0].vrings(cluster.config.port).unicast_address(digest)
}

/// The partition of a key, and its primary.
fn partition_of(cluster: &Cluster, number: u16) -> (PartitionId, NodeId) {
    let state = cluster.state().unwrap();
    let has_it = |partition: &Partition| partition.range.contains(digest(number).match_value());
    let (id, partition) = state.partitions().find(|(_, partition)| has_it(partition)).unwrap();
    (id, partition.primary)
}

/// Clients send gets of these keys for some time; each key has a number of gets per millisecond.
fn keep_asking(cluster: &mut Cluster, steps: u64, asked: &[(u16, u64)]) {
    for _ in 0..steps {
        for (number, times) in asked {
            let (digest, switch) = (digest(*number), cluster.config.switches[0]);
            let vring = vring(cluster, &digest);
            cluster.switches.get_mut(&switch).unwrap().get(vring, KEYSPACE, digest, *times);
        }
        cluster.run(1);
    }
}

fn entry(cluster: &Cluster, number: u16) -> Option<HotEntry> {
    let digest = digest(number).0;
    cluster.switches[&SWITCH].hot().entries().find(|entry| entry.digest == digest).cloned()
}

fn told(cluster: &Cluster) -> HotStatus {
    cluster.status().hot.expect("a keyspace has hot keys")
}

/// The last announcement to the primary of the key's partition: instance and number of holders.
fn assigned(cluster: &Cluster, number: u16) -> Option<(u64, usize)> {
    let (_, primary) = partition_of(cluster, number);
    let node = cluster.nodes[&primary].running.as_ref()?;
    node.hot.get(&digest(number)).map(|(instance, holders, _)| (*instance, *holders))
}

/// Whether this announcement says that the switch may store a copy.
fn is_assigned_to_switch(cluster: &Cluster, number: u16) -> Option<bool> {
    let (_, primary) = partition_of(cluster, number);
    let node = cluster.nodes[&primary].running.as_ref()?;
    node.hot.get(&digest(number)).map(|(_, _, in_switch)| *in_switch)
}

#[test]
fn hot_key_gets_holders_in_two_periods_and_loses_its_entry_in_three() {
    let mut cluster = ready();
    assert_eq!(entry(&cluster, 1), None);
    keep_asking(&mut cluster, 2 * PERIOD + 20, &[(1, 5)]);
    let found = entry(&cluster, 1).expect("the most requested key has an entry");
    let partition = cluster.state().unwrap();
    let (id, primary) = partition_of(&cluster, 1);
    let members: Vec<u16> =
        partition.partition(id).unwrap().members.iter().map(|member| member.node.0).collect();
    assert!(
        !found.holders.is_empty() && found.holders.iter().all(|holder| !members.contains(&holder.0)),
        "{found:?}"
    );
    assert_eq!((found.owner_turns, found.keyspace), (1, 0), "only the primary answers gets by default");
    let status = told(&cluster);
    let of_switch = &status.switches[0];
    assert_eq!((of_switch.entries, of_switch.copied, of_switch.copies), (1, 1, found.holders.len()));
    assert_eq!(of_switch.keys[0].owner, format!("node-{}", primary.0));
    assert!(of_switch.requests_per_second > 4_000 && of_switch.imbalance_percent > 50, "{of_switch:?}");
    cluster.run(20);
    assert_eq!(assigned(&cluster, 1), Some((found.instance, found.holders.len())));
    // Gets go to holders that have confirmed their copies.
    let (digest, holders) = (digest(1), found.holders.clone());
    let vring = vring(&cluster, &digest);
    let switch = cluster.switches.get_mut(&SWITCH).unwrap();
    for holder in &holders {
        switch.confirm(super::node::address(NodeId(holder.0)), vring, (KEYSPACE, digest), found.instance);
    }
    let asked = switch.get(vring, KEYSPACE, digest, 100);
    assert_eq!(asked.len(), 100);
    assert!(holders.iter().all(|holder| asked.contains(holder)) && asked.contains(&crate::host_id(primary)));
    // The key is not requested any more.
    cluster.run(3 * PERIOD + 20);
    assert_eq!((entry(&cluster, 1), told(&cluster).switches[0].entries), (None, 0));
    assert_eq!(assigned(&cluster, 1).unwrap().1, 0, "the owner was notified");
}

/// All holders of the key confirm their present copies.
fn confirm(cluster: &mut Cluster, number: u16) {
    let Some(entry) = entry(cluster, number) else { return };
    let (digest, vring) = (digest(number), vring(cluster, &digest(number)));
    let switch = cluster.switches.get_mut(&SWITCH).unwrap();
    for holder in entry.holders {
        switch.confirm(super::node::address(NodeId(holder.0)), vring, (KEYSPACE, digest), entry.instance);
    }
}

#[test]
fn fully_copied_key_does_not_cause_copies_of_others() {
    let mut cluster = ready();
    // One key has nearly all of the load, and three nodes may not have copies of it. So load stays
    // uneven, whatever is copied.
    let others: Vec<(u16, u64)> =
        (0..32).map(|number| (number << 11 | 2, u64::from(number % 3 == 0))).collect();
    let asked: Vec<(u16, u64)> = [(1, 40)].into_iter().chain(others).collect();
    for _ in 0..30 {
        keep_asking(&mut cluster, PERIOD, &asked);
        asked.iter().for_each(|(number, _)| confirm(&mut cluster, *number));
    }
    let told = told(&cluster);
    let of_switch = &told.switches[0];
    assert_eq!(entry(&cluster, 1).unwrap().holders.len(), 3, "all nodes that may have copies");
    assert!(of_switch.imbalance_percent > 30, "{of_switch:?}");
    let mean = of_switch.requests_per_second / 6;
    let start = u64::from(cluster.config.hot.keys.threshold_start_ppm);
    assert!(of_switch.threshold_per_second > mean * start / 1_000_000 / 64, "{of_switch:?}");
}

#[test]
fn hottest_key_is_stored_in_the_switch_until_it_is_cold() {
    let mut config = hot_config();
    config.hot.keys.values_max = 1;
    let mut cluster = Cluster::new(config, 7);
    cluster.run_until_ready(3_000);
    keep_asking(&mut cluster, 4 * PERIOD, &[(1, 9), (2, 5)]);
    let [first, second] = [1, 2].map(|number| entry(&cluster, number).unwrap());
    assert!(first.in_switch && !first.holders.is_empty(), "{first:?}");
    assert!(!second.in_switch && !second.holders.is_empty(), "{second:?}");
    assert_eq!([1, 2].map(|number| is_assigned_to_switch(&cluster, number)), [Some(true), Some(false)]);
    let told = told(&cluster);
    assert_eq!((told.switches[0].values, told.switches[0].keys[0].in_switch), (1, true));
    // Another key is hotter now, by more than a random difference.
    keep_asking(&mut cluster, 5 * PERIOD, &[(1, 5), (2, 9)]);
    let is_there = |number| entry(&cluster, number).map(|entry| entry.in_switch);
    assert_eq!([1, 2].map(is_there), [Some(false), Some(true)]);
    assert!(entry(&cluster, 1).unwrap().instance > first.instance, "the changed entry is a new instance");
    assert_eq!([1, 2].map(|number| is_assigned_to_switch(&cluster, number)), [Some(false), Some(true)]);
    cluster.run(4 * PERIOD);
    assert_eq!(is_assigned_to_switch(&cluster, 2), Some(false), "the owner was notified");
}

#[test]
fn switch_answers_are_reported_and_not_load_of_nodes() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 20), (2, 1)]);
    let (before, owner) = (entry(&cluster, 1).unwrap(), partition_of(&cluster, 1).1);
    let (digest, vring) = (digest(1), vring(&cluster, &digest(1)));
    let switch = cluster.switches.get_mut(&SWITCH).unwrap();
    switch.keep(super::node::address(owner), vring, (KEYSPACE, digest), before.instance);
    assert_eq!(switch.get(vring, KEYSPACE, digest, 10), [], "the switch answers itself");
    keep_asking(&mut cluster, 2 * PERIOD, &[(1, 20), (2, 1)]);
    let told = told(&cluster);
    let (of_switch, of_key) = (&told.switches[0], &told.switches[0].keys[0]);
    assert!((90..=96).contains(&of_switch.answered_percent()), "{of_switch:?}");
    assert!(of_key.in_switch && of_key.answered_per_second == of_key.requests_per_second, "{of_key:?}");
    // One node receives all other requests, which is six times the mean.
    assert_eq!(of_switch.most_loaded.as_ref().map(|(_, percent)| *percent), Some(600), "{of_switch:?}");
    assert_eq!(entry(&cluster, 1).unwrap(), before, "requests that the switch answers count for the plan");
}

#[test]
fn owners_learn_of_copies_in_the_switch_alone() {
    let mut config = hot_config();
    (config.hot.keys.values_max, config.hot.keys.holders_max) = (2, 0);
    let mut cluster = Cluster::new(config, 7);
    cluster.run_until_ready(3_000);
    keep_asking(&mut cluster, 6 * PERIOD, &[(1, 9), (2, 5), (3, 1)]);
    let entries = [1, 2, 3].map(|number| entry(&cluster, number).unwrap());
    assert!(entries.iter().all(|entry| entry.holders.is_empty()), "{entries:?}");
    assert_eq!(entries.map(|entry| entry.in_switch), [true, true, false]);
    for number in [1, 2] {
        let instance = entry(&cluster, number).unwrap().instance;
        assert_eq!(assigned(&cluster, number), Some((instance, 0)));
        assert_eq!(is_assigned_to_switch(&cluster, number), Some(true));
    }
    assert_eq!(assigned(&cluster, 3), None, "an entry without copies is not announced");
    let told = told(&cluster);
    assert_eq!((told.switches[0].copies, told.switches[0].values), (0, 2));
    cluster.run(4 * PERIOD);
    assert_eq!([1, 2].map(|number| is_assigned_to_switch(&cluster, number)), [Some(false); 2]);
}

#[test]
fn copies_of_a_key_are_bounded() {
    let mut config = hot_config();
    config.hot.keys.holders_max = 1;
    let mut cluster = Cluster::new(config, 7);
    cluster.run_until_ready(3_000);
    keep_asking(&mut cluster, 6 * PERIOD, &[(1, 20)]);
    let before = entry(&cluster, 1).unwrap();
    assert_eq!(before.holders.len(), 1);
    keep_asking(&mut cluster, 4 * PERIOD, &[(1, 40)]);
    assert_eq!(entry(&cluster, 1).unwrap().instance, before.instance, "more load does not change the entry");
}

#[test]
fn entries_of_a_primary_that_died_are_its_successors() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5)]);
    let before = entry(&cluster, 1).unwrap();
    let (_, primary) = partition_of(&cluster, 1);
    cluster.kill(primary);
    keep_asking(&mut cluster, 5 * PERIOD, &[(1, 5)]);
    let (_, successor) = partition_of(&cluster, 1);
    assert_ne!(successor, primary);
    let after = entry(&cluster, 1).unwrap();
    assert!(after.instance > before.instance, "{before:?}, {after:?}");
    assert!(!after.holders.contains(&crate::host_id(primary)), "{after:?}");
    assert_eq!(assigned(&cluster, 1), Some((after.instance, after.holders.len())));
    assert_eq!(told(&cluster).switches[0].keys[0].owner, format!("node-{}", successor.0));
}

#[test]
fn restarted_switch_gets_its_entries_as_new_instances() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5), (2, 1)]);
    let before = entry(&cluster, 1).unwrap();
    cluster.restart_switch(SWITCH);
    assert_eq!(entry(&cluster, 1), None);
    cluster.run(60);
    let after = entry(&cluster, 1).expect("the wanted entry is installed without another period");
    assert!(after.instance > before.instance && after.holders == before.holders, "{before:?}, {after:?}");
    keep_asking(&mut cluster, 2 * PERIOD, &[(1, 5), (2, 1)]);
    assert_eq!(assigned(&cluster, 1).unwrap().0, entry(&cluster, 1).unwrap().instance);
}

#[test]
fn new_leader_clears_entries_and_reuses_no_instance() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5)]);
    let before = entry(&cluster, 1).unwrap();
    let old_term = cluster.status().term;
    cluster.kill_metadata();
    cluster.start_metadata();
    cluster.run_until(1_000, "cleared", |cluster| entry(cluster, 1).is_none());
    keep_asking(&mut cluster, 4 * PERIOD, &[(1, 5)]);
    let after = entry(&cluster, 1).unwrap();
    assert!(after.instance >> 32 > before.instance >> 32, "{before:?}, {after:?}");
    // An outstanding request of the old leader is refused.
    let request = ControlRequest::ChangeHot { term: old_term, clear: true, removed: vec![], set: vec![] };
    let reply = cluster.switches.get_mut(&SWITCH).unwrap().handle(request);
    assert!(matches!(reply, ControlReply::Refused { .. }), "{reply:?}");
    assert_eq!(entry(&cluster, 1).unwrap().instance, after.instance);
}

#[test]
fn reply_of_another_term_is_only_counted() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5)]);
    let (before, stale) = (told(&cluster), cluster.status().counters.stale);
    let term = cluster.status().term;
    let now = Now { boot_ns: cluster.now_ns, unix_ms: 0 };
    for term in [term - 1, term + 1] {
        let reading = HotReading::default();
        cluster.core().handle_switch(now, SWITCH, ControlReply::Hot { term, reading });
        let reason = "no".to_string();
        cluster.core().handle_switch(now, SWITCH, ControlReply::HotFailed { term, reason });
    }
    assert_eq!((told(&cluster), cluster.status().counters.stale), (before, stale + 4));
}

#[test]
fn refusing_switch_is_reported_and_retried() {
    let mut cluster = ready();
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5)]);
    cluster.switches.get_mut(&SWITCH).unwrap().has_no_hot_keys = true;
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5), (2, 9)]);
    assert_eq!(told(&cluster).switches[0].failure.as_deref(), Some("no table of hot keys"));
    cluster.switches.get_mut(&SWITCH).unwrap().has_no_hot_keys = false;
    keep_asking(&mut cluster, 4 * PERIOD, &[(1, 5), (2, 9)]);
    assert!(entry(&cluster, 1).is_some() && entry(&cluster, 2).is_some(), "{:?}", told(&cluster));
    assert_eq!(told(&cluster).switches[0].failure, None);
}

#[test]
fn with_trunks_entries_are_in_the_primarys_switch() {
    let home = |node: NodeId| SwitchId((node.0 - 1) / 4);
    let mut config = hot_config();
    config.nodes = super::cluster::config(8, 2).nodes;
    config.keyspaces[0].replicas = 2;
    config.switches = vec![SwitchId(0), SwitchId(1)];
    config.nodes.iter_mut().for_each(|node| node.home = Some(home(node.id).0));
    config.topology.connect(0, 1, 90);
    config.topology.connect(1, 0, 90);
    let mut cluster = Cluster::new(config, 7);
    cluster.run_until_ready(5_000);
    cluster.run(PERIOD);
    let number = 1;
    let (_, primary) = partition_of(&cluster, number);
    let (of_primary, other) = (home(primary), SwitchId(1 - home(primary).0));
    for _ in 0..4 * PERIOD {
        let (digest, vring) = (digest(number), vring(&cluster, &digest(number)));
        // Clients send to both switches. The other switch forwards by the trunk, so that it does
        // not count the requests.
        for id in [of_primary, other] {
            let asked = cluster.switches.get_mut(&id).unwrap().get(vring, KEYSPACE, digest, 5);
            assert_eq!(asked.is_empty(), id == other);
        }
        cluster.run(1);
    }
    let entries = |id: SwitchId| cluster.switches[&id].hot().entries().cloned().collect::<Vec<_>>();
    let [entry] = &entries(of_primary)[..] else { panic!("expected one hot key: {:?}", told(&cluster)) };
    assert!(entries(other).is_empty());
    let is_here = |holder: &HostId| home(NodeId(holder.0)) == of_primary;
    assert!(!entry.holders.is_empty() && entry.holders.iter().all(is_here), "{entry:?}");
    assert_eq!(assigned(&cluster, number), Some((entry.instance, entry.holders.len())));
}

#[test]
fn edge_switches_spread_no_hot_keys_and_status_says_so() {
    let mut cluster = Cluster::new(Config { switches: vec![SwitchId(0), SwitchId(1)], ..hot_config() }, 7);
    cluster.run_until_ready(3_000);
    keep_asking(&mut cluster, 4 * PERIOD, &[(1, 5)]);
    assert_eq!(entry(&cluster, 1), None);
    assert!(told(&cluster).off.is_some_and(|why| why.contains("edge")));
}

#[test]
fn switches_are_not_read_without_hot_keyspaces() {
    let mut config = hot_config();
    config.keyspaces[0].balancing = LoadBalancing::None;
    let mut cluster = Cluster::new(config, 7);
    cluster.run_until_ready(3_000);
    keep_asking(&mut cluster, 3 * PERIOD, &[(1, 5)]);
    assert_eq!((cluster.status().hot, entry(&cluster, 1)), (None, None));
}

#[test]
fn created_keyspace_is_spread_and_dropped_one_leaves_no_entries() {
    let mut config = hot_config();
    config.keyspaces[0].balancing = LoadBalancing::None;
    let mut cluster = Cluster::new(config, 7);
    cluster.run_until_ready(3_000);
    let change = |cluster: &mut Cluster, wanted: &KeyspaceChange| {
        while let Err(refused) = cluster.core().change_keyspace(wanted) {
            assert_eq!(refused, Refused::Busy);
            cluster.run(1);
        }
    };
    let text = "carts=replicas=2,partitions=4,balancing=hot".to_string();
    change(&mut cluster, &KeyspaceChange::Create { text });
    cluster.run_until(3_000, "created", |cluster| cluster.status().ready && cluster.status().hot.is_some());
    cluster.run(PERIOD);
    let (id, rings) = (KeyspaceId(16), cluster.core().cluster_info().keyspace(16).unwrap().vrings(7400));
    for _ in 0..3 * PERIOD {
        let vring = rings.unicast_address(&digest(1));
        cluster.switches.get_mut(&SWITCH).unwrap().get(vring, id, digest(1), 5);
        cluster.run(1);
    }
    assert_eq!(entry(&cluster, 1).map(|entry| entry.keyspace), Some(16));
    change(&mut cluster, &KeyspaceChange::Drop { name: "carts".into() });
    cluster.run_until(3_000, "nothing is left", |cluster| {
        let is_forgotten = cluster.core.as_ref().is_some_and(|core| core.hot.racks.is_empty());
        entry(cluster, 1).is_none() && cluster.status().hot.is_none() && is_forgotten
    });
}
