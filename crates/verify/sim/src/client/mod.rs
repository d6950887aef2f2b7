//! A client: the real core, a random workload, and the history of its calls.

pub(crate) mod answers;
mod drawing;
pub(crate) mod scans;
pub(crate) mod shared_reads;
pub(crate) mod stamps;
pub(crate) mod subscriber;
pub(crate) mod transactions;

use crate::chain_room;
use crate::checker::Call;
use crate::checker::model::{Action, Answer, Change};
use crate::cluster::Scenario;
use crate::features::long_keys;
use crate::keyspace::{Key, known_to_clients};
use crate::node::START_UNIX_MS;
pub use crate::workload::{HURRY, Workload};
use answers::{answer, not_applied};
use nicekv_client::{Addressing, ClientCore, Config, Counters, Keyspace, Request, Waiters};
use nicekv_proto::{ClientId, Form, KeyspaceId, Now, OpId, Status};
use nicekv_switch::Matching;
use nicekv_testkit::Random;
use scans::Scanning;
use shared_reads::Sharing;
use stamps::Stamps;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use subscriber::Listening;
use transactions::{Drawn, Transacting};

/// A call in the history of a key.
#[derive(Clone, Debug)]
pub struct KeyCall {
    /// Index of the key in the workload.
    pub key: usize,
    pub call: Call,
    pub called_ns: u64,
    /// When the call was answered or failed.
    pub ended_ns: Option<u64>,
}

#[derive(Clone)]
pub struct Client {
    core: ClientCore,
    /// Keyspaces that exist from the beginning.
    first: Vec<Keyspace>,
    /// Number of keys in `first`.
    first_keys: usize,
    /// Keyspaces that were created during the run.
    further: Vec<Keyspace>,
    matching: Matching,
    /// Where the client receives datagrams.
    pub address: SocketAddrV4,
    /// When the client's loop runs next.
    pub turn_at_ns: Option<u64>,
    /// When the client makes its next call.
    pub call_at_ns: u64,
    /// Calls still to be made.
    pub calls_left: usize,
    /// All calls so far, except those that certainly took no effect.
    pub history: Vec<KeyCall>,
    /// For each request, the indexes in `history` of the calls that wait for its answer.
    waiters: Waiters<usize>,
    /// Number of unanswered calls, without transactions.
    open: usize,
    sharing: Sharing,
    void: Vec<usize>,
    /// The last version that the client has seen of each key.
    seen: BTreeMap<usize, OpId>,
    /// How often the client was given a new client id.
    renamed: u64,
    scanning: Option<Scanning>,
    pub(crate) transacting: Transacting,
    /// The client's subscriptions and published messages, if the run has pub/sub.
    pub(crate) listening: Option<Listening>,
    /// Stamps of object names (P8).
    pub(crate) stamps: Stamps,
}

pub(crate) fn now(at_ns: u64) -> Now {
    Now { boot_ns: at_ns, unix_ms: START_UNIX_MS + at_ns / 1_000_000 }
}

/// Makes clients differ: half address vnodes directly, and some do not know the number of
/// partitions, or know an outdated one.
fn vary(keyspace: &mut Keyspace, id: ClientId, matching: Matching) {
    if id.0 % 2 == 1 || matching == Matching::Headers {
        keyspace.addressing = Addressing::Vnode;
    }
    keyspace.partition_bits = match id.0 / 2 % 3 {
        0 => None,
        1 => keyspace.partition_bits,
        _ => keyspace.partition_bits.map(|bits| bits.saturating_sub(1)),
    };
}

impl Client {
    pub fn new(id: ClientId, address: SocketAddrV4, scenario: &Scenario, nodes: Vec<SocketAddrV4>) -> Self {
        let Scenario { workload, coordination, .. } = scenario;
        let mut keyspaces = known_to_clients(&scenario.keyspaces);
        keyspaces.iter_mut().for_each(|keyspace| vary(keyspace, id, scenario.matching));
        let mut config = Config { keyspaces: keyspaces.clone(), ..Config::new(id, keyspaces[0]) };
        (config.retry.min, config.message_value_bytes_max) = (workload.retry_min, workload.whole_bytes_max);
        (config.coordination, config.nodes) = (*coordination, nodes);
        config.auto_read_bytes_max = Sharing::auto_read_bytes_max(workload.reads_at_once);
        let with_primary = keyspaces.iter().find(|keyspace| keyspace.replication.quorum().is_none());
        let listening = with_primary.filter(|_| workload.messages > 0);
        Self {
            listening: listening.map(|keyspace| Listening::new(keyspace.id, workload)),
            core: ClientCore::new(config),
            first: keyspaces,
            first_keys: workload.keys.len(),
            further: Vec::new(),
            matching: scenario.matching,
            address,
            turn_at_ns: None,
            call_at_ns: workload.begins_ns,
            calls_left: workload.calls,
            history: Vec::new(),
            waiters: Waiters::default(),
            open: 0,
            sharing: Sharing::new(workload.reads_at_once),
            void: Vec::new(),
            seen: BTreeMap::new(),
            renamed: 0,
            scanning: None,
            transacting: Transacting::default(),
            stamps: Stamps::default(),
        }
    }

    /// The unicast ring address of a keyspace that exists from the beginning.
    pub fn vring(&self, keyspace: KeyspaceId) -> SocketAddrV4 {
        let known = self.first.iter().find(|known| known.id == keyspace).expect("one of those");
        known.vrings.unicast_ring()
    }

    /// Replaces the list of keyspaces that were created during the run.
    pub fn learn(&mut self, keyspaces: &[Keyspace]) {
        self.further = keyspaces.to_vec();
        if self.matching == Matching::Headers {
            self.further.iter_mut().for_each(|keyspace| keyspace.addressing = Addressing::Vnode);
        }
        let all: Vec<Keyspace> = self.first.iter().chain(&self.further).copied().collect();
        self.core.set_keyspaces(&all);
    }

    fn knows(&self, keyspace: u16) -> Option<&Keyspace> {
        self.first.iter().chain(&self.further).find(|known| known.id.0 == keyspace)
    }

    /// The counters of the client's core.
    pub fn counters(&self) -> Counters {
        self.core.counters()
    }

    /// The client id in the client's op ids.
    pub fn id(&self) -> ClientId {
        self.core.config().client
    }

    /// Whether the client has made all its calls and has received all answers.
    pub fn is_done(&self) -> bool {
        let is_quiet = self.listening.as_ref().is_none_or(Listening::is_done);
        self.calls_left == 0 && self.open_calls() == 0 && self.scanning.is_none() && is_quiet
    }

    /// Number of unanswered calls.
    pub fn open_calls(&self) -> usize {
        self.open + self.transacting.open_calls()
    }

    /// The history without calls that took no effect.
    pub fn history(&self) -> impl Iterator<Item = &KeyCall> {
        self.history.iter().enumerate().filter(|(index, _)| !self.void.contains(index)).map(|(_, call)| call)
    }

    /// When the client's loop must run even if nothing arrives.
    pub fn next_turn_ns(&self, workload: &Workload) -> Option<u64> {
        let may_call = self.calls_left > 0 && self.open_calls() < workload.window;
        let call = may_call.then_some(self.call_at_ns);
        let listening = self.listening.as_ref().and_then(|listening| listening.next_turn_ns(&self.core));
        call.into_iter().chain(self.core.next_deadline()).chain(listening).min()
    }

    pub fn receive(&mut self, at_ns: u64, from: SocketAddrV4, bytes: &[u8]) {
        self.core.handle_datagram(now(at_ns), from, bytes);
        if self.core.is_expired() {
            self.rename(at_ns);
        }
    }

    /// Continues under a new client id, as a restarted client does.
    pub fn rename(&mut self, at_ns: u64) {
        self.renamed += 1;
        // Its low byte distinguishes the values of this client from those of others.
        let random = (self.renamed << 8) | (self.id().0 & 0xff);
        self.core.rename(ClientId::new(now(at_ns).unix_ms, random));
    }

    /// Runs the client's loop once: retries, takes answers, makes the next calls. `tick` numbers
    /// calls and answers.
    pub fn turn(
        &mut self,
        at_ns: u64,
        workload: &Workload,
        random: &mut Random,
        tick: &mut u64,
        mut send: impl FnMut(SocketAddrV4, &[u8]),
    ) {
        self.core.handle_deadline(now(at_ns));
        self.take_answers(at_ns, workload, tick);
        while self.calls_left > 0 && self.open_calls() < workload.window && self.call_at_ns <= at_ns {
            self.calls_left -= 1;
            // Calls without a pause between them happen in one turn and may share datagrams.
            let is_alone = random.below(3) > 0;
            let pause_ns = if is_alone { random.below(workload.pause_ns_max) } else { 0 };
            self.call_at_ns = at_ns + pause_ns * workload.idleness(self.id(), at_ns);
            if workload.transactions > 0 && random.chance(workload.transactions) {
                self.transact(at_ns, workload, random, tick);
                continue;
            }
            let drawn = (0..workload.skew).map(|_| random.below(workload.keys.len() as u64));
            let mut key = drawn.min().unwrap_or(0) as usize;
            if self.knows(workload.keys[key].keyspace).is_none() {
                // The key's keyspace was dropped: use a key of a keyspace that exists from the
                // beginning.
                key %= self.first_keys;
            }
            let known = self.knows(workload.keys[key].keyspace).expect("from the beginning");
            let action = match known.replication.quorum() {
                Some(_) => self.draw_for_quorum(key, workload, random),
                None => self.draw(key, at_ns, workload, random),
            };
            let also = if action == Action::Get { self.sharing.also(self.calls_left, random) } else { 0 };
            for _ in 0..also {
                self.calls_left -= 1;
                self.call(at_ns, key, Action::Get, workload, tick);
            }
            self.call(at_ns, key, action, workload, tick);
            self.begin_scan(workload);
        }
        self.scan_on(at_ns, workload, tick);
        if let Some(listening) = &mut self.listening {
            listening.turn(at_ns, &mut self.core, workload, random, tick);
        }
        self.read_long(at_ns, workload);
        self.transmit(&mut send);
    }

    /// Starts reads of large values for which there is memory. Gets that shared the request of such
    /// a value are submitted again, one request each.
    fn read_long(&mut self, at_ns: u64, workload: &Workload) {
        let Self { core, waiters, sharing, history, .. } = self;
        sharing.end_turn();
        sharing.allow(now(at_ns), core, waiters);
        while let Some(place) = sharing.poll_separated() {
            let Key { keyspace, name } = &workload.keys[history[place].key];
            let (request, deadline_ns) = (Request::Get { key: name }, at_ns + workload.timeout_ns);
            match core.submit(now(at_ns), KeyspaceId(*keyspace), request, deadline_ns) {
                Ok(ticket) => waiters.begin(ticket, place),
                // The keyspace was dropped: the get fails, as in a gateway.
                Err(_) => {
                    self.open -= 1;
                    self.void.push(place);
                }
            }
        }
    }

    fn transmit(&mut self, send: &mut impl FnMut(SocketAddrV4, &[u8])) {
        let mut bytes = Vec::new();
        while let Some(to) = self.core.poll_transmit(&mut bytes) {
            chain_room::forge(self.id(), &mut bytes);
            send(to, &bytes);
        }
    }

    /// Makes a call now. An update gets the op id [`Self::next_op`].
    pub fn call(&mut self, at_ns: u64, key: usize, action: Action, workload: &Workload, tick: &mut u64) {
        let Key { keyspace, name } = &workload.keys[key];
        let request = match &action {
            Action::Get => Request::Get { key: name },
            Action::Update { condition, return_old, change, .. } => Request::Update {
                key: name,
                condition: self.stamps.condition(*keyspace, condition.condition(), change),
                return_old: *return_old,
                operation: change.operation(),
            },
        };
        let (now, deadline_ns) = (now(at_ns), at_ns + workload.timeout_ns);
        let place = self.history.len();
        let shared = self.sharing.of(key).filter(|_| action == Action::Get);
        match shared.filter(|ticket| self.waiters.is_open(*ticket)) {
            Some(ticket) => self.waiters.join(ticket, (KeyspaceId(*keyspace), name), place),
            None => {
                let ticket = self.core.submit(now, KeyspaceId(*keyspace), request, deadline_ns);
                let ticket = ticket.expect("within limits");
                self.waiters.begin(ticket, place);
                if action == Action::Get {
                    self.sharing.begin(key, ticket);
                }
            }
        }
        *tick += 1;
        self.open += 1;
        let call = Call { action, called: *tick, answered: None };
        self.history.push(KeyCall { key, call, called_ns: at_ns, ended_ns: None });
    }

    /// Submits a transaction, if the workload has co-located keys.
    fn transact(&mut self, at_ns: u64, workload: &Workload, random: &mut Random, tick: &mut u64) {
        let (keys, keyspace) = (transactions::together(&workload.keys), &self.first[0]);
        if keys == 0 || keyspace.is_hot || keyspace.replication.quorum().is_some() {
            return;
        }
        let (op, keyspace) = (self.next_op(), keyspace.id);
        let steps = transactions::draw(
            &Drawn {
                op,
                keys,
                seen: &self.seen,
                expiring: workload.expiring,
                hashes: workload.hashes,
                scripts: workload.scripts,
                at_ns,
            },
            random,
        );
        let (now, deadline_ns) = (now(at_ns), at_ns + workload.timeout_ns);
        self.transacting.call(
            steps,
            tick,
            |key| &workload.keys[key].name,
            |request| self.core.submit(now, keyspace, request, deadline_ns).expect("within limits").index(),
        );
    }

    /// Begins a scan if one is due.
    fn begin_scan(&mut self, workload: &Workload) {
        let (calls, piece_bytes, pieces) = workload.scans;
        let is_due = calls > 0 && self.calls_left.is_multiple_of(calls) && self.scanning.is_none();
        let scanned = self.first.iter().find(|keyspace| keyspace.replication.quorum().is_none());
        if let Some(keyspace) = scanned.filter(|_| is_due) {
            let piece_bytes = long_keys::piece_bytes(piece_bytes, &workload.keys);
            self.stamps.begin_listing();
            self.scanning = Some(Scanning::new(keyspace, (piece_bytes, pieces)));
        }
    }

    fn scan_on(&mut self, at_ns: u64, workload: &Workload, tick: &mut u64) {
        let Some(scanning) = &mut self.scanning else { return };
        let deadline_ns = at_ns + workload.timeout_ns;
        scanning.ask(tick, |keyspace, request| {
            self.core.submit(now(at_ns), keyspace, request, deadline_ns).expect("within limits").index()
        });
    }

    /// Adds calls that the client still has to make.
    pub fn add_calls(&mut self, calls: usize) {
        self.calls_left += calls;
    }

    /// The op id of the client's next call.
    pub fn next_op(&self) -> OpId {
        self.core.next_op()
    }

    fn take_answers(&mut self, at_ns: u64, workload: &Workload, tick: &mut u64) {
        while let Some(completion) = self.core.poll_event() {
            let ticket = completion.ticket.index();
            if self.listening.as_mut().is_some_and(|listening| listening.take(at_ns, &completion, tick)) {
                continue;
            }
            if let Some(scanning) = self.scanning.as_mut().filter(|scanning| scanning.awaits(ticket)) {
                let seen = scanning.take(ticket, completion.result, workload, (at_ns, tick));
                self.stamps.note_listed(&seen);
                self.history.extend(seen);
                self.scanning = self.scanning.take().filter(Scanning::goes_on);
                continue;
            }
            if self.transacting.awaits(ticket) {
                self.transacting.take(ticket, completion.result, tick);
                continue;
            }
            self.sharing.ended(completion.ticket);
            let places = self.waiters.take(completion.ticket);
            let answer = match completion.result {
                Ok(told) => Some(answer(&told)),
                Err(error) => not_applied(error).map(|status| Answer {
                    status,
                    version: OpId::NONE,
                    integer: 0,
                    value: None,
                    form: Form::Plain,
                }),
            };
            for place in places {
                self.open -= 1;
                self.history[place].ended_ns = Some(at_ns);
                let is_get = self.history[place].call.action == Action::Get;
                if answer.as_ref().map_or(is_get, Answer::is_refusal) {
                    self.void.push(place);
                    continue;
                }
                *tick += 1;
                let KeyCall { key, call, .. } = &mut self.history[place];
                if let Some(answer) = &answer {
                    self.seen.insert(*key, answer.version);
                }
                let erases = matches!(call.action, Action::Update { change: Change::Erase, .. });
                let answer = answer.clone().map(|answer| match erases {
                    true => Answer { status: Status::Ok, ..answer },
                    false => answer,
                });
                call.answered = answer.map(|answer| (*tick, answer));
            }
        }
    }
}
