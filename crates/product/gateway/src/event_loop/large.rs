//! Large values, from the client to connections: which requests may read theirs, and what becomes of these.

use super::{Gateway, enqueue};
use crate::answered::Answered;
use crate::connection::{Connection, too_slow};
use crate::limits::SHORT_BYTES_MAX;
use crate::pace::{LOOK_EVERY, Seen};
use crate::permits::Kept;
use crate::requests::{Origin, Origins};
use crate::shared::Member;
use nicekv_client::{Answer, Completion, Separated, Ticket};
use nicekv_proto::{Duration, Now};
use slab::Slab;
use std::sync::Arc;

/// Where answers go.
struct Hands<'a> {
    origins: &'a mut Origins,
    connections: &'a mut Slab<Connection>,
    queue: &'a mut Vec<usize>,
    member: &'a Member,
}

impl Hands<'_> {
    fn hand_over(self, completion: &Completion<'_>, kept: Option<&Arc<Kept>>, now: Now) {
        for origin in self.origins.take(completion.ticket) {
            let took = Duration::from_nanos(now.boot_ns.saturating_sub(origin.since_ns));
            self.member.own().requests.answered(origin.called, took, completion);
            if let Some(connection) = of(self.connections, &origin) {
                let answered = Answered { result: completion.result, kept };
                connection.complete(origin.command, origin.part, answered, now.unix_ms);
                enqueue(self.queue, origin.slot, connection);
            }
        }
    }
}

impl Gateway {
    /// Hands the next answer to the commands that wait for it; false if there is none.
    pub(super) fn deliver_one(&mut self, now: Now) -> bool {
        let Some(completion) = self.core.poll_event() else { return false };
        if self.hub.take(now, &completion) {
            return true;
        }
        let ticket = completion.ticket;
        let reader = self.origins.first(ticket).and_then(|origin| of(&mut self.connections, origin));
        let claim = reader.and_then(|connection| connection.reads.take(ticket));
        let is_long = |answer: &Answer<'_>| answer.value.is_some_and(|value| value.len() > SHORT_BYTES_MAX);
        match (claim, completion.result) {
            (Some(mut claim), Ok(answer)) if is_long(&answer) => {
                let Answer { outcome, version, expiry_ms, integer, form, .. } = answer;
                let op = completion.op;
                let bytes = self.core.take_value().expect("it is longer than a datagram");
                claim.shrink_to(bytes.len());
                let kept = Arc::new(Kept::new(bytes, claim));
                let answer = Answer { outcome, version, expiry_ms, integer, value: Some(&kept.bytes), form };
                let completion = Completion { ticket, op, result: Ok(answer) };
                let Self { origins, connections, queue, member, .. } = self;
                Hands { origins, connections, queue, member }.hand_over(&completion, Some(&kept), now);
            }
            _ => {
                let Self { origins, connections, queue, member, .. } = self;
                Hands { origins, connections, queue, member }.hand_over(&completion, None, now);
            }
        }
        true
    }

    /// Lets connections ask for what their requests are to read, and gives them what was granted.
    pub(super) fn hear_of_large(&mut self, now: Now) {
        while let Some((ticket, bytes)) = self.core.poll_pending_read() {
            self.on_wanted(ticket, bytes);
        }
        if self.askers.is_empty() {
            return;
        }
        for (number, claim) in self.member.server.permits.take_granted(self.member.index) {
            let slot = self.askers.remove(&number).expect("who goes withdraws its questions");
            let connection = &mut self.connections[slot];
            let core = &mut self.core;
            connection.take_grant(number, claim, |ticket, bytes| core.allow_read(now, ticket, bytes));
            enqueue(&mut self.queue, slot, connection);
        }
    }

    /// A request waits to read so many bytes.
    fn on_wanted(&mut self, ticket: Ticket, bytes: usize) {
        let connections = &self.connections;
        let is_alive = |origin: &Origin| {
            connections.get(origin.slot).is_some_and(|connection| connection.session.id == origin.connection)
        };
        let Separated { keyspace, key, waiters } = self.origins.separate(ticket, is_alive);
        for origin in waiters {
            let connection = of(&mut self.connections, &origin).expect("it is alive");
            connection.reads.defer(origin, keyspace, key.clone());
            enqueue(&mut self.queue, origin.slot, connection);
        }
        let first = *self.origins.first(ticket).expect("every ticket has an origin");
        match of(&mut self.connections, &first) {
            Some(connection) => {
                connection.reads.name(first, ticket, bytes);
                enqueue(&mut self.queue, first.slot, connection);
            }
            None => self.core.cancel(ticket, None),
        }
    }

    /// A connection is no more: nobody waits for what it was to read.
    pub(super) fn forget_large(&mut self, connection: &Connection) {
        connection.reads.tickets().for_each(|ticket| self.core.cancel(ticket, None));
        for number in connection.questions() {
            self.askers.remove(&number);
            self.member.server.permits.withdraw(number);
        }
    }

    /// While somebody waits for what others hold: closes those that do not do their part.
    pub(super) fn look_at_peers(&mut self, now: Now) {
        if self.member.server.permits.waiting() == 0 {
            self.look_ns = None;
            return;
        }
        let look_ns = *self.look_ns.get_or_insert(now.after(LOOK_EVERY));
        if look_ns > now.boot_ns {
            return;
        }
        self.look_ns = Some(now.after(LOOK_EVERY));
        let is_slow = |(slot, connection): (usize, &mut Connection)| {
            (connection.look_at_pace(now) == Seen::TooSlow).then_some(slot)
        };
        let slow: Vec<usize> = self.connections.iter_mut().filter_map(is_slow).collect();
        for slot in slow {
            self.connections[slot].dismiss(&too_slow());
            self.member.own().connections_stalled.add(1);
            self.close(slot);
        }
    }
}

/// The connection of an origin, if it is still there: another one may have its place.
fn of<'a>(connections: &'a mut Slab<Connection>, origin: &Origin) -> Option<&'a mut Connection> {
    connections.get_mut(origin.slot).filter(|connection| connection.session.id == origin.connection)
}
