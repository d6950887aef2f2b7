//! Short scripts whose transcripts are kept as text files, so that a change of the protocol shows
//! as a change of these files.
//!
//! All durations are fixed, and nothing is random.

use super::script::{MILLISECOND_NS, PARTITION};
use crate::checker::model::{Change, When};
use crate::checker::{Action, Verdict, check};
use crate::client::{HURRY, Workload};
use crate::cluster::{Cluster, Fault, Scenario};
use crate::faults::{Faults, StoreFaults};
use crate::judge;
use crate::keyspace::{Key, Shape};
use crate::network::{Host, Pace};
use crate::node::Kept;
use crate::trunks::Trunks;
use nicekv_client::Coordination;
use nicekv_metadata::Timing;
use nicekv_proto::Duration;

const PRIMARY: Shape = Shape::multicast(3, 0);
const CHAIN: Shape = Shape::chain(3, 0);

/// A script with a transcript.
pub struct Story {
    /// Name of its file, without the suffix.
    pub name: &'static str,
    /// What it shows: the first lines of the file.
    pub shows: &'static str,
    nodes: usize,
    keyspace: Shape,
    tell: fn(&mut Teller),
}

pub const STORIES: &[Story] = &[
    Story {
        name: "put-uncontended",
        shows: "A put on the fast path (R2): one synced write and three one-way delays. All replicas log and sync it, the primary\n\
                decides when the last ack is there, answers the client and tells the members at once.",
        nodes: 3,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(30);
            teller.get(1);
            teller.run(2);
        },
    },
    Story {
        name: "put-contended",
        shows: "A put on the slow path (R2): its copy to one replica is late, so that two puts arrive in different orders. The decision\n\
                is synced by every member before it is answered or shown.",
        nodes: 3,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.cut(Host::Client(0), teller.secondary());
            teller.put(0, "blue");
            teller.run(1);
            teller.cluster.inject(Fault::Mend);
            teller.put(1, "green");
            teller.run(60);
        },
    },
    Story {
        name: "two-puts-race",
        shows: "Two clients put the same key at the same moment. Every replica holds both as one lock; the primary orders them.",
        nodes: 3,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.put(0, "blue");
            teller.put(1, "green");
            teller.run(30);
        },
    },
    Story {
        name: "failover-with-a-contended-decision",
        shows: "The primary decides a contended put and is killed before anybody is answered. The metadata service removes it, the new\n\
                primary takes over the decisions that others hold, decides what is open, and the clients, who ask again, get their answers.",
        nodes: 3,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.cut(Host::Client(0), teller.secondary());
            teller.put(0, "blue");
            teller.run(1);
            teller.cluster.inject(Fault::Mend);
            teller.put(1, "green");
            let primary = teller.primary();
            let end_ns = teller.cluster.now_ns() + 100 * MILLISECOND_NS;
            let decides = |_: &Cluster, seen: crate::cluster::Seen<'_>| seen_decision(seen);
            assert!(teller.cluster.run_before(end_ns, decides), "the primary decides");
            teller.crash(primary);
            teller.run(700);
        },
    },
    Story {
        name: "return",
        shows: "A secondary is killed and misses a put. It returns, joins in a new epoch, copies what it lacks, is declared consistent and\n\
                gets its share of the gets again.",
        nodes: 3,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(40);
            let secondary = teller.kill_secondary();
            teller.run(250);
            teller.put(0, "green");
            teller.run(40);
            teller.cluster.inject(Fault::Start(secondary));
            teller.run(600);
        },
    },
    Story {
        name: "handoff-and-hand-over",
        shows: "Four nodes, three replicas. A secondary is killed; the fourth node stands in for it and takes part in the next put. The\n\
                original returns, copies what it missed, and the handoff leaves.",
        nodes: 4,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(40);
            let secondary = teller.kill_secondary();
            teller.run(800);
            teller.put(0, "green");
            teller.delete(1);
            teller.run(40);
            teller.cluster.inject(Fault::Start(secondary));
            teller.run(1000);
        },
    },
    Story {
        name: "succession",
        shows: "A quorum keyspace, two of three replicas hold a put. A node is drained, and the fourth one takes its place: it merges what that\n\
                one holds, which tells nobody of a put that its successor does not hold. The successor answers when the other can no more.",
        nodes: 4,
        keyspace: Shape::quorum(3, 2),
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(40);
            let leaves = *judge::members(&teller.cluster, PARTITION).last().expect("three replicas");
            teller.cluster.inject(Fault::Drain(leaves));
            teller.cluster.run_until(teller.cluster.now_ns() + 250_000, |_| false);
            teller.put(0, "green");
            teller.run(40);
            teller.get(1);
            teller.run(2);
        },
    },
    Story {
        name: "chain-put",
        shows: "A put along a chain (C1 to C3): each node forces the entry, then passes it on, the tail answers, and the others hear from behind\n\
                that all hold it. The tail answers the get.",
        nodes: 3,
        keyspace: CHAIN,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(30);
            teller.get(1);
            teller.run(2);
        },
    },
    Story {
        name: "chain-head-dies",
        shows: "The head of a chain is killed when it has passed a put on, which the others complete (C9). The middle leads, and is asked again for the\n\
                next one. The head returns, and joins at the end.",
        nodes: 3,
        keyspace: CHAIN,
        tell: |teller| teller.lose(0, 130),
    },
    Story {
        name: "chain-middle-dies",
        shows: "The middle of a chain is killed while it has the entry of a put. The head resends it to the tail from the position that the tail reports (C6).",
        nodes: 3,
        keyspace: CHAIN,
        tell: |teller| teller.lose(1, 200),
    },
    Story {
        name: "chain-tail-dies",
        shows: "The tail of a chain is killed when it has said that a put is done. The middle says nothing before the epoch is activated and it\n\
                has released all that the old tail may have said (C7).",
        nodes: 3,
        keyspace: CHAIN,
        tell: |teller| teller.lose(2, 370),
    },
    Story {
        name: "chain-tail-falsely-removed",
        shows: "The tail of a chain is cut off from the metadata service alone, so it is removed although it is there. Its lease runs out before\n\
                the middle speaks (C7); what it is sent is of an epoch that it does not know (C5). Then it hears of it, and joins at the end.",
        nodes: 3,
        keyspace: CHAIN,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(40);
            let tail = teller.chain()[2];
            teller.cut(tail, Host::Metadata);
            teller.cut(Host::Metadata, tail);
            teller.run(250);
            teller.put(0, "green");
            teller.get(1);
            teller.run(40);
            teller.cluster.inject(Fault::Mend);
            teller.run(700);
            teller.get(1);
            teller.run(2);
        },
    },
    Story {
        name: "chain-spare",
        shows: "Four nodes, a chain of three (C8). The tail is killed; the fourth node joins at the end, holds everything, and is the tail. When the\n\
                original is back and holds everything it is the tail again, and the spare leaves.",
        nodes: 4,
        keyspace: CHAIN,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(40);
            let tail = teller.chain()[2];
            teller.crash(tail);
            teller.run(800);
            teller.put(0, "green");
            teller.get(1);
            teller.run(40);
            teller.start(tail);
            teller.run(1000);
        },
    },
    Story {
        name: "restart-after-power-loss",
        shows: "Everything loses power while one put is answered and the next one is under way. All start again from their logs, the\n\
                metadata service waits for all of them, and the client that asks again is answered.",
        nodes: 3,
        keyspace: PRIMARY,
        tell: |teller| {
            teller.put(0, "blue");
            teller.run(30);
            teller.put(0, "green");
            teller.cluster.run_until(teller.cluster.now_ns() + 130_000, |_| false);
            teller.cluster.inject(Fault::PowerLoss { downtime_ns: MILLISECOND_NS });
            teller.run(900);
            teller.get(1);
            teller.run(2);
        },
    },
];

/// Runs a story on its cluster.
struct Teller {
    cluster: Cluster,
}

impl Story {
    /// The transcript: what it shows, then the lines.
    ///
    /// # Panics
    /// The clients' history is not linearizable.
    pub fn tell(&self) -> String {
        let scenario = Scenario { keyspaces: vec![self.keyspace], ..quiet(self.nodes, 2, &[b"sky"]) };
        let mut cluster = Cluster::new(scenario, 1);
        cluster.run_until(400 * MILLISECOND_NS, |_| false);
        assert!(judge::is_whole(&cluster), "the first epoch has begun");
        cluster.keep_lines();
        let mut teller = Teller { cluster };
        (self.tell)(&mut teller);
        let calls: Vec<_> = teller.cluster.clients().iter().flat_map(|client| client.history()).collect();
        let calls: Vec<_> = calls.into_iter().map(|call| call.call.clone()).collect();
        assert_eq!(check(&calls), Verdict::Linearizable);
        let lines = teller.cluster.take_lines().join("\n");
        format!("{}\n\n{lines}\n", self.shows)
    }
}

/// A cluster without faults, in which every operation always takes the same time.
pub(crate) fn quiet(nodes: usize, clients: usize, keys: &[&[u8]]) -> Scenario {
    Scenario {
        nodes,
        keyspaces: vec![Shape::multicast(3, 0)],
        spares: 0,
        instances: 1,
        store_lease: Duration::from_secs(1),
        store_faults: StoreFaults::NONE,
        switches: 1,
        trunks: Trunks::None,
        ways_are_whole: false,
        edges: false,
        balancing: true,
        hides_sources: false,
        matching: Default::default(),
        kernel_gets: false,
        hot_interval_ns: 0,
        hot_values: false,
        coordination: Coordination::Switch,
        copy_bytes_per_second: 100 << 20,
        discard_bytes_per_second: 16 << 20,
        clients,
        workload: Workload {
            keys: keys.iter().map(|key| Key { keyspace: 0, name: key.to_vec() }).collect(),
            skew: 1,
            calls: 0,
            window: 1,
            begins_ns: 0,
            retry_min: HURRY,
            pause_ns_max: 0,
            timeout_ns: 10_000 * MILLISECOND_NS,
            expiring: 0,
            large: 0,
            whole_bytes_max: 0,
            appends: 0,
            reads_at_once: 0,
            gets: 0,
            transactions: 0,
            hashes: 0,
            scripts: 0,
            messages: 0,
            scans: (0, 0, 1),
            shift_ns: 0,
        },
        pace: Pace::FIXED,
        timing: Timing::default(),
        faults: Faults { disk_max_ns: 0, ..Faults::NONE },
        faults_end_ns: 0,
        retries_max: None,
    }
}

fn seen_decision(seen: crate::cluster::Seen<'_>) -> bool {
    use nicekv_proto::Datagram;
    let crate::cluster::What::Datagram { bytes, .. } = seen.what else { return false };
    match Datagram::decode(bytes) {
        Ok((_, Datagram::Decisions(decisions))) => {
            decisions.decisions.iter().any(|decision| decision.contended)
        }
        _ => false,
    }
}

impl Teller {
    fn primary(&self) -> Host {
        Host::Node(self.cluster.primary(PARTITION).expect("an epoch is under way"))
    }

    /// The last of the replicas.
    fn secondary(&self) -> Host {
        let primary = self.cluster.primary(PARTITION);
        let others = judge::members(&self.cluster, PARTITION).into_iter();
        Host::Node(others.filter(|node| Some(*node) != primary).max().expect("three replicas"))
    }

    /// The members of a chain, in order.
    fn chain(&self) -> Vec<Host> {
        let status = self.cluster.metadata().expect("it leads").status();
        let members = status.partitions[0].members.iter();
        members.map(|member| Host::Node(usize::from(member.node) - 1)).collect()
    }

    /// Kills a member of a chain this long after a put, lets another node take its place, and later
    /// restarts it.
    fn lose(&mut self, place: usize, after_us: u64) {
        self.put(0, "blue");
        self.run(40);
        self.put(0, "green");
        self.cluster.run_until(self.cluster.now_ns() + after_us * 1_000, |_| false);
        let lost = self.chain()[place];
        self.crash(lost);
        self.put(1, "red");
        self.run(400);
        self.start(lost);
        self.run(600);
        self.get(1);
        self.run(2);
    }

    fn start(&mut self, host: Host) {
        let Host::Node(node) = host else { unreachable!("only nodes are started") };
        self.cluster.inject(Fault::Start(node));
    }

    fn kill_secondary(&mut self) -> usize {
        let secondary = self.secondary();
        self.crash(secondary);
        let Host::Node(index) = secondary else { unreachable!("a node") };
        index
    }

    fn run(&mut self, milliseconds: u64) {
        let end_ns = self.cluster.now_ns() + milliseconds * MILLISECOND_NS;
        self.cluster.run_until(end_ns, |_| false);
    }

    fn put(&mut self, client: usize, value: &str) {
        self.update(client, Change::Set(value.into()));
    }

    fn delete(&mut self, client: usize) {
        self.update(client, Change::Delete);
    }

    fn update(&mut self, client: usize, change: Change) {
        let op = self.cluster.clients()[client].next_op();
        let action = Action::Update { op, condition: When::Always, return_old: false, change };
        self.cluster.call(client, 0, action);
    }

    fn get(&mut self, client: usize) {
        self.cluster.get(client, 0);
    }

    fn cut(&mut self, from: Host, to: Host) {
        self.cluster.inject(Fault::Cut { from, to });
    }

    fn crash(&mut self, host: Host) {
        let Host::Node(node) = host else { unreachable!("only nodes are killed") };
        self.cluster.inject(Fault::Crash { node, kept: Kept::All, downtime_ns: None });
    }
}
