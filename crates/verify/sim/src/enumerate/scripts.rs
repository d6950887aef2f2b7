//! The scripts: what the cluster does while faults are injected.

use super::MILLISECOND_NS;
use crate::checker::Action;
use crate::checker::model::{Change, When};
use crate::cluster::{Cluster, Fault, Scenario};
use crate::judge;
use crate::keyspace::Shape;
use crate::node::Kept;
use crate::scenarios::PARTITION;
use crate::scenarios::stories::quiet;
use nicekv_metadata::PartitionChange;

/// A short run: its preparation, and the part in which faults are injected.
pub struct Script {
    /// Its name on the command line.
    pub name: &'static str,
    nodes: usize,
    keyspace: Shape,
    before: fn(&mut Cluster),
    act: fn(&mut Cluster),
}

const PRIMARY: Shape = Shape::multicast(3, 0);
const HALVES: Shape = Shape::multicast(3, 1);
const QUORUM: Shape = Shape::quorum(3, 2);

pub const SCRIPTS: &[Script] = &[
    Script {
        name: "put",
        nodes: 3,
        keyspace: PRIMARY,
        before: |_| {},
        act: |cluster| {
            set(cluster, 0, "blue");
            cluster.get(1, 0);
        },
    },
    Script {
        name: "delete",
        nodes: 3,
        keyspace: PRIMARY,
        before: |cluster| {
            set(cluster, 0, "blue");
            run(cluster, 50);
        },
        act: |cluster| {
            update(cluster, 0, When::Always, Change::Delete);
            cluster.get(1, 0);
        },
    },
    Script {
        name: "increment",
        nodes: 3,
        keyspace: PRIMARY,
        before: |_| {},
        act: |cluster| {
            update(cluster, 0, When::Always, Change::Increment(1));
            update(cluster, 1, When::Always, Change::Increment(1));
        },
    },
    Script {
        name: "put-if-absent",
        nodes: 3,
        keyspace: PRIMARY,
        before: |_| {},
        act: |cluster| {
            update(cluster, 0, When::IfAbsent, Change::Set(b"blue".to_vec()));
            update(cluster, 1, When::IfAbsent, Change::Set(b"green".to_vec()));
        },
    },
    Script {
        name: "failover",
        nodes: 3,
        keyspace: PRIMARY,
        before: |_| {},
        act: |cluster| {
            let primary = cluster.primary(PARTITION).expect("it is whole");
            update(cluster, 0, When::Always, Change::Increment(1));
            // By now all members have logged and acknowledged the op.
            cluster.run_until(cluster.now_ns() + 145_000, |_| false);
            cluster.inject(crash(primary, Some(400)));
            cluster.get(1, 0);
        },
    },
    Script {
        name: "join",
        nodes: 3,
        keyspace: PRIMARY,
        before: |cluster| go_away(cluster, 300),
        act: |cluster| {
            let away = cluster.nodes().iter().position(|node| node.core.is_none()).expect("one is away");
            cluster.inject(Fault::Start(away));
            update(cluster, 0, When::Always, Change::Append(b"er".to_vec()));
        },
    },
    Script {
        name: "handover",
        nodes: 4,
        keyspace: PRIMARY,
        before: |cluster| go_away(cluster, 700),
        act: |cluster| {
            let away = cluster.nodes().iter().position(|node| node.core.is_none()).expect("one is away");
            cluster.inject(Fault::Start(away));
            update(cluster, 0, When::Always, Change::Append(b"er".to_vec()));
        },
    },
    Script {
        name: "split",
        nodes: 3,
        keyspace: PRIMARY,
        before: |cluster| {
            set(cluster, 0, "7");
            run(cluster, 50);
        },
        act: |cluster| {
            cluster.change_partitions(&PartitionChange::Split { partition: PARTITION.0, at: None });
            change_across(cluster);
        },
    },
    Script {
        name: "merge",
        nodes: 3,
        keyspace: HALVES,
        before: |cluster| {
            set(cluster, 0, "7");
            run(cluster, 50);
        },
        act: |cluster| {
            cluster.change_partitions(&PartitionChange::Merge { partitions: [0, 1] });
            change_across(cluster);
        },
    },
    Script {
        name: "quorum-put",
        nodes: 3,
        keyspace: QUORUM,
        before: |cluster| {
            set(cluster, 0, "blue");
            run(cluster, 50);
        },
        act: |cluster| {
            set(cluster, 0, "green");
            cluster.get(1, 0);
        },
    },
    Script {
        name: "quorum-delete",
        nodes: 3,
        keyspace: QUORUM,
        before: |cluster| {
            set(cluster, 0, "blue");
            run(cluster, 50);
        },
        act: |cluster| {
            update(cluster, 0, When::Always, Change::Erase);
            set(cluster, 1, "green");
        },
    },
    Script {
        name: "quorum-newcomer",
        nodes: 3,
        keyspace: QUORUM,
        before: |cluster| {
            set(cluster, 0, "blue");
            run(cluster, 50);
            cluster.inject(Fault::Crash { node: 2, kept: Kept::NoDisk, downtime_ns: None });
            run(cluster, 300);
        },
        act: |cluster| {
            cluster.inject(Fault::Start(2));
            set(cluster, 0, "green");
            cluster.get(1, 0);
        },
    },
    Script {
        name: "quorum-succession",
        nodes: 4,
        keyspace: QUORUM,
        before: |cluster| {
            set(cluster, 0, "blue");
            run(cluster, 50);
        },
        act: |cluster| {
            cluster.inject(Fault::Drain(judge::members(cluster, PARTITION)[0]));
            for client in [0, 1] {
                set(cluster, client, "green");
                update(cluster, client, When::Always, Change::Erase);
                cluster.get(client, 0);
            }
        },
    },
];

impl Script {
    /// Prepares the cluster up to the beginning of the enumerated part.
    pub(super) fn begin(&self) -> Cluster {
        let scenario = Scenario { keyspaces: vec![self.keyspace], ..quiet(self.nodes, 2, &[b"sky"]) };
        let mut cluster = Cluster::new(scenario, 1);
        run(&mut cluster, 300);
        assert!(judge::is_whole(&cluster), "the first epoch has begun");
        (self.before)(&mut cluster);
        (self.act)(&mut cluster);
        cluster
    }
}

/// Both clients change and read the key, while its partition is being split or merged.
fn change_across(cluster: &mut Cluster) {
    for client in [0, 1] {
        for _ in 0..2 {
            update(cluster, client, When::Always, Change::Increment(1));
        }
        cluster.get(client, 0);
    }
}

/// Takes a secondary down while a put and a delete of other keys happen.
fn go_away(cluster: &mut Cluster, milliseconds: u64) {
    set(cluster, 0, "green");
    run(cluster, 50);
    let primary = cluster.primary(PARTITION);
    let members = judge::members(cluster, PARTITION);
    let secondary = members.into_iter().find(|node| Some(*node) != primary).expect("three replicas");
    cluster.inject(crash(secondary, None));
    run(cluster, milliseconds);
    update(cluster, 0, When::Always, Change::Delete);
    run(cluster, 50);
    set(cluster, 0, "blue");
    run(cluster, 50);
}

fn crash(node: usize, downtime_ms: Option<u64>) -> Fault {
    Fault::Crash { node, kept: Kept::All, downtime_ns: downtime_ms.map(|ms| ms * MILLISECOND_NS) }
}

fn run(cluster: &mut Cluster, milliseconds: u64) {
    let end_ns = cluster.now_ns() + milliseconds * MILLISECOND_NS;
    cluster.run_until(end_ns, |_| false);
}

fn set(cluster: &mut Cluster, client: usize, value: &str) {
    update(cluster, client, When::Always, Change::Set(value.into()));
}

fn update(cluster: &mut Cluster, client: usize, condition: When, change: Change) {
    let op = cluster.clients()[client].next_op();
    cluster.call(client, 0, Action::Update { op, condition, return_old: false, change });
}
