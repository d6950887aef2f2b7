//! A client, replicas that receive and send large values, and a network that loses, repeats and
//! delays datagrams, in simulated time.

use nicekv_client::{ClientCore, Completion, Config, OperationError, Outcome, Request};
use nicekv_proto::large::{Chunk, Hole, ReadChunks, Reference, TransferReport, receiver_bit};
use nicekv_proto::placement::Vrings;
use nicekv_proto::{
    ClientId, Condition, Datagram, Duration, Epoch, Expiry, Form, KeyDigest, KeyspaceId, NodeId, Now, OpId,
    Opcode, Operation, PartitionId, Reply, Status, Update,
};
use nicekv_testkit::{Queue, Random};
use nicekv_transport::{Received, Receiver, Report};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const KEY: &[u8] = b"color";
/// The token that replicas expect.
pub(crate) const TOKEN: u64 = 77;
/// Upper bound of the simulated time of a test.
const END_NS: u64 = 60_000 * MS;

/// Faults of the network: loss and duplication in thousandths, and delays.
#[derive(Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) jitter_ns: u64,
}

pub(crate) const CALM: Weather = Weather { loss: 0, duplicate: 0, jitter_ns: 0 };
const DELAY_NS: u64 = 20_000;

/// The transfer of a value to a replica.
struct Transfer {
    receiver: Receiver,
    reference: Reference,
    value: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Replica {
    transfers: BTreeMap<OpId, Transfer>,
    pub(crate) is_down: bool,
    pub(crate) status: Option<Status>,
}

impl Replica {
    /// The value that it received under this op id, if it is complete.
    pub(crate) fn whole(&self, op: OpId) -> Option<&[u8]> {
        let transfer = self.transfers.get(&op).filter(|transfer| transfer.receiver.is_complete())?;
        Some(&transfer.value)
    }

    /// How many chunks it has.
    pub(crate) fn prefix(&self) -> u32 {
        self.transfers.values().map(|transfer| transfer.receiver.chunks().prefix()).max().unwrap_or(0)
    }
}

#[derive(Clone, Copy)]
enum To {
    Replica(usize),
    Client,
}

/// How a request ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Finished {
    pub(crate) result: Result<Outcome, OperationError>,
    pub(crate) op: OpId,
    pub(crate) integer: i64,
    pub(crate) value: Option<Vec<u8>>,
}

pub(crate) struct World {
    pub(crate) client: ClientCore,
    pub(crate) now: Now,
    /// By node.
    pub(crate) replicas: Vec<Replica>,
    pub(crate) epoch: Epoch,
    pub(crate) members: Vec<NodeId>,
    pub(crate) primary: NodeId,
    pub(crate) weather: Weather,
    /// Statuses with which the primary refuses the next ops, in order, before it accepts one.
    pub(crate) refusals: Vec<Status>,
    /// Large values by name, and the name of the key's current value.
    pub(crate) values: BTreeMap<OpId, Vec<u8>>,
    pub(crate) current: Option<OpId>,
    pub(crate) small: Option<Vec<u8>>,
    /// How many chunks of a read get a wrong last byte.
    pub(crate) wrong: u32,
    /// The token that replicas expect now. A test changes it to make tokens that were given before
    /// invalid.
    pub(crate) token: u64,
    /// The primary does not reply with what it has decided.
    pub(crate) is_mute: bool,
    decided: BTreeMap<OpId, Status>,
    random: Random,
    /// Datagrams by arrival time, with their destinations.
    in_flight: Queue<(To, Vec<u8>)>,
    /// Datagrams that the client has sent.
    pub(crate) sent: Vec<(Opcode, OpId)>,
    /// Number of GSO batches of chunks that the client has sent.
    pub(crate) gso_batches: usize,
    pub(crate) finished: Vec<(usize, Finished)>,
}

/// Bytes in which no two chunks are equal.
pub(crate) fn value_of(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|at| ((at.wrapping_mul(2_654_435_761) ^ seed) >> 7) as u8).collect()
}

impl World {
    pub(crate) fn new(weather: Weather, seed: u64) -> Self {
        Self::with(weather, seed, |_| ())
    }

    pub(crate) fn with(weather: Weather, seed: u64, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(ClientId::new(1_700_000_000_000, 5), Vrings::on_loopback(7400));
        // Every value longer than a datagram is large.
        config.message_value_bytes_max = 0;
        config.extra_ns_per_byte = 0;
        change(&mut config);
        Self {
            client: ClientCore::new(config),
            now: Now { boot_ns: 17_000 * MS, unix_ms: 1_700_000_000_000 },
            replicas: (0..5).map(|_| Replica::default()).collect(),
            epoch: Epoch(4),
            members: vec![NodeId(0), NodeId(1), NodeId(2)],
            primary: NodeId(0),
            weather,
            refusals: Vec::new(),
            values: BTreeMap::new(),
            current: None,
            small: None,
            wrong: 0,
            token: TOKEN,
            is_mute: false,
            decided: BTreeMap::new(),
            random: Random::new(seed),
            in_flight: Queue::default(),
            sent: Vec::new(),
            gso_batches: 0,
            finished: Vec::new(),
        }
    }

    pub(crate) fn submit(&mut self, request: Request<'_>, timeout_ms: u64) -> usize {
        let deadline_ns = self.now.after(Duration::from_millis(timeout_ms));
        self.client.submit(self.now, KeyspaceId::DEFAULT, request, deadline_ns).unwrap().index()
    }

    pub(crate) fn put(&mut self, value: &[u8]) -> usize {
        self.submit(Request::update(KEY, Operation::Set { value, expiry: Expiry::Never }), 5_000)
    }

    pub(crate) fn get(&mut self) -> usize {
        self.submit(Request::Get { key: KEY }, 5_000)
    }

    /// Makes this the key's value, under the name with this sequence number.
    pub(crate) fn store(&mut self, sequence: u64, value: Vec<u8>) {
        let name = OpId { client: ClientId(9), sequence };
        self.values.insert(name, value);
        (self.current, self.small) = (Some(name), None);
    }

    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.members.iter().position(|member| *member == node)
    }

    fn carry(&mut self, to: To, bytes: &[u8]) {
        let copies = 1 + u64::from(self.random.below(1000) < self.weather.duplicate);
        for _ in 0..copies {
            if self.random.below(1000) >= self.weather.loss {
                let at_ns = self.now.boot_ns + DELAY_NS + self.random.below(self.weather.jitter_ns);
                self.in_flight.at(at_ns, (to, bytes.to_vec()));
            }
        }
    }

    pub(crate) fn tell(&mut self, datagram: &Datagram<'_>) {
        let mut out = Vec::new();
        datagram.encode(&mut out);
        self.carry(To::Client, &out);
    }

    /// Passes the client's datagrams to the network.
    pub(crate) fn transmit(&mut self) {
        let (mut out, before) = (Vec::new(), self.sent.len());
        while let Some(to) = self.client.poll_transmit(&mut out) {
            let (header, _) = Datagram::decode(&out).unwrap();
            self.sent.push((header.opcode, header.op));
            if to == Vrings::on_loopback(7400).multicast_ring() {
                (0..self.replicas.len()).for_each(|node| self.carry(To::Replica(node), &out));
            } else {
                assert_eq!(to, Vrings::on_loopback(7400).unicast_ring());
                self.carry(To::Replica(usize::from(self.primary.0)), &out);
            }
        }
        self.gso_batches +=
            usize::from(self.sent[before..].iter().any(|(opcode, _)| *opcode == Opcode::Chunk));
    }

    pub(crate) fn sent_count(&self, opcode: Opcode) -> usize {
        self.sent.iter().filter(|(sent, _)| *sent == opcode).count()
    }

    fn arrive(&mut self, to: To, bytes: &[u8]) {
        let To::Replica(node) = to else {
            let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7401);
            return self.client.handle_datagram(self.now, from, bytes);
        };
        let id = NodeId(node as u16);
        let (false, Some(_)) = (self.replicas[node].is_down, self.place(id)) else { return };
        match Datagram::decode(bytes).unwrap().1 {
            Datagram::Update(update) => self.on_update(node, &update),
            Datagram::Chunk(chunk) if chunk.mask & receiver_bit(id) != 0 => self.on_chunk(node, &chunk),
            Datagram::Chunk(_) => {}
            Datagram::Get(get) => self.tell_what_is_there(get.op),
            Datagram::ReadChunks(asks) => self.on_read(&asks),
            other => panic!("{other:?}"),
        }
    }

    fn on_update(&mut self, node: usize, update: &Update<'_>) {
        let op = update.op;
        let is_primary = self.primary.0 == node as u16;
        if is_primary
            && !self.is_mute
            && let Some(status) = self.decided.get(&op)
        {
            return self.tell(&Datagram::Reply(Reply::bare(op, *status)));
        }
        let Operation::SetLarge { reference, .. } = update.operation else {
            if is_primary {
                self.answer_small(update);
            }
            return;
        };
        let reference = Reference::decode(reference).unwrap();
        if is_primary && !self.refusals.is_empty() {
            let status = self.refusals.remove(0);
            self.decided.insert(op, status);
            return self.tell(&Datagram::Reply(Reply::bare(op, status)));
        }
        let now_ns = self.now.boot_ns;
        let transfer = self.replicas[node].transfers.entry(op).or_insert_with(|| Transfer {
            receiver: Receiver::new(now_ns, reference.chunks(), 2048, node as u64 + 3),
            reference,
            value: vec![0; reference.length as usize],
        });
        transfer.receiver.handle_probe(now_ns);
    }

    /// Answers an update that returns the previous value.
    fn answer_small(&mut self, update: &Update<'_>) {
        let reference = self.reference().filter(|_| update.return_old).map(|reference| reference.bytes());
        let (value, form) = (reference.as_deref(), Form::of_set(reference.is_some()));
        let integer = self.token as i64;
        let applies = update.condition != Condition::IfAbsent || value.is_none();
        let status = if applies { Status::Ok } else { Status::ConditionFailed };
        self.tell(&Datagram::Reply(Reply { value, form, integer, ..Reply::bare(update.op, status) }));
    }

    fn on_chunk(&mut self, node: usize, chunk: &Chunk<'_>) {
        let now_ns = self.now.boot_ns;
        let Some(transfer) = self.replicas[node].transfers.get_mut(&chunk.op) else { return };
        if transfer.receiver.handle_chunk(now_ns, chunk.number) == Received::New {
            let (start, length) = transfer.reference.chunk(chunk.number).unwrap();
            transfer.value[start as usize..][..length].copy_from_slice(chunk.bytes);
        }
        transfer.receiver.set_room(2048);
    }

    pub(crate) fn reference(&self) -> Option<Reference> {
        let name = self.current?;
        let value = &self.values[&name];
        let checksum = nicekv_transport::checksum(value);
        Some(Reference { name, length: value.len() as u32, checksum })
    }

    fn tell_what_is_there(&mut self, op: OpId) {
        let found = self.reference().map(|reference| reference.bytes());
        let (value, is_large) = (found.as_deref().or(self.small.as_deref()), found.is_some());
        let value = value.map(<[u8]>::to_vec);
        let status = if value.is_some() { Status::Ok } else { Status::NotFound };
        let integer = if is_large { self.token as i64 } else { 0 };
        let value = value.as_deref();
        self.tell(&Datagram::Reply(Reply {
            value,
            form: Form::of_set(is_large),
            integer,
            ..Reply::bare(op, status)
        }));
    }

    fn on_read(&mut self, asks: &ReadChunks) {
        let ReadChunks { op, reference, token, first, count, .. } = *asks;
        let Some(value) = self.values.get(&reference.name).cloned() else {
            return self.tell_what_is_there(op);
        };
        if token != self.token {
            let (bytes, integer) = (reference.bytes(), self.token as i64);
            let (status, value) = (Status::Ok, Some(bytes.as_slice()));
            let form = Form::Large;
            return self.tell(&Datagram::Reply(Reply { value, integer, form, ..Reply::bare(op, status) }));
        }
        for number in first..first + u32::from(count) {
            let (start, length) = reference.chunk(number).unwrap();
            let mut bytes = value[start as usize..][..length].to_vec();
            if self.wrong > 0 {
                self.wrong -= 1;
                bytes[0] ^= 1;
            }
            let (keyspace, digest, mask, bytes) = (KeyspaceId::DEFAULT, KeyDigest::default(), 0, &bytes[..]);
            self.tell(&Datagram::Chunk(Chunk { keyspace, op, digest, number, mask, bytes }));
        }
    }

    pub(crate) fn report(&self, node: usize, op: OpId, status: Status, report: Report) -> TransferReport {
        let sender = NodeId(node as u16);
        TransferReport {
            op,
            partition: PartitionId(3),
            epoch: self.epoch,
            sender,
            status,
            members: if sender == self.primary { self.members.clone() } else { Vec::new() },
            prefix: report.prefix,
            end: report.end,
            limit: report.limit,
            arrived: report.arrived,
            asked: report.asked,
            chunks_per_second: report.chunks_per_second,
            held_ns: report.held_ns,
            missing: report.missing.iter().map(|hole| Hole { start: hole.start, end: hole.end }).collect(),
        }
    }

    /// Sends reports; decides an op that all members have.
    fn reports(&mut self) {
        let now_ns = self.now.boot_ns;
        for node in 0..self.replicas.len() {
            if self.replicas[node].is_down || self.place(NodeId(node as u16)).is_none() {
                continue;
            }
            let status = self.replicas[node].status.unwrap_or(Status::Ok);
            let due = self.replicas[node].transfers.iter_mut();
            let due: Vec<_> =
                due.filter_map(|(op, it)| Some((*op, it.receiver.poll_report(now_ns)?))).collect();
            for (op, report) in due {
                self.tell(&Datagram::TransferReport(self.report(node, op, status, report)));
                self.decide(op);
            }
        }
    }

    fn decide(&mut self, op: OpId) {
        let member = |node: &NodeId| &self.replicas[usize::from(node.0)];
        let takes =
            self.members.iter().filter(|node| **node == self.primary || member(node).status.is_none());
        if self.decided.contains_key(&op) || !takes.clone().all(|node| member(node).whole(op).is_some()) {
            return;
        }
        let value = member(&self.primary).whole(op).expect("the primary has it").to_vec();
        self.values.insert(op, value);
        (self.current, self.small) = (Some(op), None);
        self.decided.insert(op, Status::Ok);
        if !self.is_mute {
            self.tell(&Datagram::Reply(Reply { version: op, ..Reply::bare(op, Status::Ok) }));
        }
    }

    fn take_events(&mut self) {
        while let Some(Completion { ticket, op, result }) = self.client.poll_event() {
            let finished = Finished {
                result: result.map(|answer| answer.outcome),
                op,
                integer: result.map_or(0, |answer| answer.integer),
                value: result.ok().and_then(|answer| answer.value).map(<[u8]>::to_vec),
            };
            self.finished.push((ticket.index(), finished));
        }
    }

    /// Advances to the next arrival or deadline and processes it.
    pub(crate) fn step(&mut self) {
        self.advance();
        self.take_events();
    }

    /// The same, but leaves completions in the client.
    pub(crate) fn advance(&mut self) {
        let now_ns = self.now.boot_ns;
        let takes =
            |(node, it): &(usize, &Replica)| !it.is_down && self.place(NodeId(*node as u16)).is_some();
        let members = self.replicas.iter().enumerate().filter(takes);
        let transfers = members.flat_map(|(_, it)| it.transfers.values());
        let there = transfers.filter(|it| !it.receiver.is_abandoned(now_ns) && !it.receiver.is_complete());
        let receivers = there.map(|it| it.receiver.next_deadline());
        let deadline_ns = receivers.chain(self.client.next_deadline()).min().unwrap_or(u64::MAX);
        let mut until_ns = deadline_ns.max(now_ns + 1);
        // All datagrams of one instant arrive before anything is sent in response.
        while let Some((to, bytes)) = self.in_flight.next_until(until_ns) {
            // A test may have moved `now` beyond this arrival.
            until_ns = self.in_flight.now_ns().max(now_ns);
            self.now.boot_ns = until_ns;
            self.arrive(to, &bytes);
        }
        self.now.boot_ns = until_ns;
        assert!(self.now.boot_ns < 17_000 * MS + END_NS, "it does not end");
        self.client.handle_deadline(self.now);
        self.transmit();
        self.reports();
    }

    /// Runs until this many requests are finished.
    pub(crate) fn run(&mut self, count: usize) {
        self.run_until(|world| world.finished.len() >= count);
    }

    pub(crate) fn run_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        self.transmit();
        self.take_events();
        while !is_over(self) {
            self.step();
        }
    }

    /// Runs until a request is finished, and takes its result; there must be only one.
    pub(crate) fn end(&mut self) -> Finished {
        self.run(1);
        assert_eq!(self.finished.len(), 1);
        self.finished.remove(0).1
    }
}
