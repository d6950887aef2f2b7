//! Memory for the large arguments and values of a connection.

use super::Connection;
use crate::memory::{Admission, Grant, Need, PeerCheck, Position};
use crate::requests::{Origin, Requests};
use nicekv_client::{OperationError, Request, Ticket};
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::{KeyspaceId, Now};
use nicekv_redis::command::Kind;
use nicekv_redis::error::CommandError;
use nicekv_redis::resp::{Parser, WantedBuffer};
use nicekv_redis::table::find;

/// Memory requested for a script in addition to its first large argument: more than a script may
/// have, so that its own limit is what it reaches.
const SCRIPT_BYTES_REQUESTED: usize = 4 * TRANSACTION_BYTES_MAX;

/// Refuses a command whose large arguments exceed the limit.
pub(super) fn check(parser: &Parser<Grant>, requests: &Requests<'_>) -> Result<(), CommandError> {
    if !parser.is_denied() {
        return Ok(());
    }
    let limit = requests.member.server.memory.grant_max();
    Err(CommandError::text(format!(
        "ERR large arguments exceed the limit of {limit} bytes for one command: half of what all connections together may hold of large values"
    )))
}

/// The error for a peer that sends or reads too slowly.
pub(crate) fn too_slow() -> CommandError {
    CommandError::fixed(
        "ERR closed: others wait for room for large values, and this connection neither sends nor reads fast enough what it has room for; \
         what it has no reply for may or may not have taken effect",
    )
}

impl Connection {
    /// Requests memory for a large argument. Returns whether the parser can continue.
    pub(super) fn request_argument_memory(
        &mut self,
        slot: usize,
        wants: WantedBuffer,
        requests: &mut Requests<'_>,
    ) -> bool {
        if self.queued_argument.is_some() || (wants.has_begun && !self.readable) {
            return false;
        }
        let memory = &requests.member.server.memory;
        let value_bytes_max = requests.member.server.value_bytes_max;
        let bytes = self.bytes_to_request(wants, value_bytes_max).min(memory.grant_max()).max(wants.bytes);
        if self.unanswered.may_want_values() {
            // This command may have to wait for an earlier one that needs memory itself, so it may
            // not hold a plain grant.
            let grant = memory.try_grant_dependent(bytes);
            return grant.map(|grant| self.parser.accept(grant)).is_some();
        }
        let position = if wants.has_begun { Position::Front } else { Position::Back };
        match memory.request(bytes, position, requests.member.index) {
            Admission::Granted(grant) => self.parser.accept(grant),
            Admission::TooLarge => self.parser.deny(),
            Admission::Queued(number) => {
                self.queued_argument = Some(number);
                requests.memory_queue.insert(number, slot);
                return false;
            }
        }
        true
    }

    /// How much memory to request for a command's arguments, in one request: for keys with values
    /// (MSET), enough for the longest possible values; for a script, more than it may have.
    fn bytes_to_request(&self, wants: WantedBuffer, value_bytes_max: usize) -> usize {
        let WantedBuffer { bytes, arguments_left, room, has_begun } = wants;
        let command = self.parser.name().and_then(find);
        if command.is_some_and(|command| command.kind == Kind::Script) && !has_begun {
            return bytes.saturating_add(SCRIPT_BYTES_REQUESTED).min(room);
        }
        match command {
            Some(command) if command.keys.step == 2 && !has_begun => {
                bytes.saturating_add((arguments_left / 2).saturating_mul(value_bytes_max)).min(room)
            }
            _ => bytes,
        }
    }

    /// Accepts the grant of the queued request with this number. `allow` starts a read that the
    /// grant covers.
    pub(crate) fn take_grant(&mut self, number: u64, grant: Grant, allow: impl FnMut(Ticket, usize)) {
        if self.queued_argument == Some(number) {
            self.queued_argument = None;
            self.parser.accept(grant);
        } else if self.reads.queued == Some(number) {
            self.reads.queued = None;
            self.reads.allow(self.unanswered.first(), grant, allow);
        }
    }

    /// Numbers of the connection's queued memory requests.
    pub(crate) fn queued_requests(&self) -> impl Iterator<Item = u64> {
        self.queued_argument.into_iter().chain(self.reads.queued)
    }

    /// Requests memory for the large values that the connection's commands are about to read.
    pub(crate) fn request_read_memory(&mut self, slot: usize, requests: &mut Requests<'_>) {
        if self.reads.is_empty() {
            return;
        }
        let oldest = self.unanswered.first();
        let is_several = self.unanswered.reads_several(oldest);
        // The oldest command gets memory only when the peer has read all earlier values.
        let is_next = !self.output.has_parts();
        let (core, now) = (&mut *requests.core, requests.now);
        let memory = &requests.member.server.memory;
        self.reads.try_dependent((is_next && !is_several).then_some(oldest), |ticket, bytes| {
            let grant = memory.try_grant_dependent(bytes);
            match &grant {
                Some(_) => core.allow_read(now, ticket, bytes),
                None => core.suspend_read(ticket),
            }
            grant
        });
        if !is_next {
            return;
        }
        while let Some((origin, keyspace, key)) = self.reads.take_deferred(oldest) {
            self.get_again(origin, keyspace, &key, requests);
        }
        // A failed `get_again` may have finished the oldest command.
        if self.unanswered.first() == oldest
            && let Need::Grant { bytes, at_once } = self.reads.need(oldest, self.unanswered.in_flight(oldest))
        {
            self.request_grant(slot, (bytes, at_once), requests);
        }
    }

    fn request_grant(&mut self, slot: usize, (bytes, at_once): (usize, bool), requests: &mut Requests<'_>) {
        let oldest = self.unanswered.first();
        let memory = &requests.member.server.memory;
        let admission = match at_once {
            true => memory.try_grant(bytes).map_or(Admission::TooLarge, Admission::Granted),
            false => memory.request(bytes, Position::Back, requests.member.index),
        };
        if self.unanswered.reads_several(oldest) {
            self.reads.note_requested(oldest);
        }
        let (core, now) = (&mut *requests.core, requests.now);
        match admission {
            Admission::Granted(grant) => {
                self.reads.allow(oldest, grant, |ticket, bytes| core.allow_read(now, ticket, bytes));
            }
            Admission::TooLarge => {
                let limit = memory.grant_max();
                self.reads.waiting(oldest).for_each(|ticket| core.cancel(ticket, Some(limit)));
            }
            Admission::Queued(number) => {
                self.reads.queued = Some(number);
                requests.memory_queue.insert(number, slot);
                self.reads.waiting(oldest).for_each(|ticket| core.suspend_read(ticket));
            }
        }
    }

    /// Reads a key again for a command that shared its get with another command: the other one took
    /// the value.
    fn get_again(&mut self, origin: Origin, keyspace: KeyspaceId, key: &[u8], requests: &mut Requests<'_>) {
        let wants_value = self.unanswered.wants_values(origin.command);
        let request = if wants_value { Request::Get { key } } else { Request::Length { key } };
        if requests.begin_alone(keyspace, request, origin).is_err() {
            let busy = Err(OperationError::Busy).into();
            self.complete(origin.command, origin.part, busy, requests.now.unix_ms);
        }
    }

    /// Whether the peer sends or reads fast enough for the memory it holds. Called while requests for
    /// memory are queued.
    pub(crate) fn check_peer(&mut self, now: Now) -> PeerCheck {
        let is_sending = self.parser.has_grant() && self.parser.command().is_none();
        if !is_sending && !self.output.has_parts() {
            self.progress.reset();
            return PeerCheck::Moving;
        }
        let is_to_send = is_sending && !self.readable && self.queued_argument.is_none();
        let check = self.progress.check(now.boot_ns, self.moved, is_to_send || !self.output.is_empty());
        if check == PeerCheck::Quiet && is_to_send {
            self.parser.interrupt();
        }
        check
    }
}
