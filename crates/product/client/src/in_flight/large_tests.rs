//! After a large value is completed, no state of it is left in its slot and lane.

use super::InFlight;
use super::slot::Slot;
use crate::{ClientCore, Config, OperationError, Outcome, Request};
use alloc::vec::Vec;
use core::net::SocketAddrV4;
use nicekv_proto::large::{Chunk, RECEIVERS_ALL, Reference, TransferReport, receiver_bit};
use nicekv_proto::placement::Vrings;
use nicekv_proto::quorum::{Content, Quorum, QuorumHeld, Timestamp};
use nicekv_proto::{
    ClientId, Datagram, Duration, Epoch, Expiry, Form, KeyDigest, KeyspaceId, NodeId, Now, OpId, Opcode,
    Operation, PartitionId, Replication, Reply, Status,
};

const MS: u64 = 1_000_000;
const LENGTH: usize = 300_000;
const CHUNKS: u32 = LENGTH.div_ceil(nicekv_proto::limits::CHUNK_BYTES) as u32;
const REPLICA: SocketAddrV4 = SocketAddrV4::new(core::net::Ipv4Addr::LOCALHOST, 7401);

struct World {
    client: ClientCore,
    now: Now,
}

impl World {
    fn new() -> Self {
        let config = Config { extra_ns_per_byte: 0, ..Config::new(ClientId(5), Vrings::on_loopback(7400)) };
        Self { client: ClientCore::new(config), now: Now { boot_ns: 17_000 * MS, unix_ms: 0 } }
    }

    fn submit(&mut self, request: Request<'_>) -> OpId {
        let op = self.client.next_op();
        let deadline_ns = self.now.after(Duration::from_secs(5));
        self.client.submit(self.now, KeyspaceId::DEFAULT, request, deadline_ns).unwrap();
        op
    }

    fn put(&mut self) -> OpId {
        self.submit(Request::update(b"color", Operation::Set { value: &[7; LENGTH], expiry: Expiry::Never }))
    }

    /// Starts a get, and answers it with a reference and a token.
    fn read(&mut self) -> OpId {
        let op = self.submit(Request::Get { key: b"color" });
        let checksum = nicekv_transport::checksum(&[7; LENGTH]);
        let name = OpId { sequence: 99, ..op };
        let named = Reference { name, length: LENGTH as u32, checksum }.bytes();
        self.sent();
        let (value, form, integer) = (Some(&named[..]), Form::Large, 1_400);
        self.tell(&Datagram::Reply(Reply { value, form, integer, ..Reply::bare(op, Status::Ok) }));
        op
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut out) = (Vec::new(), Vec::new());
        while self.client.poll_transmit(&mut out).is_some() {
            all.push(out.clone());
        }
        all
    }

    fn tell(&mut self, datagram: &Datagram<'_>) {
        let mut out = Vec::new();
        datagram.encode(&mut out);
        self.client.handle_datagram(self.now, REPLICA, &out);
    }

    /// Delivers a report of the only member.
    fn report(&mut self, op: OpId, prefix: u32) {
        self.report_of(op, 3, &[3], prefix);
    }

    fn report_of(&mut self, op: OpId, sender: u16, members: &[u16], prefix: u32) {
        self.status_of(op, sender, members, prefix, Status::Ok);
    }

    fn status_of(&mut self, op: OpId, sender: u16, members: &[u16], prefix: u32, status: Status) {
        self.tell(&Datagram::TransferReport(TransferReport {
            op,
            partition: PartitionId(1),
            epoch: Epoch(4),
            sender: NodeId(sender),
            status,
            members: members.iter().map(|node| NodeId(*node)).collect(),
            prefix,
            end: prefix,
            limit: 2048,
            arrived: prefix,
            asked: 0,
            chunks_per_second: 0,
            held_ns: 0,
            missing: Vec::new(),
        }));
    }

    /// Answers requests for chunks until all have arrived.
    fn serve(&mut self, op: OpId) {
        loop {
            let sent = self.sent();
            if sent.is_empty() {
                return;
            }
            for datagram in &sent {
                let Ok((_, Datagram::ReadChunks(asks))) = Datagram::decode(datagram) else { panic!() };
                for number in asks.first..asks.first + u32::from(asks.count) {
                    let (_, length) = asks.reference.chunk(number).unwrap();
                    let (keyspace, digest) = (KeyspaceId::DEFAULT, KeyDigest::default());
                    let bytes = &[7; LENGTH][..length];
                    self.tell(&Datagram::Chunk(Chunk { keyspace, op, digest, number, mask: 0, bytes }));
                }
            }
        }
    }

    fn advance(&mut self, by_ns: u64) {
        self.now.boot_ns += by_ns;
        self.client.handle_deadline(self.now);
    }

    fn in_flight(&self) -> &InFlight {
        &self.client.in_flight
    }

    fn end(&mut self) -> Result<Outcome, OperationError> {
        self.client.poll_event().expect("it is finished").result.map(|answer| answer.outcome)
    }

    /// Whether no memory is held for large values, and none is scheduled.
    fn is_clean(&mut self) -> bool {
        assert!(self.client.poll_event().is_none());
        let InFlight { slots, large, .. } = self.in_flight();
        let is_free = |slot: &Slot| {
            let Slot { buffers, large_due_ns, .. } = slot;
            buffers.large.is_none() && buffers.value.capacity() < LENGTH && *large_due_ns == u64::MAX
        };
        slots.iter().all(is_free) && large.is_clean()
    }
}

#[test]
fn put_frees_its_value_however_it_ends() {
    let ends: [fn(&mut World, OpId); 4] = [
        |world, op| world.tell(&Datagram::Reply(Reply::bare(op, Status::Ok))),
        |world, op| world.tell(&Datagram::Reply(Reply::bare(op, Status::Expired))),
        |world, op| {
            world.report(op, 0);
            world.tell(&Datagram::Reply(Reply::bare(op, Status::DiskFull)));
        },
        |world, _| world.advance(5_001 * MS),
    ];
    for (number, end) in ends.iter().enumerate() {
        let mut world = World::new();
        let op = world.put();
        world.sent();
        assert!(world.in_flight().slots[0].buffers.large.is_some());
        end(&mut world, op);
        assert!(
            world.in_flight().slots[0].buffers.large.is_none(),
            "{number}: the value is freed before the completion is taken"
        );
        assert_eq!(world.end().is_ok(), number == 0);
        assert!(world.is_clean(), "{number}");
    }
}

#[test]
fn get_frees_its_value_with_the_next_call() {
    let mut world = World::new();
    let op = world.read();
    world.serve(op);
    let completion = world.client.poll_event().expect("it is finished");
    assert_eq!(completion.result.unwrap().value, Some(&[7; LENGTH][..]));
    assert!(world.is_clean());

    world.read();
    world.advance(5_001 * MS);
    assert_eq!(world.end(), Err(OperationError::TimedOut));
    assert!(world.is_clean());
}

#[test]
fn large_put_takes_no_window_room_and_is_no_round_trip_sample() {
    let mut world = World::new();
    let ops: Vec<OpId> = (0..128).map(|_| world.put()).collect();
    assert_eq!(world.client.counters().waited, 64, "the window holds 64");
    world.sent();
    ops[..64].iter().for_each(|op| world.report(*op, 10));
    assert_eq!(world.in_flight().flow.queued(), 0, "waiting requests were admitted");
    world.sent();
    let timeout_ns = |world: &World| world.in_flight().flow.timeout_ns(0, 0);
    let before_ns = timeout_ns(&world);
    for _ in 0..300 {
        world.advance(10 * MS);
        ops.iter().for_each(|op| world.report(*op, 20));
        world.sent();
    }
    ops.iter().for_each(|op| world.report(*op, CHUNKS));
    assert!(!world.in_flight().slots[0].buffers.is_sending());
    // The time that replicas take to store the value is no round-trip sample.
    world.advance(500 * MS);
    assert_eq!(world.client.counters().retries, 128);
    ops.iter().for_each(|op| world.tell(&Datagram::Reply(Reply::bare(*op, Status::Ok))));
    assert_eq!((world.end(), timeout_ns(&world)), (Ok(Outcome::Done), before_ns));
    assert_eq!(world.in_flight().flow.smoothed_ns(1), 0, "no sample was taken");
}

#[test]
fn update_is_repeated_only_to_ask_for_reports_while_chunks_are_under_way() {
    let mut world = World::new();
    let op = world.put();
    world.sent();
    for prefix in 1..200 {
        world.report(op, prefix);
        world.advance(MS);
        let sent = world.sent();
        let is_chunk = |bytes: &Vec<u8>| matches!(Datagram::decode(bytes), Ok((_, Datagram::Chunk(_))));
        assert!(sent.iter().all(is_chunk), "only chunks are sent while reports arrive");
    }
    assert_eq!(world.client.counters().retries, 0);
    // Now no replica answers: the update is repeated to ask for reports, and then retried as usual.
    let mut updates = 0;
    while world.in_flight().slots[0].buffers.is_sending() {
        world.advance(MS);
        let is_update = |bytes: &Vec<u8>| matches!(Datagram::decode(bytes), Ok((_, Datagram::Update(_))));
        updates += world.sent().iter().filter(|bytes| is_update(bytes)).count();
        assert_eq!(world.client.counters().retries, 0);
    }
    assert!((3..12).contains(&updates), "{updates}");
    world.advance(300 * MS);
    assert_eq!(world.client.counters().retries, 1);
    // One report is enough to resume the transfer.
    world.report(op, 200);
    let numbers = |world: &mut World| {
        let chunks = world.sent().into_iter();
        let number = |bytes: Vec<u8>| match Datagram::decode(&bytes) {
            Ok((_, Datagram::Chunk(chunk))) => Some(chunk.number),
            _ => None,
        };
        chunks.filter_map(number).collect::<Vec<_>>()
    };
    let sent = numbers(&mut world);
    assert!(!sent.is_empty() && sent.iter().all(|number| *number >= 200), "{sent:?}");
}

#[test]
fn early_reports_count_once_the_primary_names_the_members() {
    let mut world = World::new();
    let op = world.put();
    world.sent();
    world.report_of(op, 4, &[], CHUNKS);
    world.report_of(op, 5, &[], CHUNKS);
    assert!(world.in_flight().slots[0].buffers.is_sending(), "the sender is unknown");
    world.report_of(op, 3, &[3, 4], CHUNKS);
    assert!(!world.in_flight().slots[0].buffers.is_sending(), "both members have everything");
    world.report_of(op, 4, &[], CHUNKS);
    assert!(!world.in_flight().slots[0].buffers.is_sending(), "a repeated report");
}

#[test]
fn refusing_secondary_is_left_out_until_it_takes_chunks() {
    let mut world = World::new();
    let op = world.put();
    world.sent();
    for prefix in [5, CHUNKS] {
        world.report_of(op, 3, &[3, 4, 5], 0);
        world.status_of(op, 4, &[], 5, Status::DiskFull);
        world.status_of(op, 5, &[], 0, Status::DiskFull);
        world.report_of(op, 4, &[], prefix);
        world.report_of(op, 3, &[3, 4, 5], CHUNKS);
        assert_eq!(world.in_flight().slots[0].buffers.is_sending(), prefix < CHUNKS);
    }
}

#[test]
fn report_releases_chunks_without_a_deadline() {
    let mut world = World::new();
    let op = world.put();
    world.sent();
    assert_eq!(world.sent(), Vec::<Vec<u8>>::new(), "the first flight is under way");
    world.now.boot_ns += MS;
    world.report(op, 64);
    assert!(world.sent().len() > 10);
}

#[test]
fn read_op_is_finished_and_its_token_is_no_reply_length() {
    let mut world = World::new();
    let op = world.read();
    world.tell(&Datagram::Reply(Reply { integer: 1_401, ..Reply::bare(op, Status::Busy) }));
    world.serve(op);
    assert_eq!(world.end(), Ok(Outcome::Done));
    world.submit(Request::Get { key: b"color" });
    assert!(world.sent()[0].len() < 100, "gets are not padded");
    let op = world.put();
    let sent = world.sent();
    let Ok((_, Datagram::Update(update))) = Datagram::decode(&sent[0]) else { panic!() };
    assert_eq!(update.watermark + 1, op.sequence, "the get is finished");
}

#[test]
fn update_of_a_large_value_is_not_batched() {
    let mut config = Config::new(ClientId(5), Vrings::on_loopback(7400));
    config.keyspaces[0].partition_bits = Some(0);
    let mut world = World { client: ClientCore::new(config), ..World::new() };
    let small = Operation::Set { value: b"blue", expiry: Expiry::Never };
    world.put();
    world.submit(Request::update(b"color", small));
    world.submit(Request::update(b"color", small));
    let opcodes =
        world.sent().iter().map(|sent| Datagram::decode(sent).unwrap().0.opcode).collect::<Vec<_>>();
    assert_eq!(opcodes[..3], [Opcode::Update, Opcode::Bundle, Opcode::Chunk]);
}

/// A quorum keyspace in which one of three replicas is enough.
fn any_of_three() -> World {
    let mut config = Config { extra_ns_per_byte: 0, ..Config::new(ClientId(5), Vrings::on_loopback(7400)) };
    config.keyspaces[0].replication = Replication::Quorum(Quorum::new(3, 1).unwrap());
    World { client: ClientCore::new(config), ..World::new() }
}

impl World {
    /// Delivers the same version as the answer of all replicas.
    fn answer(&mut self, op: OpId, timestamp: Timestamp, content: Content<'_>) {
        for node in [3, 4, 5].map(NodeId) {
            let held = QuorumHeld { op, node, epoch: Epoch(4), timestamp, floor: 0, content };
            self.tell(&Datagram::QuorumHeld(held));
        }
    }

    /// Puts a value that one replica takes completely, while the two others have taken few chunks.
    /// Returns the masks of its first chunks.
    fn put_to_one(&mut self) -> Vec<u16> {
        let op = self.put();
        let sent = self.sent();
        let chunks = sent.iter().filter_map(|bytes| match Datagram::decode(bytes) {
            Ok((_, Datagram::Chunk(chunk))) => Some(chunk.mask),
            _ => None,
        });
        let masks = chunks.collect();
        self.answer(op, Timestamp::NEVER, Content::Absent);
        for (node, prefix) in [(4, 9), (5, 9), (3, CHUNKS)] {
            self.report_of(op, node, &[3, 4, 5], prefix);
        }
        self.sent();
        self.answer(op, Timestamp::NEVER.next(op).unwrap(), Content::Present);
        assert_eq!(self.end(), Ok(Outcome::Done));
        masks
    }
}

#[test]
fn quorum_put_sends_its_chunks_with_the_query_and_once() {
    let mut world = any_of_three();
    let op = world.put();
    let sent = world.sent();
    let Ok((_, Datagram::QuorumQuery(query))) = Datagram::decode(&sent[0]) else {
        panic!("the first datagram is not the query")
    };
    let announced = Reference::checked(query.announced.expect("it names the value"));
    assert_eq!((announced.name, announced.length as usize, sent.len()), (op, LENGTH, 1 + 64));
    // Reports release more chunks before the query is answered, and the store does not change that.
    world.now.boot_ns += MS;
    world.report_of(op, 3, &[3, 4, 5], 64);
    world.answer(op, Timestamp::NEVER, Content::Absent);
    let sent = world.sent();
    let datagrams: Vec<_> = sent.iter().map(|bytes| Datagram::decode(bytes).unwrap().1).collect();
    assert!(matches!(datagrams[0], Datagram::QuorumStore(store) if store.is_large));
    let is_new = |datagram: &Datagram<'_>| matches!(datagram, Datagram::Chunk(chunk) if chunk.number >= 64);
    assert!(datagrams.len() > 10 && datagrams[1..].iter().all(is_new));
}

#[test]
fn slow_replicas_are_left_out_of_quorum_puts_for_a_while() {
    let mut world = any_of_three();
    let (all, fast) = (RECEIVERS_ALL, RECEIVERS_ALL & !receiver_bit(NodeId(4)) & !receiver_bit(NodeId(5)));
    assert_eq!(world.put_to_one(), [all; 64]);
    assert_eq!(world.put_to_one(), [fast; 64]);
    world.advance(1_999 * MS);
    assert_eq!(world.put_to_one(), [fast; 64], "a replica that is left out proves nothing");
    world.advance(MS);
    assert_eq!(world.put_to_one(), [all; 64], "after a while, slow replicas are tried again");
    assert!(world.is_clean());
}

#[test]
fn replica_is_served_by_unicast_in_at_most_four_puts() {
    let mut world = any_of_three();
    let ops: Vec<OpId> = (0..6).map(|_| world.put()).collect();
    world.sent();
    for op in &ops {
        for (node, prefix) in [(5, 9), (4, 9), (3, 150)] {
            world.report_of(*op, node, &[3, 4, 5], prefix);
        }
    }
    assert_eq!(world.client.counters().stragglers_refused, 4, "two nodes in two puts");
    for op in ops {
        world.answer(op, Timestamp::NEVER, Content::Absent);
        world.report_of(op, 3, &[3, 4, 5], CHUNKS);
        world.answer(op, Timestamp::NEVER.next(op).unwrap(), Content::Present);
        assert_eq!(world.end(), Ok(Outcome::Done));
    }
    assert!(world.in_flight().large.stragglers.is_empty() && world.is_clean());
}

#[test]
fn suspended_quorum_get_gives_up_its_op_and_is_sent_again() {
    let mut world = any_of_three();
    world.client.in_flight.large.auto_read_bytes_max = 100;
    world.submit(Request::Get { key: b"color" });
    let op = |world: &mut World| Datagram::decode(&world.sent()[0]).unwrap().0.op;
    let first = op(&mut world);
    let reference = Reference { name: OpId { client: ClientId(9), sequence: 1 }, length: 5_000, checksum: 0 };
    let large = reference.bytes();
    let timestamp = Timestamp::NEVER.next(reference.name).unwrap();
    world.answer(first, timestamp, Content::Large(&large));
    let (ticket, bytes) = world.client.poll_pending_read().expect("it exceeds the automatic limit");
    assert_eq!((bytes, world.client.next_deadline()), (5_000, None));
    world.client.suspend_read(ticket);
    assert_eq!(world.in_flight().find(first), None, "its op is over");
    world.client.allow_read(world.now, ticket, bytes);
    let second = op(&mut world);
    assert_ne!(first, second);
    world.answer(second, timestamp, Content::Large(&large));
    let sent = world.sent();
    assert!(matches!(Datagram::decode(&sent[0]), Ok((_, Datagram::ReadChunks(_)))), "it is read now");
}
