//! Nodes on real logs and engines whose disks fail (docs/FAULTS.md rows 5 to 10). The network is a queue in the test; the log's files may be
//! [`Forgetful`], the engine's are real.

use super::{NodeStorage, OpenError, StorageOptions, open_durable};
use crate::{Waker, now, readable, wait};
use nicekv_node::{NodeConfig, Timing};
use nicekv_placement::{Vrings, key_digest};
use nicekv_replication::Replica;
use nicekv_store::files::PowerLoss;
use nicekv_store::{DataDirectory, Expected, Files, Forgetful, RealFiles, StoreError};
use nicekv_wire::control::{Assign, HeartbeatReply, Member, MemberState};
use nicekv_wire::{
    ClientId, Condition, Datagram, Duration, Epoch, Expiry, Get, KeyspaceId, MatchRange, NodeId, OpId,
    Operation, PartitionId, Replication, Status, Term, Update,
};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7400);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 9, 9), 900);
/// An operation that nobody answers for so long is not answered.
const PATIENCE: Duration = Duration::from_millis(400);
/// The engine is not synced, the log never let go.
const LOG_ONLY: StorageOptions = StorageOptions {
    segment_bytes_max: 1 << 20,
    engine_sync_bytes: 1 << 20,
    reserve_bytes: 0,
    ..StorageOptions::DEFAULT
};

/// What outlives a process: a disk.
struct Machine {
    files: Arc<dyn Files>,
    path: PathBuf,
    options: StorageOptions,
    id: u16,
    scrubs: bool,
}

impl Machine {
    fn new(files: Arc<dyn Files>, path: &Path, options: StorageOptions, id: u16) -> Self {
        Self { files, path: path.to_path_buf(), options, id, scrubs: false }
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
            metadata: METADATA,
            switch: None,
            incarnation: 1,
            storage: 0,
            internal_client: ClientId::new(1, self.id.into()),
            hash_seed: 1,
            // The scrub reads a page at every heartbeat, so all with the first one.
            timing: Timing {
                heartbeat: Duration::from_secs(3600),
                scrub_interval: Duration::from_secs(if self.scrubs { 3600 } else { 0 }),
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
    /// A turn of the node's loop; what it sends.
    fn turn(&mut self) -> Result<Vec<(SocketAddrV4, Vec<u8>)>, StoreError> {
        self.waker.clear();
        let now = now();
        self.storage.finish_forces(now, &mut self.core)?;
        if now.boot_ns >= self.core.next_deadline() {
            self.core.handle_deadline(now);
        }
        self.core.handle_batch_end(now);
        self.storage.run(now, &mut self.core)?;
        self.storage.idle(now, &mut self.core)?;
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        while let Some(to) = self.core.poll_transmit(&mut out) {
            sent.push((to, out.clone()));
        }
        Ok(sent)
    }
}

/// What a client is told.
type Answer = (Status, Option<Vec<u8>>);

/// Members of one partition, the first of which is the primary, and their client.
struct Cluster {
    nodes: Vec<Process>,
    sequence: u64,
}

impl Cluster {
    fn of(nodes: Vec<Process>, epoch: u32) -> Self {
        let members = (nodes.iter().zip(1..))
            .map(|(node, id)| Member {
                node: NodeId(id),
                state: MemberState::Consistent,
                handoff: false,
                address: node.address,
            })
            .collect();
        let assign = Assign {
            term: Term(1),
            incarnation: 1,
            partition: PartitionId(0),
            keyspace: KeyspaceId::DEFAULT,
            range: MatchRange::ALL,
            replication: Replication::Multicast,
            multicast: Vrings::on_network(7400).multicast_vnode(0),
            epoch: Epoch(epoch),
            activated: true,
            primary: NodeId(1),
            replicas: nodes.len() as u8,
            members,
        };
        let lease = HeartbeatReply {
            term: Term(1),
            incarnation: 1,
            sent_ns: now().boot_ns,
            lease_ns: 3_600_000_000_000,
        };
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

    /// Sends a datagram to these nodes and lets everything happen until the client is answered, or is not for long.
    fn call(&mut self, to: &[usize], bytes: &[u8]) -> Result<Option<Answer>, StoreError> {
        for node in to {
            self.nodes[*node].core.handle_datagram(now(), CLIENT, bytes);
        }
        let until_ns = now().after(PATIENCE);
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
        let update = Update {
            keyspace: KeyspaceId::DEFAULT,
            op: OpId { client: ClientId::new(2, 2), sequence: self.sequence },
            digest: key_digest(key.as_bytes()),
            reply_to: Some(CLIENT),
            watermark: self.sequence,
            condition: Condition::Always,
            return_old: false,
            operation,
            key: key.as_bytes(),
        };
        let mut bytes = Vec::new();
        update.encode(&mut bytes);
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        Ok(self.call(&all, &bytes)?.map(|(status, _)| status))
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<Option<Status>, StoreError> {
        self.update(key, Operation::Set { value, expiry: Expiry::Never })
    }

    /// What a node answers to a get; `None`: nothing.
    fn get(&mut self, node: usize, key: &str) -> Option<Option<Vec<u8>>> {
        self.sequence += 1;
        let op = OpId { client: ClientId::new(2, 2), sequence: self.sequence };
        let (digest, key) = (key_digest(key.as_bytes()), key.as_bytes());
        let mut bytes = Vec::new();
        Get { keyspace: KeyspaceId::DEFAULT, op, digest, reply_to: Some(CLIENT), forwarded: None, key }
            .encode(&mut bytes);
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

/// The last file of the log and what it holds.
fn segment(disk: &Forgetful, path: &Path) -> (PathBuf, Vec<u8>) {
    let directory = path.join("log");
    let name = disk.list(&directory).unwrap().into_iter().max().unwrap();
    let path = directory.join(name);
    let bytes = disk.content(&path).unwrap();
    (path, bytes)
}

#[test]
fn row_05_a_power_loss_takes_no_acknowledged_put() {
    let options = StorageOptions {
        segment_bytes_max: 8 << 10,
        engine_sync_bytes: 6 << 10,
        reserve_bytes: 0,
        ..StorageOptions::DEFAULT
    };
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = Machine::new(Arc::new(disk.clone()), directory.path(), options, 1);
    let mut last = 0;
    for round in 0..12u32 {
        let mut cluster = Cluster::lone(&machine, round + 1);
        for number in last.max(60) - 60..last {
            let found = cluster.get(0, &key(number));
            assert_eq!(found, Some(Some(value(number))), "put {number} after {round} losses");
        }
        put_all(&mut cluster, last..last + 25);
        last += 25;
        // Whatever was not forced survives in part.
        let mut state = u64::from(round);
        disk.power_loss(PowerLoss::KeepPages(&mut || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        }));
    }
}

#[test]
fn row_06_a_log_cut_at_any_byte_keeps_what_was_before() {
    const PUTS: u32 = 4;
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = |disk: &Forgetful| Machine::new(Arc::new(disk.clone()), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine(&disk), 1);
    put_all(&mut cluster, 0..PUTS);
    drop(cluster);
    let (path, bytes) = segment(&disk, directory.path());
    disk.remove(&directory.path().join("nicekv-lock")).unwrap();
    let mut kept_before = 0;
    for length in 0..=bytes.len() {
        let cut = disk.copy();
        cut.set_content(&path, bytes[..length].to_vec());
        let mut cluster = Cluster::lone(&machine(&cut), 2);
        // The decision of the last put that is found may be cut off; then its prepare is decided again.
        let found: Vec<bool> =
            (0..PUTS).map(|number| cluster.get(0, &key(number)).flatten() == Some(value(number))).collect();
        let kept = found.iter().take_while(|found| **found).count();
        assert!(found[kept..].iter().all(|found| !found), "cut at {length}: {found:?}");
        assert!(kept >= kept_before, "cut at {length}: a later cut keeps no less");
        kept_before = kept;
    }
    assert_eq!(kept_before, PUTS as usize);
}

#[test]
fn row_07_a_log_damaged_in_the_middle_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = |disk: &Forgetful| Machine::new(Arc::new(disk.clone()), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine(&disk), 1);
    put_all(&mut cluster, 0..6);
    drop(cluster);
    let (path, bytes) = segment(&disk, directory.path());
    // All but the last put are known to be durable.
    let end = bytes.windows(5).rposition(|window| window == b"key 4").unwrap();
    for at in (0..end).step_by(7) {
        let damaged = disk.copy();
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        damaged.set_content(&path, flipped.clone());
        let error = machine(&damaged).start().err().unwrap_or_else(|| panic!("byte {at} is not missed"));
        assert!(damaged.content(&path) == Some(flipped), "byte {at}: the log is left as it is");
        if at > 100 {
            assert!(error.to_string().contains("remove the data directory of this node"), "{error}");
        }
    }
}

#[test]
fn row_08_a_failed_fdatasync_stops_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = Machine::new(Arc::new(disk.clone()), directory.path(), LOG_ONLY, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    put_all(&mut cluster, 0..5);
    disk.fail_next_sync(5); // EIO
    let failed = cluster.put(&key(5), &value(5));
    assert!(matches!(failed, Err(StoreError::LogFailed { .. })), "neither an answer nor silence: {failed:?}");
    assert!(cluster.put(&key(6), &value(6)).is_err(), "it stays failed");
    drop(cluster);
    disk.power_loss(PowerLoss::DropAll);
    let mut cluster = Cluster::lone(&machine, 2);
    for number in 0..5 {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))));
    }
    assert_eq!(cluster.get(0, &key(5)), Some(None), "it was never acknowledged");
}

#[test]
fn row_09_a_full_disk_refuses_puts_serves_gets_and_recovers() {
    let options = StorageOptions {
        segment_bytes_max: 8 << 10,
        engine_sync_bytes: 6 << 10,
        reserve_bytes: 16 << 10,
        ..StorageOptions::DEFAULT
    };
    let directory = tempfile::tempdir().unwrap();
    let disk = Forgetful::new(64);
    let machine = Machine::new(Arc::new(disk.clone()), directory.path(), options, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    put_all(&mut cluster, 0..20);
    disk.set_capacity(Some(disk.used()));
    let mut statuses = Vec::new();
    for number in 20..30 {
        statuses.push(cluster.put(&key(number), &value(number)).unwrap());
    }
    assert!(statuses.iter().all(Option::is_some), "every put is answered: {statuses:?}");
    assert_eq!(statuses.last(), Some(&Some(Status::DiskFull)));
    for number in 0..20 {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))));
    }
    disk.set_capacity(None);
    let until_ns = now().after(Duration::from_secs(20));
    while cluster.put(&key(30), &value(30)).unwrap() == Some(Status::DiskFull) {
        assert!(now().boot_ns < until_ns, "space has returned");
    }
    put_all(&mut cluster, 31..60);
    drop(cluster);
    let mut cluster = Cluster::lone(&machine, 2);
    for (number, status) in (20..30).zip(statuses) {
        let expected = (status == Some(Status::Ok)).then(|| value(number));
        assert_eq!(cluster.get(0, &key(number)), Some(expected), "put {number}: {status:?}");
    }
    assert_eq!(cluster.get(0, &key(59)), Some(Some(value(59))));
}

/// Flips a bit of every value in the engine's tables.
fn damage_tables(directory: &Path, number: u32) -> usize {
    let mut damaged = 0;
    for table in std::fs::read_dir(directory.join("engine/tables")).unwrap() {
        let path = table.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let found: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&value(number))).collect();
        damaged += found.len();
        found.iter().for_each(|at| bytes[at + 3] ^= 4);
        std::fs::write(&path, bytes).unwrap();
    }
    damaged
}

/// Three nodes that hold `puts` values, number 3 damaged at the first and number 4 at the second, and started again.
fn damaged(directory: &Path, puts: u32, scrubs: bool) -> Cluster {
    let options = StorageOptions {
        segment_bytes_max: 4 << 10,
        engine_sync_bytes: 2 << 10,
        reserve_bytes: 0,
        ..StorageOptions::DEFAULT
    };
    let machines: Vec<Machine> = (1..=3u16)
        .map(|id| {
            let path = directory.join(id.to_string());
            Machine { scrubs, ..Machine::new(Arc::new(RealFiles), &path, options, id) }
        })
        .collect();
    let start = |epoch| Cluster::of(machines.iter().map(|machine| machine.start().unwrap()).collect(), epoch);
    let mut cluster = start(1);
    put_all(&mut cluster, 0..puts);
    for node in cluster.nodes {
        node.storage.close().unwrap();
    }
    for (machine, number) in machines.iter().zip([3, 4]) {
        // Not in the log any more, from which it would be written again.
        assert!(damage_tables(&machine.path, number) > 0, "a table holds the value");
    }
    start(2)
}

/// Damaged values found, and those that were repaired, by node.
fn repairs(cluster: &Cluster) -> Vec<(u64, u64)> {
    let counters = cluster.nodes.iter().map(|node| node.core.status().counters);
    counters.map(|counters| (counters.corrupt, counters.repaired)).collect()
}

#[test]
fn row_10_a_flipped_value_is_never_served_and_repaired_from_a_replica() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = damaged(directory.path(), 40, false);
    for number in 0..40 {
        for node in 0..3 {
            assert_eq!(cluster.get(node, &key(number)), Some(Some(value(number))), "put {number} at {node}");
        }
    }
    let repairs = repairs(&cluster);
    assert!(repairs[0].0 > 0 && repairs[1].0 > 0, "{repairs:?}");
    assert!(repairs.iter().all(|(corrupt, repaired)| corrupt == repaired), "{repairs:?}");
    assert_eq!(cluster.put(&key(3), &value(99)).unwrap(), Some(Status::Ok));
    assert_eq!(cluster.get(0, &key(3)), Some(Some(value(99))));
}

#[test]
fn row_10_a_block_that_cannot_be_scanned_stops_the_node_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = damaged(directory.path(), 40, true);
    let scrubbed = cluster.put(&key(50), &value(50));
    let error = scrubbed.expect_err("the scrub meets the damaged block").to_string();
    assert!(error.contains("remove the data directory of this node"), "{error}");
}

/// A small file system of its own.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` without root.
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "nicekv-test"])
            .arg(directory.path())
            .output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.path().display());
    }
}

#[test]
fn row_09_a_real_disk_fills_up_under_log_and_engine() {
    const PUTS_MAX: u32 = 20_000;
    let Some(disk) = SmallDisk::mount("16m") else {
        eprintln!("NOT RUN (needs root): a full disk under the real engine");
        return;
    };
    let options = StorageOptions {
        segment_bytes_max: 512 << 10,
        engine_sync_bytes: 512 << 10,
        reserve_bytes: 4 << 20,
        ..StorageOptions::DEFAULT
    };
    let other = disk.0.path().join("of somebody else");
    std::fs::write(&other, vec![1; 5 << 20]).unwrap();
    let machine = Machine::new(Arc::new(RealFiles), &disk.0.path().join("node"), options, 1);
    let mut cluster = Cluster::lone(&machine, 1);
    // Distinct, and not to be compressed.
    let value = |number: u32| -> Vec<u8> {
        (0..62).flat_map(|at| key_digest(format!("{number} {at}").as_bytes()).0).collect()
    };
    let mut stored = 0;
    let refused = loop {
        match cluster.put(&key(stored), &value(stored)).unwrap() {
            Some(Status::Ok) => stored += 1,
            other => break other,
        }
        assert!(stored < PUTS_MAX, "16 MB are not enough for {stored} kB");
    };
    assert_eq!(refused, Some(Status::DiskFull));
    for number in (0..stored).step_by(97) {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))), "put {number} of {stored}");
    }
    for number in 0..100 {
        let deleted = cluster.update(&key(number), Operation::Delete).unwrap();
        assert_eq!(deleted, Some(Status::Ok), "deletes are taken in");
    }
    std::fs::remove_file(other).unwrap();
    let until_ns = now().after(Duration::from_secs(20));
    while cluster.put(&key(0), &value(0)).unwrap() == Some(Status::DiskFull) {
        assert!(now().boot_ns < until_ns, "space has returned");
    }
    drop(cluster);
    let mut cluster = Cluster::lone(&machine, 2);
    for number in 100..stored {
        assert_eq!(cluster.get(0, &key(number)), Some(Some(value(number))), "put {number} of {stored}");
    }
    assert_eq!(cluster.get(0, &key(1)), Some(None));
}

#[path = "force_tests.rs"]
mod forces;
