//! A client of a quorum keyspace: the real core, a random workload, and the history of what it was told.

use super::Workload;
use crate::checker::Call;
use crate::checker::model::{Action, Answer, Change, When};
use crate::node::START_UNIX_MS;
use crate::random::Random;
use nicekv_client::{ClientCore, Config, Keyspace, Outcome, Request};
use nicekv_placement::Vrings;
use nicekv_wire::quorum::Quorum;
use nicekv_wire::{ClientId, KeyspaceId, Now, Replication, Status};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

/// A call of the history.
#[derive(Clone, Debug)]
pub struct KeyCall {
    /// Index of the key.
    pub key: usize,
    /// The call.
    pub call: Call,
    /// When it was made.
    pub called_ns: u64,
    /// When it was answered, or failed.
    pub ended_ns: Option<u64>,
    /// It failed, and did nothing.
    pub is_void: bool,
}

/// See the module.
pub struct Client {
    /// The core.
    pub core: ClientCore,
    /// Where it is reached.
    pub address: SocketAddrV4,
    /// When its loop turns next.
    pub turn_at_ns: Option<u64>,
    call_at_ns: u64,
    calls_left: usize,
    /// All calls made so far.
    pub history: Vec<KeyCall>,
    /// By the ticket's index, the place in `history`.
    open: BTreeMap<usize, usize>,
}

/// What the clocks say.
pub fn now(at_ns: u64) -> Now {
    Now { boot_ns: at_ns, unix_ms: START_UNIX_MS + at_ns / 1_000_000 }
}

impl Client {
    /// A client that has yet to do its share of `workload`.
    pub fn new(
        id: ClientId,
        address: SocketAddrV4,
        vrings: Vrings,
        quorum: Quorum,
        workload: &Workload,
    ) -> Self {
        let keyspace = Keyspace { replication: Replication::Quorum(quorum), ..vrings.into() };
        Self {
            core: ClientCore::new(Config::new(id, keyspace)),
            address,
            turn_at_ns: None,
            call_at_ns: 0,
            calls_left: workload.calls,
            history: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    /// Gives it more to do.
    pub fn add_calls(&mut self, calls: usize) {
        self.calls_left += calls;
    }

    /// Whether it has nothing left to do.
    pub fn is_done(&self) -> bool {
        self.calls_left == 0 && self.open.is_empty()
    }

    /// When its loop must turn though nothing arrives.
    pub fn next_turn_ns(&self, workload: &Workload) -> Option<u64> {
        let may_call = self.calls_left > 0 && self.open.len() < workload.window;
        may_call.then_some(self.call_at_ns).into_iter().chain(self.core.next_deadline()).min()
    }

    /// A turn of its loop: retries, takes answers, makes the next call. `tick` numbers calls and answers.
    pub fn turn(&mut self, at_ns: u64, workload: &Workload, random: &mut Random, tick: &mut u64) {
        self.core.handle_deadline(now(at_ns));
        self.take_answers(at_ns, tick);
        if self.calls_left > 0 && self.open.len() < workload.window && self.call_at_ns <= at_ns {
            self.calls_left -= 1;
            self.call_at_ns = at_ns + random.below(workload.pause_ns_max);
            let key = random.below(workload.keys as u64) as usize;
            let change = match random.below(5) {
                0 => Some(Change::Erase),
                1 | 2 => Some(Change::Set(self.next_value())),
                _ => None,
            };
            self.call(at_ns, key, change, workload.timeout_ns, tick);
        }
    }

    /// A value that nobody else puts.
    pub fn next_value(&self) -> Vec<u8> {
        let op = self.core.next_op();
        format!("{}/{}", op.client.0 & 0xff, op.sequence).into_bytes()
    }

    /// Makes a call: a get, or a change. Its place in the history.
    pub fn call(
        &mut self,
        at_ns: u64,
        key: usize,
        change: Option<Change>,
        timeout_ns: u64,
        tick: &mut u64,
    ) -> usize {
        let name = key_name(key);
        let request = match &change {
            None => Request::Get { key: &name },
            Some(change) => Request::update(&name, change.operation()),
        };
        let (now, op) = (now(at_ns), self.core.next_op());
        let ticket =
            self.core.submit(now, KeyspaceId::DEFAULT, request, at_ns + timeout_ns).expect("within limits");
        *tick += 1;
        let action = match change {
            None => Action::Get,
            Some(change) => Action::Update { op, condition: When::Always, return_old: false, change },
        };
        self.open.insert(ticket.index(), self.history.len());
        let call = Call { action, called: *tick, answered: None };
        self.history.push(KeyCall { key, call, called_ns: at_ns, ended_ns: None, is_void: false });
        self.history.len() - 1
    }

    fn take_answers(&mut self, at_ns: u64, tick: &mut u64) {
        while let Some(completion) = self.core.poll_event() {
            let index = self.open.remove(&completion.ticket.index()).expect("each call completes once");
            let KeyCall { call, ended_ns, is_void, .. } = &mut self.history[index];
            let is_get = call.action == Action::Get;
            *ended_ns = Some(at_ns);
            *tick += 1;
            match completion.result {
                Err(_) => *is_void = is_get,
                Ok(told) => {
                    let found = told.outcome == Outcome::Done || !is_get;
                    let status = if found { Status::Ok } else { Status::NotFound };
                    let value = told.value.map(<[u8]>::to_vec);
                    call.answered =
                        Some((*tick, Answer { status, version: told.version, integer: 0, value }));
                }
            }
        }
    }
}

/// Keys are named by their index.
pub fn key_name(key: usize) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}
