//! Tests with a few targets that are wired to each other: datagrams arrive at once, and disks take
//! no time.

use super::*;
use crate::Target;
use crate::map::Layout;
use crate::target::{End, Storage, StorageDone, TargetConfig};
use crate::transmit::Destination;
use alloc::vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use nicekv_proto::ClientId;
use nicekv_proto::chunk::MapVersion;
use nicekv_proto::placement::rendezvous_rank;

const MS: u64 = 1_000_000;
const COPIES: usize = 2;
const FIRST_GROUP: [u16; 5] = [0, 1, 2, 3, 4];
const SECOND_GROUP: [u16; 4] = [5, 6, 7, 8];

#[derive(Default)]
struct Disk {
    chunks: BTreeMap<ChunkId, Vec<u8>>,
    damaged: BTreeSet<ChunkId>,
    coming: BTreeMap<OpId, (ChunkId, Vec<u8>)>,
}

struct Cluster {
    targets: BTreeMap<NodeId, Target>,
    disks: BTreeMap<NodeId, Disk>,
    map: Map,
    silent: BTreeSet<NodeId>,
    now_ns: u64,
}

fn content(seed: u8) -> Vec<u8> {
    (0..3_000).map(|at| (at as u8).wrapping_mul(17) ^ seed).collect()
}

/// These nodes in the order in which they rank for a chunk.
fn ranked(id: &ChunkId, nodes: &[u16]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    nodes.sort_by_key(|node| rendezvous_rank(&id.0, *node));
    nodes
}

fn group(nodes: &[u16]) -> Group {
    let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
    Group::new(&nodes).unwrap()
}

fn layout(first: &[u16], slots_of: u8) -> Layout {
    Layout::new(vec![group(first), group(&SECOND_GROUP)], [slots_of; 256]).unwrap()
}

fn map(version: u32, layout: Layout, before: Option<Layout>) -> Map {
    Map::of(MapVersion(version), layout, before).unwrap()
}

impl Cluster {
    /// A cluster in which all slots belong to the first group, and each of `holders` has the chunk
    /// on its disk.
    fn new(bytes: &[u8], holders: &[NodeId]) -> Self {
        let id = chunk_id_of(bytes);
        let mut cluster = Self {
            targets: BTreeMap::new(),
            disks: BTreeMap::new(),
            map: map(1, layout(&FIRST_GROUP, 0), None),
            silent: BTreeSet::new(),
            now_ns: MS,
        };
        for node in FIRST_GROUP.into_iter().chain(SECOND_GROUP).map(NodeId) {
            let holds = holders.contains(&node);
            let on_disk = holds.then(|| (id, bytes.len() as u32, holders.to_vec()));
            let mut target = Target::new(config(node), on_disk).unwrap();
            target.set_round(Round(4));
            target.set_free(1 << 30);
            target.set_map(0, cluster.map.clone());
            cluster.targets.insert(node, target);
            let disk = cluster.disks.entry(node).or_default();
            disk.chunks.extend(holds.then(|| (id, bytes.to_vec())));
        }
        cluster
    }

    fn set_map(&mut self, map: Map) {
        self.map = map;
        let (now_ns, map) = (self.now_ns, &self.map);
        self.targets.values_mut().for_each(|target| target.set_map(now_ns, map.clone()));
    }

    fn run(&mut self, ms: u64) {
        let end_ns = self.now_ns + ms * MS;
        loop {
            let nodes: Vec<NodeId> = self.targets.keys().copied().collect();
            while nodes.iter().fold(false, |is_busy, node| self.drain(*node) | is_busy) {}
            let next_ns = self.targets.values().map(Target::next_deadline).min().unwrap();
            if next_ns > end_ns {
                break;
            }
            // Events never happen at exactly the same time.
            self.now_ns = next_ns.max(self.now_ns + 1_000);
            let now_ns = self.now_ns;
            self.targets.values_mut().for_each(|target| target.handle_deadline(now_ns));
        }
        self.now_ns = end_ns;
    }

    /// Carries out the target's pending output. Returns whether there was any.
    fn drain(&mut self, node: NodeId) -> bool {
        let now_ns = self.now_ns;
        let target = self.targets.get_mut(&node).unwrap();
        if let Some(request) = target.poll_storage() {
            if let Some(done) = self.disks.get_mut(&node).unwrap().carry_out(request) {
                target.handle_storage(now_ns, done);
            }
            return true;
        }
        let Some(Transmit { to, bytes }) = target.poll_transmit(now_ns) else { return false };
        let receivers: Vec<NodeId> = match to {
            Destination::Host(address) => vec![NodeId(address.port())],
            Destination::Group { group, mask } => {
                let members = self.map.group(group).unwrap().members();
                members.filter(|(place, _)| mask >> place & 1 == 1).map(|(_, node)| node).collect()
            }
        };
        let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, node.0);
        for receiver in receivers {
            if !self.silent.contains(&receiver) && !self.silent.contains(&node) {
                self.targets.get_mut(&receiver).unwrap().handle_datagram(now_ns, from, &bytes);
            }
        }
        true
    }

    /// Targets that have an undamaged copy on disk.
    fn holders(&self, id: &ChunkId) -> Vec<NodeId> {
        let has = |disk: &Disk| {
            let whole = disk.chunks.get(id).filter(|_| !disk.damaged.contains(id));
            whole.is_some_and(|bytes| chunk_id_of(bytes) == *id)
        };
        self.disks.iter().filter(|(_, disk)| has(disk)).map(|(node, _)| *node).collect()
    }

    fn sum(&self, of: impl Fn(&Target) -> u64) -> u64 {
        self.targets.values().map(of).sum()
    }

    fn lacking(&self) -> u64 {
        self.sum(|target| target.progress().lacking as u64)
    }
}

fn chunk_id_of(bytes: &[u8]) -> ChunkId {
    crate::chunk_id(bytes)
}

fn config(node: NodeId) -> TargetConfig {
    let maintenance = MaintenanceConfig {
        pass_ns: 200 * MS,
        again_ns: 10 * MS,
        silence_ns: 500 * MS,
        ..MaintenanceConfig::new(ClientId(u64::from(node.0) + 1), COPIES)
    };
    TargetConfig {
        node,
        process: 3,
        reservation: Config { margin_ns: 50_000, is_last_tried: true, ..Config::MULTICAST },
        disk_bytes_per_second: 1 << 30,
        secret: [node.0 as u8 + 1; 32],
        maintenance: Some(maintenance),
    }
}

impl Disk {
    fn carry_out(&mut self, request: Storage) -> Option<StorageDone> {
        match request {
            Storage::Begin { op, id, bytes, .. } => {
                self.coming.insert(op, (id, vec![0; bytes as usize]));
                None
            }
            Storage::Write { op, offset, bytes } => {
                let (_, coming) = self.coming.get_mut(&op).unwrap();
                coming[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                None
            }
            Storage::Finish { op } => {
                let (id, bytes) = self.coming.remove(&op).unwrap();
                self.chunks.insert(id, bytes);
                Some(StorageDone::Finished { op, end: End::Whole })
            }
            Storage::Abandon { op } => {
                self.coming.remove(&op);
                None
            }
            Storage::Read { id, .. } => {
                let whole = self.chunks.get(&id).filter(|_| !self.damaged.contains(&id));
                Some(StorageDone::Read { bytes: whole.cloned() })
            }
            Storage::Remove { id } => {
                self.chunks.remove(&id);
                self.damaged.remove(&id);
                None
            }
        }
    }
}

/// A cluster whose chunk is held by the targets that rank first for it, beginning with number
/// `skipped`.
fn at_first(skipped: usize, copies: usize) -> (Cluster, ChunkId, Vec<NodeId>) {
    let bytes = content(7);
    let id = chunk_id_of(&bytes);
    let order = ranked(&id, &FIRST_GROUP);
    (Cluster::new(&bytes, &order[skipped..skipped + copies]), id, order)
}

#[test]
fn healthy_chunks_are_only_counted() {
    let (mut cluster, id, order) = at_first(0, 2);
    cluster.run(950);
    let mut holders = cluster.holders(&id);
    holders.sort_by_key(|node| rendezvous_rank(&id.0, *node));
    assert_eq!(holders, order[..2]);
    assert_eq!(cluster.sum(|target| target.counters.put_again + target.counters.surplus), 0);
    assert_eq!(cluster.sum(|target| target.counters.scrubbed), 2 * 5, "each copy, every 200 ms");
    let progress = cluster.targets[&order[0]].progress();
    assert_eq!((progress.has_moved, progress.passes, progress.chunks, progress.bytes), (true, 5, 1, 3_000));
}

#[test]
fn first_remaining_holder_puts_again_what_a_removed_target_held() {
    let (mut cluster, id, order) = at_first(0, 2);
    cluster.run(1);
    let lost = order[0];
    cluster.silent.insert(lost);
    cluster.disks.insert(lost, Disk::default());
    let rest: Vec<u16> = FIRST_GROUP.into_iter().filter(|node| NodeId(*node) != lost).collect();
    cluster.set_map(map(2, layout(&rest, 0), None));
    assert_eq!(cluster.targets[&order[1]].progress().unsettled, 1, "a target that was to hold it is gone");
    cluster.run(15);
    assert_eq!(cluster.lacking(), 1);
    cluster.run(100);
    assert_eq!((cluster.holders(&id).len(), cluster.lacking()), (COPIES, 0));
    let first = &cluster.targets[&order[1]];
    assert_eq!(first.counters.put_again, 1);
    assert!(
        first.holdings.held[&id].holders.len() == COPIES && !first.holdings.held[&id].holders.contains(&lost)
    );
    assert_eq!(cluster.sum(|target| target.counters.put_again), 1);
}

#[test]
fn silent_target_is_waited_for_and_a_surplus_copy_is_dropped_on_its_return() {
    let (mut cluster, id, order) = at_first(0, 2);
    cluster.silent.insert(order[0]);
    cluster.run(450);
    assert_eq!(cluster.sum(|target| target.counters.put_again), 0, "the silent target may return soon");
    assert_eq!(cluster.targets[&order[1]].progress().unsettled, 1);
    cluster.run(1_000);
    assert_eq!(cluster.sum(|target| target.counters.put_again), 1);
    assert_eq!(cluster.holders(&id).len(), COPIES + 1);
    cluster.silent.clear();
    cluster.run(1_000);
    let mut holders = cluster.holders(&id);
    holders.sort_by_key(|node| rendezvous_rank(&id.0, *node));
    assert_eq!(holders, order[..2], "the targets that rank first keep it");
    assert_eq!(cluster.sum(|target| target.counters.surplus), 1);
}

#[test]
fn damaged_copy_is_found_and_replaced() {
    let (mut cluster, id, order) = at_first(0, 2);
    cluster.disks.get_mut(&order[0]).unwrap().damaged.insert(id);
    // A bit of another copy flips, which the disk does not notice.
    cluster.run(1);
    assert_eq!((cluster.targets[&order[0]].counters.damaged, cluster.holders(&id).len()), (1, 1));
    cluster.run(500);
    assert_eq!((cluster.holders(&id).len(), cluster.lacking()), (COPIES, 0));
    let held = cluster.holders(&id);
    cluster.disks.get_mut(&held[0]).unwrap().chunks.get_mut(&id).unwrap()[9] ^= 1;
    cluster.run(500);
    assert_eq!((cluster.holders(&id).len(), cluster.lacking()), (COPIES, 0));
    assert_eq!(cluster.targets[&held[0]].counters.damaged, 1 + u64::from(held[0] == order[0]));
}

#[test]
fn copy_is_kept_while_the_other_stamps_are_older() {
    let (mut cluster, id, order) = at_first(0, 3);
    // The third target knows a newer round, in which somebody has confirmed the chunk.
    let third = cluster.targets.get_mut(&order[2]).unwrap();
    third.set_round(Round(6));
    third.holdings.held.get_mut(&id).unwrap().stamp = Round(6);
    cluster.run(1_000);
    assert_eq!((cluster.holders(&id).len(), cluster.sum(|target| target.counters.surplus)), (3, 0));
    cluster.targets.values_mut().for_each(|target| target.set_round(Round(6)));
    cluster.run(1_000);
    assert_eq!((cluster.holders(&id).len(), cluster.targets[&order[2]].counters.surplus), (2, 1));
    assert_eq!(cluster.targets[&order[0]].holdings.held[&id].stamp, Round(6), "it was confirmed");
}

#[test]
fn undecided_chunk_is_not_put_again() {
    let (mut cluster, id, order) = at_first(0, 1);
    for target in cluster.targets.values_mut() {
        target.set_round(Round(6));
    }
    cluster.run(1_000);
    assert_eq!((cluster.holders(&id).len(), cluster.lacking()), (1, 1));
    let holder = cluster.targets.get_mut(&order[0]).unwrap();
    holder.holdings.held.get_mut(&id).unwrap().stamp = Round(5);
    while !holder.sweep(Round(6)) {}
    cluster.run(1_000);
    let said = cluster.targets[&order[0]].progress();
    assert_eq!(
        (cluster.holders(&id).len(), cluster.lacking(), said.undecided),
        (1, 0, 1),
        "the chunk may still get a name"
    );
    assert_eq!(said.unsettled, 0, "undecided chunks do not count as unsettled");
    let holder = cluster.targets.get_mut(&order[0]).unwrap();
    assert!(holder.mark(Round(6), &[id]));
    holder.set_round(Round(7));
    cluster.run(1_000);
    assert_eq!(cluster.holders(&id).len(), 1, "the round has not decided about it");
    assert!(cluster.targets.get_mut(&order[0]).unwrap().mark(Round(7), &[id]));
    cluster.set_map(map(2, layout(&FIRST_GROUP, 0), None));
    cluster.run(1_000);
    assert_eq!((cluster.holders(&id).len(), cluster.lacking()), (COPIES, 0));
}

#[test]
fn chunks_of_a_moving_slot_are_put_to_the_new_group_and_kept_until_it_has_moved() {
    let (mut cluster, id, order) = at_first(0, 2);
    let (before, now) = (layout(&FIRST_GROUP, 0), layout(&FIRST_GROUP, 1));
    SECOND_GROUP.iter().for_each(|node| {
        cluster.silent.insert(NodeId(*node));
    });
    cluster.set_map(map(2, now.clone(), Some(before)));
    cluster.run(3_000);
    let moved = |cluster: &Cluster| order.iter().all(|node| cluster.targets[node].progress().has_moved);
    assert!(!moved(&cluster), "no member of the new group has confirmed it");
    assert_eq!(cluster.targets[&order[0]].progress().unsettled, 1);
    cluster.silent.clear();
    cluster.run(15_000);
    assert!(moved(&cluster));
    let new: Vec<NodeId> = SECOND_GROUP.into_iter().map(NodeId).collect();
    let inside = |cluster: &Cluster| cluster.holders(&id).iter().filter(|node| new.contains(node)).count();
    assert_eq!(
        (inside(&cluster), cluster.holders(&id).len()),
        (COPIES, 2 * COPIES),
        "readers still ask the former members"
    );
    cluster.set_map(map(3, now, None));
    cluster.run(1_000);
    assert_eq!((inside(&cluster), cluster.holders(&id).len()), (COPIES, COPIES));
    assert_eq!(cluster.sum(|target| target.counters.surplus), 2);
}

#[test]
fn pace_bounds_checks() {
    let bytes = content(7);
    let id = chunk_id_of(&bytes);
    let mut config = config(NodeId(0));
    let maintenance = config.maintenance.as_mut().unwrap();
    (maintenance.chunks_at_once, maintenance.chunks_per_second, maintenance.pass_ns) = (2, 10, 0);
    let others = (0..100_u8).map(|seed| (ChunkId([seed; 32]), 10, vec![NodeId(0)]));
    let mut target = Target::new(config, others.chain([(id, 3_000, vec![NodeId(0)])])).unwrap();
    target.set_round(Round(1));
    target.set_map(0, map(1, layout(&FIRST_GROUP, 0), None));
    let mut reads = 0;
    for ms in 0..1_000 {
        target.handle_deadline(ms * MS);
        while let Some(request) = target.poll_storage() {
            let Storage::Read { bytes, .. } = request else { continue };
            reads += 1;
            // A damaged copy is handled at once, whatever the pace.
            target.handle_storage(ms * MS, StorageDone::Read { bytes: (bytes == 3_000).then(|| content(7)) });
        }
    }
    assert_eq!(reads, 10);
    assert_eq!(target.counters.damaged, 10);
}
