//! Delivers answers of the store to connections, and manages memory for the large values among
//! them.

use super::{Gateway, enqueue};
use crate::connection::{Connection, too_slow};
use crate::memory::{CHECK_INTERVAL, GrantedValue, PeerCheck};
use crate::outage;
use crate::requests::{Origin, Origins};
use crate::shared::Member;
use nicekv_client::{Answer, Completion, Separated, SharedBytes, Ticket};
use nicekv_proto::{Duration, Now};
use nicekv_redis::answered::Answered;
use nicekv_redis::limits::SHORT_BYTES_MAX;
use nicekv_redis::resp::BufferGrant;
use slab::Slab;
use std::sync::Arc;

/// The parts of the gateway that an answer changes.
struct Receivers<'a> {
    origins: &'a mut Origins,
    connections: &'a mut Slab<Connection>,
    queue: &'a mut Vec<usize>,
    member: &'a Member,
}

impl Receivers<'_> {
    fn deliver(self, completion: &Completion<'_>, shared: Option<&SharedBytes>, now: Now) {
        let cause = if completion.result.is_err() { outage::cause() } else { String::new() };
        for origin in self.origins.take(completion.ticket) {
            let took = Duration::from_nanos(now.boot_ns.saturating_sub(origin.since_ns));
            self.member.own().requests.answered(origin.called, took, completion);
            if let Some(connection) = find(self.connections, &origin) {
                let answered = Answered { result: completion.result, shared, cause: &cause };
                connection.complete(origin.command, origin.part, answered, now.unix_ms);
                enqueue(self.queue, origin.slot, connection);
            }
        }
    }
}

impl Gateway {
    /// Delivers the next answer to the commands that share it; false if there is none.
    pub(super) fn deliver_one(&mut self, now: Now) -> bool {
        let Some(completion) = self.core.poll_event() else { return false };
        if self.hub.take(now, &completion) {
            return true;
        }
        let ticket = completion.ticket;
        let reader = self.origins.first(ticket).and_then(|origin| find(&mut self.connections, origin));
        let grant = reader.and_then(|connection| connection.reads.take(ticket));
        let is_long = |answer: &Answer<'_>| answer.value.is_some_and(|value| value.len() > SHORT_BYTES_MAX);
        match (grant, completion.result) {
            (Some(mut grant), Ok(answer)) if is_long(&answer) => {
                let Answer { outcome, version, expiry_ms, integer, form, .. } = answer;
                let op = completion.op;
                let bytes = self.core.take_value().expect("a long value is separate");
                grant.shrink_to(bytes.len());
                let shared = SharedBytes::new(Arc::new(GrantedValue::new(bytes, grant)));
                let answer = Answer { outcome, version, expiry_ms, integer, value: Some(&shared), form };
                let completion = Completion { ticket, op, result: Ok(answer) };
                let Self { origins, connections, queue, member, .. } = self;
                Receivers { origins, connections, queue, member }.deliver(&completion, Some(&shared), now);
            }
            _ => {
                let Self { origins, connections, queue, member, .. } = self;
                Receivers { origins, connections, queue, member }.deliver(&completion, None, now);
            }
        }
        true
    }

    /// Lets connections request memory for their reads, and delivers granted memory.
    pub(super) fn grant_memory(&mut self, now: Now) {
        while let Some((ticket, bytes)) = self.core.poll_pending_read() {
            self.on_wanted(ticket, bytes);
        }
        if self.memory_queue.is_empty() {
            return;
        }
        for (number, grant) in self.member.server.memory.take_granted(self.member.index) {
            let slot = self.memory_queue.remove(&number).expect("closed connections cancel their requests");
            let connection = &mut self.connections[slot];
            let core = &mut self.core;
            connection.take_grant(number, grant, |ticket, bytes| core.allow_read(now, ticket, bytes));
            enqueue(&mut self.queue, slot, connection);
        }
    }

    /// A get has found a large value of this many bytes, and waits for memory. The first command
    /// that shares the get reads it; the others are deferred.
    fn on_wanted(&mut self, ticket: Ticket, bytes: usize) {
        let connections = &self.connections;
        let is_alive = |origin: &Origin| {
            connections.get(origin.slot).is_some_and(|connection| connection.session.id == origin.connection)
        };
        let Separated { keyspace, key, waiters } = self.origins.separate(ticket, is_alive);
        for origin in waiters {
            let connection = find(&mut self.connections, &origin).expect("it is alive");
            connection.reads.defer(origin, keyspace, key.clone());
            enqueue(&mut self.queue, origin.slot, connection);
        }
        let first = *self.origins.first(ticket).expect("every ticket has an origin");
        match find(&mut self.connections, &first) {
            Some(connection) => {
                connection.reads.add(first, ticket, bytes);
                enqueue(&mut self.queue, first.slot, connection);
            }
            None => self.core.cancel(ticket, None),
        }
    }

    /// Cancels the reads and the memory requests of a connection that is being closed.
    pub(super) fn forget_large_values(&mut self, connection: &Connection) {
        connection.reads.tickets().for_each(|ticket| self.core.cancel(ticket, None));
        for number in connection.queued_requests() {
            self.memory_queue.remove(&number);
            self.member.server.memory.cancel(number);
        }
    }

    /// While requests for memory are queued, closes connections whose peers are too slow.
    pub(super) fn close_slow_peers(&mut self, now: Now) {
        if self.member.server.memory.queued() == 0 {
            self.check_peers_ns = None;
            return;
        }
        let check_ns = *self.check_peers_ns.get_or_insert(now.after(CHECK_INTERVAL));
        if check_ns > now.boot_ns {
            return;
        }
        self.check_peers_ns = Some(now.after(CHECK_INTERVAL));
        let is_slow = |(slot, connection): (usize, &mut Connection)| {
            (connection.check_peer(now) == PeerCheck::TooSlow).then_some(slot)
        };
        let slow: Vec<usize> = self.connections.iter_mut().filter_map(is_slow).collect();
        for slot in slow {
            self.connections[slot].dismiss(&too_slow());
            self.member.own().connections_stalled.add(1);
            self.close(slot);
        }
    }
}

/// The connection of an origin; `None` if it was closed, even if another connection has its slot.
fn find<'a>(connections: &'a mut Slab<Connection>, origin: &Origin) -> Option<&'a mut Connection> {
    connections.get_mut(origin.slot).filter(|connection| connection.session.id == origin.connection)
}
