//! Chunk targets and initiators on real sockets and disks: five targets behind the user-space
//! switch, and one initiator.

use nicekv_objects::reservation::Delivery;
use nicekv_objects::{
    Group, InitiatorConfig, MaintenanceConfig, Map, Progress, TargetConfig, Timing, chunk_id,
};
use nicekv_proto::NodeId;
use nicekv_proto::chunk::{ChunkId, MapVersion, Round};
use nicekv_proto::placement::GroupRing;
use nicekv_runtime::chunks::{
    ChunkClient, ChunkClientError, ChunkStore, ChunkTarget, Known, TargetParts, TargetWatch, View,
    start_chunk_client, windows,
};
use nicekv_runtime::control_plane::{CONTROL_LIMITS, Greeting};
use nicekv_runtime::{
    AgentLink, FramedStream, Stop, UdpEndpoint, UserSpaceSwitch, Waker, accept, listen, new_client_id,
    random, readable, wait,
};
use nicekv_store::{LogIdentity, RealFiles};
use nicekv_switch::control::{ControlReply, ControlRequest, decode, encode};
use nicekv_switch::{
    Host, HostId, HostRole, Prefix, TableSet, VringConfig, VringSet, masked_entry, subset_entries,
};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TARGETS: u16 = 5;
const COPIES: usize = 3;
const LINK_BITS_PER_SECOND: u64 = 4_000_000_000;
const RINGS: VringConfig =
    VringConfig { unicast: Prefix::new([127, 10, 0, 0], 16), multicast: Prefix::new([127, 11, 0, 0], 16) };

fn ip(target: u16) -> Ipv4Addr {
    Ipv4Addr::new(127, 21, 0, target as u8 + 1)
}

fn known() -> Known {
    known_without(1, None)
}

/// Cluster state with this version of the group map, without the target `lost`.
fn known_without(version: u32, lost: Option<u16>) -> Known {
    let places: Vec<_> = (0..TARGETS).map(|node| (Some(node) != lost).then_some(NodeId(node))).collect();
    let group = Group::at_places(&places).expect("a valid group");
    let map = Map::new(MapVersion(version), vec![group]).expect("a valid map");
    Known { map: Arc::new(map), round: Round(1), is_adopted: false, copies: COPIES }
}

/// Starts a switch whose tables have the group: as one entry with member masks, or as one entry per
/// subset.
fn start_switch(stop: &Stop, by_masks: bool) -> (GroupRing, FramedStream, JoinHandle<()>) {
    let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let SocketAddr::V4(metadata) = listener.local_addr().unwrap() else { panic!("IPv4") };
    let endpoint = UdpEndpoint::bind_switch("lo", 0).unwrap();
    let port = endpoint.local_address().port();
    let ring = GroupRing::on_loopback(port);
    let vrings = VringSet::try_from(RINGS).unwrap().with_group(ring).unwrap();
    let switch = UserSpaceSwitch::new(endpoint, vrings, AgentLink::new("switch", &[metadata]), None).unwrap();
    let running = stop.clone();
    let thread = std::thread::spawn(move || switch.run(&running).unwrap());
    wait(&mut [readable(&listener)], None).unwrap();
    let mut stream = FramedStream::new(accept(&listener).unwrap().unwrap(), CONTROL_LIMITS);
    next_frame(&mut stream, |frame| drop(Greeting::decode(frame).unwrap()));
    let order: Vec<Option<HostId>> = (0..TARGETS).map(|target| Some(HostId(target))).collect();
    let multicast = match by_masks {
        true => masked_entry(&ring, 0, &order).into_iter().collect(),
        false => subset_entries(&ring, 0, &order),
    };
    let host = |target: u16| Host {
        id: HostId(target),
        role: HostRole::Node,
        ip: ip(target).octets(),
        udp_port: port,
        mac: [2, 0, 0, 0, 0, target as u8],
        port: target,
        is_remote: false,
    };
    let tables =
        TableSet { generation: 1, hosts: (0..TARGETS).map(host).collect(), multicast, ..TableSet::default() };
    stream.queue(&encode(&ControlRequest::Install { term: 1, tables }).unwrap()).unwrap();
    stream.flush().unwrap();
    next_frame(&mut stream, |frame| {
        let reply: ControlReply = decode(frame).unwrap();
        assert_eq!(reply, ControlReply::Installed { term: 1, generation: 1 });
    });
    (ring, stream, thread)
}

fn next_frame(stream: &mut FramedStream, mut take: impl FnMut(&[u8])) {
    let mut is_here = false;
    while !is_here {
        wait(&mut [stream.interest()], None).unwrap();
        stream
            .receive(|frame| {
                take(frame);
                is_here = true;
            })
            .unwrap();
    }
}

fn start_target(
    stop: &Stop,
    target: u16,
    ring: GroupRing,
    delivery: Delivery,
    directory: &Path,
) -> JoinHandle<()> {
    start_maintaining(stop, target, ring, delivery, directory, || Some(known())).1
}

/// Starts a target that checks its chunks at short intervals.
fn start_maintaining(
    stop: &Stop,
    target: u16,
    ring: GroupRing,
    delivery: Delivery,
    directory: &Path,
    ask: impl FnMut() -> Option<Known> + Send + 'static,
) -> (TargetWatch, JoinHandle<()>) {
    let endpoint = UdpEndpoint::bind(SocketAddrV4::new(ip(target), ring.target_port)).unwrap();
    let identity = LogIdentity { cluster_id: 7, storage_id: u128::from(target) + 1, node_id: target.into() };
    let place = directory.join(format!("target-{target}"));
    let store = ChunkStore::on_disk(Arc::new(RealFiles), &place, identity).unwrap();
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&random().unwrap().to_be_bytes());
    let config = TargetConfig {
        node: NodeId(target),
        process: random().unwrap() >> 40,
        reservation: windows(delivery, LINK_BITS_PER_SECOND),
        disk_bytes_per_second: 300 << 20,
        secret,
        maintenance: Some(MaintenanceConfig {
            pass_ns: 200_000_000,
            again_ns: 20_000_000,
            silence_ns: 60_000_000_000,
            ..MaintenanceConfig::new(new_client_id().unwrap(), COPIES)
        }),
    };
    let waker = Waker::new().unwrap();
    let name = format!("target-{target}");
    let view = View::begin(&name, waker.clone(), ask).unwrap();
    let list = Box::new(|_: Round, _: &mut dyn FnMut(Vec<ChunkId>) -> bool| false);
    let watch = TargetWatch::default();
    let parts = TargetParts { store, endpoint, ring, view, waker, list, watch: watch.clone() };
    let target = ChunkTarget::new(&name, config, stop, parts).unwrap();
    let running = stop.clone();
    (watch, std::thread::spawn(move || target.run(&running).unwrap()))
}

fn start_client(
    stop: &Stop,
    ring: GroupRing,
    delivery: Delivery,
    ask: impl FnMut() -> Option<Known> + Send + 'static,
) -> (ChunkClient, JoinHandle<std::io::Result<()>>) {
    start_client_with(Timing::DEFAULT, stop, ring, delivery, ask)
}

fn start_client_with(
    timing: Timing,
    stop: &Stop,
    ring: GroupRing,
    delivery: Delivery,
    ask: impl FnMut() -> Option<Known> + Send + 'static,
) -> (ChunkClient, JoinHandle<std::io::Result<()>>) {
    let config = InitiatorConfig {
        client: new_client_id().unwrap(),
        copies: COPIES,
        reservation: windows(delivery, LINK_BITS_PER_SECOND),
        timing,
    };
    start_chunk_client(stop, Ipv4Addr::LOCALHOST, ring, config, ask).unwrap()
}

fn content(seed: u64, length: usize) -> (ChunkId, Arc<[u8]>) {
    let bytes: Arc<[u8]> = (0..length as u64).map(|at| ((at * (seed | 1)) >> 3) as u8 ^ seed as u8).collect();
    (chunk_id(&bytes), bytes)
}

/// Puts chunks of these lengths, four at a time, and then gets all of them.
fn put_and_get(client: &ChunkClient, lengths: &[usize]) -> Vec<ChunkId> {
    let contents: Vec<_> = (0..).zip(lengths).map(|(seed, length)| content(seed, *length)).collect();
    for batch in contents.chunks(4) {
        let pending: Vec<_> = batch.iter().map(|(id, bytes)| client.put(*id, bytes.clone())).collect();
        for placed in pending {
            let placed = placed.wait().unwrap();
            assert!(placed.holders.len() >= COPIES && placed.stamp == Round(1), "{placed:?}");
        }
    }
    for (id, bytes) in &contents {
        assert!(client.get(*id).wait().unwrap() == *bytes, "{id} has other bytes");
    }
    contents.into_iter().map(|(id, _)| id).collect()
}

fn run(delivery: Delivery, by_masks: bool) {
    let scratch = tempfile::tempdir().unwrap();
    let (stop, of_targets) = (Stop::new(), Stop::new());
    let (ring, _controller, switch) = start_switch(&stop, by_masks);
    let start = |of: &Stop| -> Vec<JoinHandle<()>> {
        let start = |target| start_target(of, target, ring, delivery, scratch.path());
        (0..TARGETS).map(start).collect()
    };
    let targets = start(&of_targets);
    let (client, initiator) = start_client(&stop, ring, delivery, || Some(known()));
    let lengths = [1, 1_408, 1_409, 100_000, 1 << 20, 1 << 20, 4 << 20, 65_536, 1 << 20];
    let ids = put_and_get(&client, &lengths);
    // Putting the same chunks again sends no frames: the targets have them. This client waits for
    // every target to say so; one that is silent for long may be replaced by another.
    let patient = Timing { answers_ns: 5_000_000_000, deadline_ns: 60_000_000_000, ..Timing::DEFAULT };
    let (again, initiator_again) = start_client_with(patient, &stop, ring, delivery, || Some(known()));
    put_and_get(&again, &lengths);
    let counters = again.counters().unwrap();
    assert_eq!((counters.known, counters.frames), (lengths.len() as u64, 0));
    drop(again);
    initiator_again.join().unwrap().unwrap();
    assert_eq!(
        client.get(ChunkId([9; 32])).wait(),
        Err(ChunkClientError::Get(nicekv_objects::GetError::NotFound))
    );
    // Restarted targets find the chunks on their disks.
    of_targets.stop();
    targets.into_iter().for_each(|target| target.join().unwrap());
    let targets = start(&stop);
    for id in ids {
        assert_eq!(chunk_id(&client.get(id).wait().unwrap()), id);
    }
    drop(client);
    initiator.join().unwrap().unwrap();
    stop.stop();
    targets.into_iter().for_each(|target| target.join().unwrap());
    switch.join().unwrap();
}

#[test]
fn chunks_go_by_multicast_to_the_members_of_a_mask() {
    run(Delivery::Multicast, true);
}

#[test]
fn chunks_go_by_multicast_without_mask_support() {
    run(Delivery::Multicast, false);
}

#[test]
fn chunks_go_by_unicast() {
    run(Delivery::Unicast, true);
}

/// Waits until `is_so` holds for the progress of these targets. A minute is enough on any machine.
fn until(watched: &[TargetWatch], what: &str, is_so: impl Fn(&[Progress]) -> bool) {
    let since = Instant::now();
    loop {
        let progress: Vec<Progress> = watched.iter().map(|watch| watch.progress()).collect();
        if is_so(&progress) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "timed out waiting for {what}: {progress:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Flips a bit in each chunk with one of these beginnings, in the files of a stopped target.
fn damage(directory: &Path, beginnings: &[&[u8]]) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        for beginning in beginnings {
            // The files may still contain copies that the target has dropped; these are damaged,
            // too.
            let begins = |at: &usize| bytes[*at..].starts_with(beginning);
            let places: Vec<usize> = (0..bytes.len()).filter(begins).collect();
            places.into_iter().for_each(|at| bytes[at] ^= 1);
        }
        std::fs::write(&path, bytes).unwrap();
    }
}

#[test]
fn chunks_of_a_lost_target_and_damaged_chunks_are_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let (stop, lost_stop, first_stop) = (Stop::new(), Stop::new(), Stop::new());
    let (ring, _controller, switch) = start_switch(&stop, true);
    let is_lost = Arc::new(AtomicBool::new(false));
    let lose = is_lost.clone();
    let ask = move || {
        let version = if is_lost.load(Ordering::Relaxed) { 2 } else { 1 };
        Some(known_without(version, (version == 2).then_some(TARGETS - 1)))
    };
    let start = |of: &Stop, target: u16| {
        start_maintaining(of, target, ring, Delivery::Multicast, scratch.path(), ask.clone())
    };
    let (lost_watch, lost) = start(&lost_stop, TARGETS - 1);
    let (first_watch, first) = start(&first_stop, 0);
    let (mut watched, others): (Vec<_>, Vec<_>) = (1..TARGETS - 1).map(|target| start(&stop, target)).unzip();
    let (client, initiator) = start_client(&stop, ring, Delivery::Multicast, ask.clone());
    let lengths: Vec<usize> = (1..=12).map(|number| number * 10_000).collect();
    let ids = put_and_get(&client, &lengths);
    let copies = |progress: &[Progress]| progress.iter().map(|one| one.chunks).sum::<usize>();
    let mut all = watched.clone();
    all.extend([lost_watch.clone(), first_watch.clone()]);
    until(&all, "a maintenance pass", |progress| {
        progress.iter().all(|one| one.passes > 0 && one.unsettled == 0)
    });
    until(&all, "the required number of copies", |progress| copies(progress) == COPIES * ids.len());
    // The last target is lost for good, and the next version of the group map lacks it.
    assert!(lost_watch.progress().chunks > 0, "{:?}", lost_watch.get());
    lost_stop.stop();
    lost.join().unwrap();
    std::fs::remove_dir_all(scratch.path().join(format!("target-{}", TARGETS - 1))).unwrap();
    lose.store(true, Ordering::Relaxed);
    watched.push(first_watch);
    let is_well = |one: &Progress| {
        one.version == MapVersion(2) && one.has_moved && one.passes > 0 && one.lacking + one.unsettled == 0
    };
    until(&watched, "the lost chunks to be restored", |progress| {
        progress.iter().all(is_well) && copies(progress) == COPIES * ids.len()
    });
    // The chunks of target 0 are damaged while it is stopped.
    first_stop.stop();
    first.join().unwrap();
    assert!(watched.pop().unwrap().progress().chunks > 1, "target 0 has too few chunks");
    let contents: Vec<_> = (0..).zip(&lengths).map(|(seed, length)| content(seed, *length).1).collect();
    let beginnings: Vec<&[u8]> = contents.iter().map(|content| &content[..4_096]).collect();
    damage(&scratch.path().join("target-0"), &beginnings);
    let (watch, first) = start(&stop, 0);
    watched.push(watch.clone());
    // Chunks that were not known to be durable are verified, and dropped, when the target opens its
    // directory. A maintenance pass finds the other damaged ones.
    until(&watched, "the damaged chunks to be restored", |progress| {
        watch.get().is_some_and(|told| told.counters.damaged > 0)
            && progress.iter().all(is_well)
            && copies(progress) == COPIES * ids.len()
    });
    for id in ids {
        assert_eq!(chunk_id(&client.get(id).wait().unwrap()), id);
    }
    drop(client);
    initiator.join().unwrap().unwrap();
    stop.stop();
    others.into_iter().chain([first]).for_each(|target| target.join().unwrap());
    switch.join().unwrap();
}

/// docs/FAULTS.md row 36.
#[test]
fn chunks_of_a_lost_segment_are_copied_again() {
    let scratch = tempfile::tempdir().unwrap();
    let (stop, first_stop) = (Stop::new(), Stop::new());
    let (ring, _controller, switch) = start_switch(&stop, true);
    let ask = || Some(known_without(1, None));
    let start = |of: &Stop, target: u16| {
        start_maintaining(of, target, ring, Delivery::Multicast, scratch.path(), ask)
    };
    let (first_watch, first) = start(&first_stop, 0);
    let (mut watched, others): (Vec<_>, Vec<_>) = (1..TARGETS).map(|target| start(&stop, target)).unzip();
    let (client, initiator) = start_client(&stop, ring, Delivery::Multicast, ask);
    let lengths: Vec<usize> = (1..=12).map(|number| number * 10_000).collect();
    let ids = put_and_get(&client, &lengths);
    let copies = |progress: &[Progress]| progress.iter().map(|one| one.chunks).sum::<usize>();
    let is_whole = |progress: &[Progress]| {
        let is_well = |one: &Progress| one.passes > 0 && one.lacking + one.unsettled == 0;
        progress.iter().all(is_well) && copies(progress) == COPIES * ids.len()
    };
    watched.push(first_watch.clone());
    until(&watched, "the required number of copies", is_whole);
    assert!(first_watch.progress().chunks > 0);
    first_stop.stop();
    first.join().unwrap();
    let segments = std::fs::read_dir(scratch.path().join("target-0")).unwrap();
    let segments: Vec<_> = segments.map(|entry| entry.unwrap().path()).collect();
    assert!(!segments.is_empty());
    segments.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let (watch, first) = start(&stop, 0);
    *watched.last_mut().unwrap() = watch;
    // Copied by whichever targets still have the chunks.
    until(&watched, "the lost chunks to be restored", is_whole);
    for id in ids {
        assert_eq!(chunk_id(&client.get(id).wait().unwrap()), id);
    }
    drop(client);
    initiator.join().unwrap().unwrap();
    stop.stop();
    others.into_iter().chain([first]).for_each(|target| target.join().unwrap());
    switch.join().unwrap();
}
