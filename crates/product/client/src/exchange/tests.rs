//! Tests of each exchange alone: what it sends, and how it handles answers and timeouts.

use super::*;
use crate::request::Summary;
use nicekv_proto::limits::LONG_VALUE_BYTES_MAX;
use nicekv_proto::placement::Vrings;
use nicekv_proto::quorum::{Content, Quorum, QuorumHeld, Timestamp};
use nicekv_proto::{ClientId, Epoch, Expiry, KeyspaceId, NodeId, OpId, Operation, Reply, Status};

const OP: OpId = OpId { client: ClientId(5), sequence: 7 };
const ATTEMPT: Attempt = Attempt { op: OP, watermark: 4 };
const GET: Request<'_> = Request::Get { key: b"color" };

struct World {
    exchange: Exchange,
    buffers: Buffers,
}

fn put() -> Request<'static> {
    Request::update(b"color", Operation::Set { value: b"blue", expiry: Expiry::Never })
}

fn begin(replication: Replication, request: Request<'_>) -> (World, Round) {
    let keyspace = Keyspace { id: KeyspaceId(3), replication, ..Vrings::on_loopback(7400).into() };
    let mut exchange = Exchange::new(replication, &request).unwrap();
    let mut buffers = Buffers::new(LONG_VALUE_BYTES_MAX);
    let round = exchange.begin(ATTEMPT, &keyspace, &request, &mut buffers);
    (World { exchange, buffers }, round)
}

fn by_quorum(request: Request<'_>) -> World {
    begin(Replication::Quorum(Quorum::new(3, 2).unwrap()), request).0
}

impl World {
    fn datagram(&self) -> Datagram<'_> {
        let (header, datagram) = Datagram::decode(&self.buffers.datagram).unwrap();
        assert_eq!(header.keyspace, KeyspaceId(3));
        datagram
    }

    fn reply(&mut self, status: Status) -> Step {
        let reply = Datagram::Reply(Reply { value: Some(b"red"), ..Reply::bare(OP, status) });
        self.exchange.on_datagram(&reply, &mut self.buffers)
    }

    fn held(&mut self, node: u16, epoch: u32, counter: u64, content: Content<'_>) -> Step {
        let timestamp = Timestamp { counter, op: OP };
        let held =
            QuorumHeld { op: OP, node: NodeId(node), epoch: Epoch(epoch), timestamp, floor: 0, content };
        self.exchange.on_datagram(&Datagram::QuorumHeld(held), &mut self.buffers)
    }

    fn timeout(&mut self) -> Step {
        self.exchange.on_timeout(&mut self.buffers)
    }
}

#[test]
fn multicast_is_one_datagram_and_one_answer() {
    let (mut world, round) = begin(Replication::Multicast, GET);
    assert_eq!((round, world.buffers.to.ip().octets()[1]), (Round::Read, 10));
    assert_eq!(world.exchange.given_up(), OperationError::TimedOut);
    assert_eq!(world.timeout(), Step::Resend);
    assert!(matches!(world.reply(Status::Ok), Step::Done(Ok(Summary { has_value: true, .. }))));
    assert_eq!(world.buffers.value, b"red");

    let (mut world, round) = begin(Replication::Multicast, put());
    assert_eq!((round, world.buffers.to.ip().octets()[1]), (Round::Write, 11));
    assert!(matches!(world.datagram(), Datagram::Update(update) if update.op == OP && update.watermark == 4));
    assert_eq!(world.held(1, 1, 1, Content::Present), Step::Stray);
    assert_eq!(world.exchange.given_up(), OperationError::OutcomeUnknown);
    assert_eq!(world.reply(Status::Expired), Step::ClientExpired);
    assert_eq!(world.reply(Status::DiskFull), Step::Done(Err(OperationError::DiskFull)));
}

#[test]
fn multicast_starts_over_when_busy_and_its_outcome_is_then_known() {
    let (mut world, _) = begin(Replication::Multicast, put());
    assert_eq!(world.reply(Status::Busy), Step::RestartLater);
    assert_eq!(world.exchange.given_up(), OperationError::Busy, "nothing was stored, which is known");
    let op = OpId { sequence: 9, ..OP };
    world.exchange.begin_afresh(Attempt { op, watermark: 8 }, &mut world.buffers);
    assert!(matches!(world.datagram(), Datagram::Update(update) if update.op == op && update.watermark == 8));
    assert_eq!(world.exchange.given_up(), OperationError::OutcomeUnknown);
}

#[test]
fn quorum_put_takes_two_rounds_and_counts_each_replica_once_per_epoch() {
    let mut world = by_quorum(put());
    assert!(matches!(world.datagram(), Datagram::QuorumQuery(query) if !query.wants_value));
    assert_eq!(world.held(1, 4, 6, Content::Present), Step::Wait);
    assert_eq!(world.held(1, 4, 6, Content::Present), Step::Wait, "the same replica");
    assert_eq!(world.held(2, 3, 6, Content::Present), Step::Stray, "an older epoch");
    assert_eq!(world.held(2, 5, 6, Content::Present), Step::Wait, "the first of a newer epoch");
    assert_eq!((world.timeout(), world.exchange.given_up()), (Step::Resend, OperationError::TimedOut));
    assert_eq!(world.held(3, 5, 8, Content::Present), Step::Send(Round::Write));
    let is_store = |datagram: Datagram<'_>| {
        matches!(datagram, Datagram::QuorumStore(store)
            if store.timestamp == Timestamp { counter: 9, op: OP } && store.value == Some(b"blue"))
    };
    assert!(is_store(world.datagram()));
    assert_eq!((world.timeout(), world.exchange.given_up()), (Step::Resend, OperationError::OutcomeUnknown));
    assert!(is_store(world.datagram()), "a retry is the same datagram");
    assert_eq!(world.reply(Status::NoSuchKeyspace), Step::Stray, "a version may be stored already");
    assert_eq!(world.held(2, 5, 9, Content::Present), Step::Wait);
    assert!(matches!(world.held(1, 5, 9, Content::Present), Step::Done(Ok(Summary { version: OP, .. }))));
}

#[test]
fn quorum_get_writes_back_a_version_with_fewer_than_k_known_holders() {
    let mut world = by_quorum(GET);
    assert_eq!(world.held(1, 4, 7, Content::Present), Step::Stray, "an answer without the value");
    assert_eq!(world.held(1, 4, 7, Content::Value(b"new")), Step::Wait);
    assert_eq!(world.held(2, 4, 6, Content::Value(b"old")), Step::Send(Round::Write));
    assert!(matches!(world.datagram(), Datagram::QuorumStore(store)
        if store.timestamp.counter == 7 && store.value == Some(b"new")));
    assert_eq!(world.exchange.given_up(), OperationError::TimedOut, "it stores nothing new");
    let step = world.held(2, 4, 7, Content::Present);
    assert!(matches!(step, Step::Done(Ok(Summary { has_value: true, .. }))), "the first answer still counts");
    assert_eq!(world.buffers.value, b"new");
}
