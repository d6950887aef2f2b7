//! Clients: each has one call, which it may repeat, and takes any answer.

use super::{KEY, World};
use crate::checker::model::When;
use crate::checker::{self, Action, Answer};
use crate::explore::message::Message;
use nicekv_proto::limits::PORT_DEFAULT;
use nicekv_proto::placement::key_digest;
use nicekv_proto::transaction::{Act, Step, Taken};
use nicekv_proto::{ClientId, Condition, Datagram, Get, KeyspaceId, OpId, Operation, Reply, Update};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The key of a transaction's first step.
const OTHER_KEY: &[u8] = b"j";

/// The one call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// An update. The client's op id replaces the one in it.
    Update(Action),
    /// The same as the second step of a transaction whose first step adds to another key. The
    /// history of the first key is not judged.
    Transaction(Action),
    /// A get, which may be sent to any consistent replica.
    Get,
}

/// The op id of a client's call.
pub fn op(client: usize) -> OpId {
    OpId { client: ClientId(client as u64 + 100), sequence: 1 }
}

pub(in crate::explore) fn client_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, index as u8 + 1), PORT_DEFAULT)
}

impl World {
    pub fn calls(&self) -> &[checker::Call] {
        &self.history
    }

    /// A client makes its call, or repeats it.
    pub(in crate::explore) fn request(&mut self, client: usize, target: usize) {
        let (op, digest) = (op(client), key_digest(KEY));
        let reply_to = Some(client_address(client));
        let mut bytes = Vec::new();
        match &self.script.clone()[client] {
            Call::Get => {
                Get {
                    keyspace: KeyspaceId::DEFAULT,
                    op,
                    digest,
                    reply_to,
                    forwarded: None,
                    key: KEY,
                    padding: 0,
                }
                .encode(&mut bytes);
                self.messages.insert(Message::new(target, bytes.as_slice().into()));
            }
            Call::Update(Action::Update { condition, return_old, change, .. }) => {
                self.update(client, KEY, (condition.condition(), *return_old), change.operation());
            }
            Call::Transaction(Action::Update { condition, return_old, change, .. }) => {
                let apply = |key, condition: When, return_old, operation| Step {
                    key,
                    act: Act::Apply { operation, condition: condition.condition(), return_old },
                };
                let mut steps = Vec::new();
                apply(OTHER_KEY, When::Always, false, Operation::Increment(1)).append(&mut steps);
                apply(KEY, *condition, *return_old, change.operation()).append(&mut steps);
                let plain = (Condition::Always, false);
                self.update(client, OTHER_KEY, plain, Operation::Transaction(&steps));
            }
            Call::Update(Action::Get) | Call::Transaction(Action::Get) => unreachable!("a get is no update"),
        }
    }

    /// Sends an update to all nodes that receive it from a client: to all members, or to the head
    /// of a chain.
    fn update(
        &mut self,
        client: usize,
        key: &[u8],
        (condition, return_old): (Condition, bool),
        operation: Operation<'_>,
    ) {
        let mut bytes = Vec::new();
        Update {
            keyspace: KeyspaceId::DEFAULT,
            op: op(client),
            digest: key_digest(key),
            reply_to: Some(client_address(client)),
            watermark: 1,
            condition,
            return_old,
            operation,
            key,
        }
        .encode(&mut bytes);
        let receivers = if self.is_chain() { 1 } else { self.roles.members.len() };
        for to in self.roles.members.clone().into_iter().take(receivers) {
            self.messages.insert(Message::new(to, bytes.as_slice().into()));
        }
    }

    pub(in crate::explore) fn call(&mut self, client: usize, target: usize) {
        let action = match &self.script[client] {
            Call::Get => Action::Get,
            Call::Update(action) | Call::Transaction(action) => action.clone(),
        };
        self.events += 1;
        self.history.push(checker::Call { action, called: self.events, answered: None });
        self.callers.push(client);
        self.request(client, target);
    }

    /// Clients whose call is not answered.
    pub(in crate::explore) fn unanswered(&self) -> Vec<usize> {
        let open = |client: &usize| {
            let position = self.callers.iter().position(|caller| caller == client);
            position.is_none_or(|position| self.history[position].answered.is_none())
        };
        (0..self.script.len()).filter(open).collect()
    }

    pub(in crate::explore) fn answer(&mut self, client: usize, bytes: &[u8]) {
        let Ok((_, Datagram::Reply(reply))) = Datagram::decode(bytes) else { return };
        let Some(position) = self.callers.iter().position(|caller| *caller == client) else { return };
        let is_transaction = matches!(self.script[client], Call::Transaction(_));
        let answer = if is_transaction { second(&reply) } else { told(&reply) };
        self.events += 1;
        let call = &mut self.history[position];
        match &call.answered {
            None => call.answered = Some((self.events, answer)),
            // A repeated get may return a newer value than its first answer; an update has one
            // result.
            Some((_, first)) if call.action != Action::Get && *first != answer => {
                self.wrong = Some(format!("an op has two results: {first:?} and {answer:?} (X)"));
            }
            Some(_) => {}
        }
    }
}

fn told(reply: &Reply<'_>) -> Answer {
    let value = reply.value.map(<[u8]>::to_vec);
    Answer { status: reply.status, version: reply.version, integer: reply.integer, value, form: reply.form }
}

/// The result of a transaction's second step.
fn second(reply: &Reply<'_>) -> Answer {
    let step = Taken::each(reply.value.unwrap_or_default()).nth(1);
    step.map_or_else(
        || told(reply),
        |step| Answer {
            status: step.status,
            version: reply.version,
            integer: step.integer,
            value: step.value_is_result.then(|| step.value.to_vec()),
            form: step.form,
        },
    )
}
