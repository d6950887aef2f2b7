//! Nodes with real logs and engines on failing disks (docs/FAULTS.md rows 5 to 10). The network is
//! a queue in the test. The log's files may be `Forgetful` (simulated, with power loss); the
//! engine's files are real.

mod log;
mod space;
mod stalls;
mod syncs;
mod values;

use super::{NodeStorage, OpenError, StorageOptions, open_durable};
use crate::{Waker, now, readable, wait};
use nicekv_proto::chunk::Round;
use nicekv_proto::control::{Assign, HeartbeatReply, Member, MemberRole, MemberState};
use nicekv_proto::placement::{Vrings, key_digest};
use nicekv_proto::{
    ClientId, Condition, Datagram, Duration, Epoch, Expiry, Get, KeyspaceId, MatchRange, NodeId, OpId,
    Operation, PartitionId, Replication, Status, Term, Update,
};
use nicekv_replica::Replica;
use nicekv_replica::{NodeConfig, Timing};
use nicekv_store::{DataDirectory, Expected, Files, StoreError};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 9), 900);
/// An operation without an answer after this time counts as unanswered.
const TIMEOUT: Duration = Duration::from_millis(400);
/// Options with which the engine is never synced and the log never trimmed.
const LOG_ONLY: StorageOptions = StorageOptions {
    segment_bytes_max: 1 << 20,
    engine_sync_bytes: 1 << 20,
    reserve_bytes: 0,
    ..StorageOptions::DEFAULT
};

/// A node's disk and configuration, which outlive its process.
struct Machine {
    files: Arc<dyn Files>,
    path: PathBuf,
    options: StorageOptions,
    id: u16,
    scrubs: bool,
    metadata: SocketAddrV4,
    heartbeat: Duration,
}

impl Machine {
    fn new(files: Arc<dyn Files>, path: &Path, options: StorageOptions, id: u16) -> Self {
        // The scrub reads a page at each heartbeat. All data fits into the first page, so with this
        // interval the scrub would read everything at the start, and then nothing for an hour.
        let (metadata, heartbeat) = (METADATA, Duration::from_secs(3600));
        Self { files, path: path.to_path_buf(), options, id, scrubs: false, metadata, heartbeat }
    }

    fn address(id: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, id as u8), 7400)
    }

    fn start(&self) -> Result<Process, OpenError> {
        let expected =
            Expected { cluster_id: Some(7), owner: "node", cluster_id_if_new: 7, storage_id_if_new: 9 };
        let directory = DataDirectory::open(&self.files, &self.path, expected)?;
        let config = NodeConfig {
            node: NodeId(self.id),
            metadata: vec![self.metadata],
            switch: None,
            coordinates: false,
            incarnation: 1,
            storage: 0,
            internal_client: ClientId::new(1, self.id.into()),
            value_bytes_max: nicekv_proto::limits::LARGE_VALUE_BYTES_MAX,
            hash_seed: 1,
            tells_visibility: false,
            timing: Timing {
                heartbeat: self.heartbeat,
                scrub_interval: Duration::from_secs(if self.scrubs { 3600 } else { 0 }),
                // Off: like the scrub, measuring usage would read a damaged block before the test
                // does.
                usage_interval: Duration::ZERO,
                ..Timing::default()
            },
        };
        let waker = Waker::new().unwrap();
        let (core, storage) =
            open_durable(config, now(), self.files.clone(), directory, self.options, waker.clone())?;
        Ok(Process { core, storage, waker, address: Self::address(self.id) })
    }
}

/// A running node.
struct Process {
    core: Replica,
    storage: NodeStorage,
    waker: Waker,
    address: SocketAddrV4,
}

impl Process {
    /// Runs one turn of the node's loop. Returns the datagrams that it sends.
    fn turn(&mut self) -> Result<Vec<(SocketAddrV4, Vec<u8>)>, StoreError> {
        self.waker.clear();
        let now = now();
        self.storage.finish_log_syncs(now, &mut self.core)?;
        if now.boot_ns >= self.core.next_deadline() {
            self.core.handle_deadline(now);
        }
        self.core.handle_batch_end(now);
        self.storage.run(now, &mut self.core)?;
        self.storage.idle(now, &mut self.core)?;
        let awaits_sync = self.storage.is_sync_awaited();
        if let Some(sync) = self.storage.start_sync(false) {
            assert!(awaits_sync, "a busy node may only be asked for a sync that is awaited");
            sync.sync_here();
        }
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        while let Some(to) = self.core.poll_transmit(&mut out) {
            sent.push((to, out.clone()));
        }
        Ok(sent)
    }
}

/// An assignment of one partition with all keys to members at these addresses.
fn assign(addresses: &[SocketAddrV4], epoch: u32) -> Assign {
    let members = (addresses.iter().zip(1..))
        .map(|(address, id)| Member {
            node: NodeId(id),
            state: MemberState::Consistent,
            role: MemberRole::Original,
            address: *address,
        })
        .collect();
    Assign {
        term: Term(1),
        incarnation: 1,
        partition: PartitionId(0),
        keyspace: KeyspaceId::DEFAULT,
        range: MatchRange::ALL,
        order: nicekv_proto::KeyOrder::Hash,
        replication: Replication::Multicast,
        multicast: Vrings::on_network(7400).multicast_vnode(0),
        epoch: Epoch(epoch),
        activated: true,
        primary: NodeId(1),
        replicas: addresses.len() as u8,
        members,
        discard: false,
        children: Vec::new(),
        sealed: false,
        parents: Vec::new(),
        stamp_min: Round::default(),
    }
}

fn lease() -> HeartbeatReply {
    HeartbeatReply { term: Term(1), incarnation: 1, sent_ns: now().boot_ns, lease_ns: 3_600_000_000_000 }
}

fn set_datagram(key: &[u8], operation: Operation<'_>, sequence: u64, reply_to: SocketAddrV4) -> Vec<u8> {
    let update = Update {
        keyspace: KeyspaceId::DEFAULT,
        op: OpId { client: ClientId::new(2, 2), sequence },
        digest: key_digest(key),
        reply_to: Some(reply_to),
        watermark: sequence,
        condition: Condition::Always,
        return_old: false,
        operation,
        key,
    };
    let mut bytes = Vec::new();
    update.encode(&mut bytes);
    bytes
}

fn get_datagram(key: &[u8], sequence: u64, reply_to: SocketAddrV4) -> Vec<u8> {
    let op = OpId { client: ClientId::new(2, 2), sequence };
    let (digest, keyspace) = (key_digest(key), KeyspaceId::DEFAULT);
    let mut bytes = Vec::new();
    Get { keyspace, op, digest, reply_to: Some(reply_to), forwarded: None, key, padding: 0 }
        .encode(&mut bytes);
    bytes
}

/// Answer to the client: status and value.
type Answer = (Status, Option<Vec<u8>>);

/// A client and the members of one partition, of which the first is the primary.
struct Cluster {
    nodes: Vec<Process>,
    sequence: u64,
}

impl Cluster {
    fn of(nodes: Vec<Process>, epoch: u32) -> Self {
        let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
        let (assign, lease) = (assign(&addresses, epoch), lease());
        let mut cluster = Self { nodes, sequence: u64::from(epoch) << 32 };
        let mut bytes = Vec::new();
        for node in &mut cluster.nodes {
            lease.encode(&mut bytes);
            node.core.handle_datagram(now(), METADATA, &bytes);
            assign.encode(&mut bytes);
            node.core.handle_datagram(now(), METADATA, &bytes);
        }
        cluster
    }

    fn lone(machine: &Machine, epoch: u32) -> Self {
        Self::of(vec![machine.start().unwrap()], epoch)
    }

    /// Sends a datagram to these nodes, and runs until the client has an answer or the timeout
    /// expires.
    fn call(&mut self, to: &[usize], bytes: &[u8]) -> Result<Option<Answer>, StoreError> {
        for node in to {
            self.nodes[*node].core.handle_datagram(now(), CLIENT, bytes);
        }
        let until_ns = now().after(TIMEOUT);
        while now().boot_ns < until_ns {
            let mut answer = None;
            let mut queue = VecDeque::new();
            for node in &mut self.nodes {
                let from = node.address;
                queue.extend(node.turn()?.into_iter().map(|(to, bytes)| (from, to, bytes)));
            }
            let is_quiet = queue.is_empty();
            while let Some((from, to, bytes)) = queue.pop_front() {
                if to == CLIENT
                    && let Ok((_, Datagram::Reply(reply))) = Datagram::decode(&bytes)
                    && reply.op.sequence == self.sequence
                {
                    answer = Some((reply.status, reply.value.map(<[u8]>::to_vec)));
                }
                let is_member = self.nodes.iter().any(|node| node.address == to);
                let is_multicast = to != CLIENT && to != METADATA && !is_member;
                for node in &mut self.nodes {
                    if node.address == to || (is_multicast && node.address != from) {
                        node.core.handle_datagram(now(), from, &bytes);
                    }
                }
            }
            if answer.is_some() {
                return Ok(answer);
            }
            if is_quiet {
                let mut descriptors: Vec<_> = self.nodes.iter().map(|node| readable(&node.waker)).collect();
                wait(&mut descriptors, Some(now().after(Duration::from_millis(2)))).unwrap();
            }
        }
        Ok(None)
    }

    fn update(&mut self, key: &str, operation: Operation<'_>) -> Result<Option<Status>, StoreError> {
        self.sequence += 1;
        let bytes = set_datagram(key.as_bytes(), operation, self.sequence, CLIENT);
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        Ok(self.call(&all, &bytes)?.map(|(status, _)| status))
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<Option<Status>, StoreError> {
        self.update(key, Operation::Set { value, expiry: Expiry::Never })
    }

    /// A node's answer to a get; `None` if it does not answer.
    fn get(&mut self, node: usize, key: &str) -> Option<Option<Vec<u8>>> {
        self.sequence += 1;
        let bytes = get_datagram(key.as_bytes(), self.sequence, CLIENT);
        let (status, value) = self.call(&[node], &bytes).expect("the disk works")?;
        assert!(matches!(status, Status::Ok | Status::NotFound), "{status:?}");
        Some(value)
    }
}

fn key(number: u32) -> String {
    format!("key {number}")
}

fn value(number: u32) -> Vec<u8> {
    format!("value {number}").into_bytes().repeat(5)
}

fn put_all(cluster: &mut Cluster, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert_eq!(cluster.put(&key(number), &value(number)).unwrap(), Some(Status::Ok), "put {number}");
    }
}
