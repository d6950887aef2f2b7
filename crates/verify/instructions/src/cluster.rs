//! The cluster: its cores, and the messages between them.

use crate::VALUE;
use nicekv_client::{ClientCore, Config, Keyspace, OPERATION_TIMEOUT, Outcome, Request};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, HeartbeatReply, Member, MemberRole, MemberState};
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::placement::{
    KeyspaceDefaults, KeyspaceSpec, RingsBase, Vrings, partitions_for, vnode_blocks,
};
use nicekv_proto::{
    ClientId, Duration, Epoch, Expiry, KeyspaceId, MatchRange, NodeId, Now, Operation, PartitionId,
    Replication, Term,
};
use nicekv_replica::Replica;
use nicekv_replica::{NodeConfig, StorageCompletion, StorageRequest, Timing};
use nicekv_store::{Engine, MemoryEngine};
use nicekv_switch::{
    Backend, Chain, DatagramVerdict, Hop, Host, HostId, HostRole, Ingress, MemberSet, MulticastEntry, Prefix,
    Router, TableSet, UnicastEntry, VringConfig,
};
use std::net::{Ipv4Addr, SocketAddrV4};

const NODES: u16 = 3;
const TERM: Term = Term(1);
const EPOCH: Epoch = Epoch(1);
const INCARNATION: u64 = 1;
/// Longer than a run.
const LEASE_NS: u64 = 1 << 50;
/// Latency between hosts.
const LATENCY_NS: u64 = 10_000;
const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 0, 2), PORT_DEFAULT);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, 1), 40_000);
const CLIENT_PORT: u16 = 100;

/// A datagram in flight.
struct Datagram {
    from: SocketAddrV4,
    to: SocketAddrV4,
    bytes: Vec<u8>,
}

/// A node's core, with its disk in memory.
struct Node {
    id: NodeId,
    address: SocketAddrV4,
    core: Replica,
    engine: MemoryEngine,
    appended: u64,
    inbox: Vec<(SocketAddrV4, Vec<u8>)>,
    /// The last entry that was read.
    found: Vec<u8>,
}

/// Datagrams in flight, and buffers that are reused, so that only the cores' allocations are
/// counted.
#[derive(Default)]
struct Network {
    sent: Vec<Datagram>,
    spare: Vec<Vec<u8>>,
}

/// Allocations by the cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocations {
    pub(crate) client: u64,
    pub(crate) switch: u64,
    pub(crate) nodes: u64,
}

pub(crate) struct Cluster {
    client: ClientCore,
    /// Replies to the client, each with its sender.
    answers: Vec<(SocketAddrV4, Vec<u8>)>,
    router: Router,
    nodes: Vec<Node>,
    network: Network,
    /// Receivers of a datagram, as the switch has decided.
    hosts: Vec<HostId>,
    allocations: Allocations,
    now: Now,
}

impl Cluster {
    /// A cluster that is ready to serve.
    pub(crate) fn started(replication: Replication) -> Self {
        let now = Now { boot_ns: 1_000_000_000, unix_ms: 1_800_000_000_000 };
        let mut router = Router::new(VringConfig::DEFAULT).expect("the rings are sound");
        router.install(&tables(replication)).expect("the tables are sound");
        let keyspace = Keyspace { replication, ..Keyspace::from(Vrings::on_network(PORT_DEFAULT)) };
        let client = ClientCore::new(Config::new(ClientId::new(now.unix_ms, 1), keyspace));
        let nodes: Vec<Node> = (1..=NODES).map(Node::new).collect();
        let (answers, network, hosts) = (Vec::new(), Network::default(), Vec::new());
        let allocations = Allocations::default();
        let mut cluster = Self { client, answers, router, nodes, network, hosts, allocations, now };
        cluster.assign(replication, false);
        cluster.assign(replication, true);
        cluster
    }

    /// Assigns all partitions to all nodes. Each node leads a third of them.
    fn assign(&mut self, replication: Replication, activated: bool) {
        let reply = HeartbeatReply {
            term: TERM,
            incarnation: INCARNATION,
            sent_ns: self.now.boot_ns,
            lease_ns: LEASE_NS,
        };
        for node in &mut self.nodes {
            let mut bytes = Vec::new();
            reply.encode(&mut bytes);
            node.inbox.push((METADATA, bytes));
            for (partition, range) in (0..).zip(ranges()) {
                let mut bytes = Vec::new();
                assignment(partition, range, replication, activated).encode(&mut bytes);
                node.inbox.push((METADATA, bytes));
            }
        }
        self.run_until_quiet();
    }

    /// Submits a get.
    pub(crate) fn get(&mut self, key: &[u8]) {
        self.allocations.client += allocated(|| self.submit(Request::Get { key }));
    }

    /// Submits a put.
    pub(crate) fn put(&mut self, key: &[u8]) {
        let request = Request::update(key, Operation::Set { value: &VALUE, expiry: Expiry::Never });
        self.allocations.client += allocated(|| self.submit(request));
    }

    #[inline(never)]
    fn submit(&mut self, request: Request<'_>) {
        let deadline_ns = self.now.after(OPERATION_TIMEOUT);
        self.client.submit(self.now, KeyspaceId::DEFAULT, request, deadline_ns).expect("it has room");
    }

    /// Runs until every request is answered, and checks the answers.
    pub(crate) fn run_until_answered(&mut self) {
        while self.client.in_flight() > 0 {
            self.allocations.client += allocated(|| self.client_turn());
            self.run_until_quiet();
        }
    }

    /// Runs until no datagram is in flight.
    fn run_until_quiet(&mut self) {
        loop {
            self.allocations.switch += allocated(|| self.switch_turn());
            self.now.boot_ns += LATENCY_NS;
            if self.answers.is_empty() && self.nodes.iter().all(|node| node.inbox.is_empty()) {
                return;
            }
            for node in &mut self.nodes {
                self.allocations.nodes += allocated(|| node.node_turn(self.now, &mut self.network));
            }
            self.allocations.client += allocated(|| self.client_turn());
        }
    }

    /// Takes the allocations since the last call.
    pub(crate) fn take_allocations(&mut self) -> Allocations {
        std::mem::take(&mut self.allocations)
    }

    /// Number of retransmitted datagrams.
    pub(crate) fn retries(&self) -> u64 {
        self.client.counters().retries
    }

    #[inline(never)]
    fn client_turn(&mut self) {
        for (from, bytes) in self.answers.drain(..) {
            self.client.handle_datagram(self.now, from, &bytes);
            self.network.spare.push(bytes);
        }
        if self.client.next_deadline().is_some_and(|deadline_ns| deadline_ns <= self.now.boot_ns) {
            self.client.handle_deadline(self.now);
        }
        while let Some(completion) = self.client.poll_event() {
            let answer = completion.result.expect("everything arrives");
            assert_eq!(answer.outcome, Outcome::Done);
            assert!(answer.value.is_none_or(|value| value == VALUE));
        }
        self.network.send(CLIENT, |bytes| self.client.poll_transmit(bytes));
    }

    #[inline(never)]
    fn switch_turn(&mut self) {
        let Network { sent, spare } = &mut self.network;
        for Datagram { from, to, mut bytes } in sent.drain(..) {
            let port =
                self.nodes.iter().find(|node| node.address == from).map_or(CLIENT_PORT, |node| node.id.0);
            self.hosts.clear();
            match self.router.process(0, Ingress::Port { port, mac: None }, from, to, &mut bytes) {
                DatagramVerdict::Unicast(hop) => self.hosts.extend(hop.host()),
                DatagramVerdict::Multicast(hops) => self.hosts.extend(hops.filter_map(Hop::host)),
                DatagramVerdict::NotVring if to == CLIENT => {
                    self.answers.push((from, bytes));
                    continue;
                }
                DatagramVerdict::NotVring => {
                    let node = self.nodes.iter().find(|node| node.address == to);
                    self.hosts.extend(node.map(|node| HostId(node.id.0)));
                }
                DatagramVerdict::Piece(..) | DatagramVerdict::Answered(_) | DatagramVerdict::Dropped => {
                    panic!("dropped, split or answered: {from} to {to}")
                }
            }
            for host in &self.hosts {
                let mut copy = spare.pop().unwrap_or_default();
                copy.clone_from(&bytes);
                self.nodes[usize::from(host.0) - 1].inbox.push((from, copy));
            }
            spare.push(bytes);
        }
    }
}

fn allocated(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

impl Network {
    /// Sends all datagrams that a core has to send.
    fn send(&mut self, from: SocketAddrV4, mut poll: impl FnMut(&mut Vec<u8>) -> Option<SocketAddrV4>) {
        loop {
            let mut bytes = self.spare.pop().unwrap_or_default();
            let Some(to) = poll(&mut bytes) else { return self.spare.push(bytes) };
            self.sent.push(Datagram { from, to, bytes });
        }
    }
}

impl Node {
    fn new(number: u16) -> Self {
        let core = Replica::new(NodeConfig {
            node: NodeId(number),
            metadata: vec![METADATA],
            switch: None,
            coordinates: false,
            incarnation: INCARNATION,
            storage: u128::from(number),
            internal_client: ClientId::new(1, number.into()),
            value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
            hash_seed: 7,
            tells_visibility: false,
            timing: Timing {
                scrub_interval: Duration::ZERO,
                usage_interval: Duration::ZERO,
                ..Timing::default()
            },
        });
        let (address, engine) = (address_of(number), MemoryEngine::new());
        Self { id: NodeId(number), address, core, engine, appended: 0, inbox: Vec::new(), found: Vec::new() }
    }

    #[inline(never)]
    fn node_turn(&mut self, now: Now, network: &mut Network) {
        for (from, bytes) in self.inbox.drain(..) {
            self.core.handle_datagram(now, from, &bytes);
            network.spare.push(bytes);
        }
        if self.core.next_deadline() <= now.boot_ns {
            self.core.handle_deadline(now);
        }
        self.core.handle_batch_end(now);
        self.run_storage(now);
        network.send(self.address, |bytes| self.core.poll_transmit(bytes));
    }

    /// Executes disk requests. The log is discarded, and syncs complete at once.
    fn run_storage(&mut self, now: Now) {
        let Self { core, engine, appended, found, .. } = self;
        while let Some(request) = core.poll_storage() {
            match request {
                StorageRequest::Append { .. } => *appended += 1,
                StorageRequest::Sync => {
                    core.handle_storage(now, StorageCompletion::Synced { through: *appended });
                }
                StorageRequest::Read { token, partition, key } => {
                    let is_there = engine.get_into(partition.0, key, found).expect("memory does not fail");
                    let entry = is_there.then_some(found.as_slice());
                    core.handle_storage(now, StorageCompletion::Read { token, entry });
                }
                StorageRequest::Write { partition, key, entry } => {
                    engine.put(partition.0, key, entry).expect("memory does not fail");
                }
                StorageRequest::Clear { .. } | StorageRequest::Trim { .. } => {}
                other => panic!("no node joins or deletes here: {other:?}"),
            }
        }
    }
}

fn address_of(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new([10, 20, 1, number as u8].into(), PORT_DEFAULT)
}

/// As many partitions as a cluster of this size has.
fn ranges() -> Vec<MatchRange> {
    let partitions = partitions_for(NODES.into());
    let (id, replicas, rings) = (KeyspaceId::DEFAULT, NODES.into(), RingsBase::Network);
    KeyspaceSpec::of(&KeyspaceDefaults { id, replicas, partitions, rings }).ranges().collect()
}

fn primary_of(partition: u32) -> u16 {
    partition as u16 % NODES + 1
}

/// The nodes of a partition, its primary first.
fn nodes_of(partition: u32) -> impl Iterator<Item = u16> {
    (0..NODES).map(move |place| (primary_of(partition) - 1 + place) % NODES + 1)
}

fn assignment(partition: u32, range: MatchRange, replication: Replication, activated: bool) -> Assign {
    let member = |number| Member {
        node: NodeId(number),
        state: MemberState::Consistent,
        role: MemberRole::Original,
        address: address_of(number),
    };
    Assign {
        term: TERM,
        incarnation: INCARNATION,
        partition: PartitionId(partition),
        keyspace: KeyspaceId::DEFAULT,
        range,
        order: nicekv_proto::KeyOrder::Hash,
        replication,
        multicast: Vrings::on_network(PORT_DEFAULT).multicast_vnode(nicekv_proto::placement::vnodes(range).0),
        epoch: EPOCH,
        activated,
        primary: NodeId(primary_of(partition)),
        replicas: NODES as u8,
        members: nodes_of(partition).map(member).collect(),
        discard: false,
        children: Vec::new(),
        sealed: false,
        parents: Vec::new(),
        stamp_min: Round::default(),
    }
}

fn tables(replication: Replication) -> TableSet {
    let host = |number: u16, role, address: SocketAddrV4| Host {
        id: HostId(number),
        role,
        ip: address.ip().octets(),
        udp_port: address.port(),
        mac: [2, 0, 0, 0, 0, number as u8],
        port: number,
        is_remote: false,
    };
    let nodes = (1..=NODES).map(|number| host(number, HostRole::Node, address_of(number)));
    let service = host(NODES + 1, HostRole::Metadata, METADATA);
    let mut tables =
        TableSet { generation: 1, hosts: nodes.chain([service]).collect(), ..TableSet::default() };
    for (partition, range) in (0..).zip(ranges()) {
        for block in vnode_blocks(range).expect("partitions end with vnodes") {
            let [c, d] = block.first.to_be_bytes();
            let prefix = |ring: u8| Prefix::new([10, ring, c, d], 16 + block.bits);
            let of_chain = Chain::new(partition, EPOCH.0, nodes_of(partition).map(HostId));
            let (head, tail) = (of_chain.nodes()[0], of_chain.nodes()[usize::from(NODES) - 1]);
            let (host, members, chain) = match replication {
                Replication::Chain => (tail, MemberSet::new([head]), Some(of_chain)),
                _ => (head, MemberSet::new((1..=NODES).map(HostId)), None),
            };
            tables.unicast.push(UnicastEntry { destination: prefix(10), partition, host, chain });
            tables.multicast.push(MulticastEntry { destination: prefix(11), members, chain, places: None });
        }
    }
    tables
}
