//! Clients: each has one call, which it may repeat, and takes whatever answer comes.

use super::message::Message;
use super::world::{KEY, World};
use crate::checker::{self, Action, Answer};
use nicekv_placement::key_digest;
use nicekv_wire::limits::PORT_DEFAULT;
use nicekv_wire::{ClientId, Datagram, Get, KeyspaceId, OpId, Update};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The one call of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// An update; its op is named by the client.
    Update(Action),
    /// A get; any consistent replica may be the one that is asked.
    Get,
}

/// The op of a client's call.
pub fn op(client: usize) -> OpId {
    OpId { client: ClientId(client as u64 + 100), sequence: 1 }
}

pub(super) fn client_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 20, 2, index as u8 + 1), PORT_DEFAULT)
}

impl World {
    /// The calls so far.
    pub fn calls(&self) -> &[checker::Call] {
        &self.history
    }

    /// A client calls, or calls again.
    pub(super) fn request(&mut self, client: usize, target: usize) {
        let (op, digest) = (op(client), key_digest(KEY));
        let reply_to = Some(client_address(client));
        let mut bytes = Vec::new();
        match &self.script[client] {
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
                let (condition, operation) = (condition.condition(), change.operation());
                let return_old = *return_old;
                Update {
                    keyspace: KeyspaceId::DEFAULT,
                    op,
                    digest,
                    reply_to,
                    watermark: 1,
                    condition,
                    return_old,
                    operation,
                    key: KEY,
                }
                .encode(&mut bytes);
                // To the head of a chain alone.
                let receivers = if self.is_chain() { 1 } else { self.roles.members.len() };
                for to in self.roles.members.clone().into_iter().take(receivers) {
                    self.messages.insert(Message::new(to, bytes.as_slice().into()));
                }
            }
            Call::Update(Action::Get) => unreachable!("a get is no update"),
        }
    }

    pub(super) fn call(&mut self, client: usize, target: usize) {
        let action = match &self.script[client] {
            Call::Get => Action::Get,
            Call::Update(action) => action.clone(),
        };
        self.events += 1;
        self.history.push(checker::Call { action, called: self.events, answered: None });
        self.callers.push(client);
        self.request(client, target);
    }

    /// Clients whose call is not answered.
    pub(super) fn unanswered(&self) -> Vec<usize> {
        let open = |client: &usize| {
            let position = self.callers.iter().position(|caller| caller == client);
            position.is_none_or(|position| self.history[position].answered.is_none())
        };
        (0..self.script.len()).filter(open).collect()
    }

    pub(super) fn answer(&mut self, client: usize, bytes: &[u8]) {
        let Ok((_, Datagram::Reply(reply))) = Datagram::decode(bytes) else { return };
        let Some(position) = self.callers.iter().position(|caller| *caller == client) else { return };
        let value = reply.value.map(<[u8]>::to_vec);
        let answer = Answer { status: reply.status, version: reply.version, integer: reply.integer, value };
        self.events += 1;
        let call = &mut self.history[position];
        match &call.answered {
            None => call.answered = Some((self.events, answer)),
            // A get that is asked for once may be answered once more with a newer value; an update has one result.
            Some((_, first)) if call.action != Action::Get && *first != answer => {
                self.wrong = Some(format!("an op has two results: {first:?} and {answer:?} (X)"));
            }
            Some(_) => {}
        }
    }
}
