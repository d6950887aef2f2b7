//! What a connection holds of large values, and asks for.

use super::Connection;
use crate::command::{Command, Kind};
use crate::error::CommandError;
use crate::large_reads::Need;
use crate::line::Place;
use crate::pace::Seen;
use crate::parser::{Parser, Wants};
use crate::permits::{Answer, Claim, Permits};
use crate::requests::{Origin, Requests};
use nicekv_client::{OperationError, Request, Ticket};
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::{KeyspaceId, Now};

/// What scripts ask for beside their first large argument: with so much they are told their own limit.
const SCRIPT_BYTES_ASKED: usize = 4 * TRANSACTION_BYTES_MAX;

/// Refuses the command if it needs more than there may be.
pub(super) fn admit(parser: &Parser, permits: &Permits) -> Result<(), CommandError> {
    if !parser.is_denied() {
        return Ok(());
    }
    let limit = permits.claim_max();
    Err(CommandError::text(format!(
        "ERR large arguments exceed the limit of {limit} bytes for one command: half of what all connections together may hold of large values"
    )))
}

/// What one who has read or sent too little is told.
pub(crate) fn too_slow() -> CommandError {
    CommandError::fixed(
        "ERR closed: others wait for room for large values, and this connection neither sends nor reads fast enough what it has room for; \
         what it has no reply for may or may not have taken effect",
    )
}

impl Connection {
    /// Asks for what a large argument needs; whether it goes on.
    pub(super) fn ask_for_argument(
        &mut self,
        slot: usize,
        wants: Wants,
        requests: &mut Requests<'_>,
    ) -> bool {
        if self.asked.is_some() || (wants.has_begun && !self.readable) {
            return false;
        }
        let permits = &requests.member.server.permits;
        let value_bytes_max = requests.member.server.value_bytes_max;
        let bytes = self.bytes_to_ask(wants, value_bytes_max).min(permits.claim_max()).max(wants.bytes);
        if self.unanswered.may_want() {
            // It may have to wait for a command that waits itself; when that is answered it does not.
            let claim = permits.ask_dependent(bytes);
            return claim.map(|claim| self.parser.accept(claim)).is_some();
        }
        let place = if wants.has_begun { Place::First } else { Place::Last };
        match permits.ask(bytes, place, requests.member.index) {
            Answer::Granted(claim) => self.parser.accept(claim),
            Answer::TooMuch => self.parser.deny(),
            Answer::Waits(number) => {
                self.asked = Some(number);
                requests.askers.insert(number, slot);
                return false;
            }
        }
        true
    }

    /// A command asks once: one on pairs of keys and values for all values that it may have, and a script for more than it may have.
    fn bytes_to_ask(&self, wants: Wants, value_bytes_max: usize) -> usize {
        let Wants { bytes, arguments_left, room, has_begun } = wants;
        let command = self.parser.name().and_then(Command::find);
        if command.is_some_and(|command| command.kind == Kind::Script) && !has_begun {
            return bytes.saturating_add(SCRIPT_BYTES_ASKED).min(room);
        }
        match command.and_then(|command| command.keys) {
            Some((_, 2)) if !has_begun => {
                bytes.saturating_add((arguments_left / 2).saturating_mul(value_bytes_max)).min(room)
            }
            _ => bytes,
        }
    }

    /// What it waited for by this number is granted; `allow` lets a request read.
    pub(crate) fn take_grant(&mut self, number: u64, claim: Claim, allow: impl FnMut(Ticket, usize)) {
        if self.asked == Some(number) {
            self.asked = None;
            self.parser.accept(claim);
        } else if self.reads.asked == Some(number) {
            self.reads.asked = None;
            self.reads.allow(self.unanswered.first(), claim, allow);
        }
    }

    /// The numbers of its questions that wait.
    pub(crate) fn questions(&self) -> impl Iterator<Item = u64> {
        self.asked.into_iter().chain(self.reads.asked)
    }

    /// Asks for what its commands are to read.
    pub(crate) fn look_after_reads(&mut self, slot: usize, requests: &mut Requests<'_>) {
        if self.reads.is_empty() {
            return;
        }
        let oldest = self.unanswered.first();
        let is_several = self.unanswered.outstanding(oldest).is_some();
        // What was read before goes first.
        let is_next = !self.output.has_parts();
        let (core, now) = (&mut *requests.core, requests.now);
        let permits = &requests.member.server.permits;
        self.reads.try_dependent((is_next && !is_several).then_some(oldest), |ticket, bytes| {
            let claim = permits.ask_dependent(bytes);
            match &claim {
                Some(_) => core.allow_read(now, ticket, bytes),
                None => core.suspend_read(ticket),
            }
            claim
        });
        if !is_next {
            return;
        }
        while let Some((origin, keyspace, key)) = self.reads.take_deferred(oldest) {
            self.get_again(origin, keyspace, &key, requests);
        }
        // The last of them may have failed, and the command with it.
        if self.unanswered.first() == oldest
            && let Need::Claim { bytes, at_once } = self.reads.need(oldest, self.under_way(oldest))
        {
            self.ask_for_reads(slot, (bytes, at_once), requests);
        }
    }

    /// Requests of a command that are sent and not answered.
    fn under_way(&self, command: u64) -> usize {
        let Some(outstanding) = self.unanswered.outstanding(command) else { return 1 };
        outstanding - self.unsent_of(command)
    }

    fn ask_for_reads(&mut self, slot: usize, (bytes, at_once): (usize, bool), requests: &mut Requests<'_>) {
        let oldest = self.unanswered.first();
        let permits = &requests.member.server.permits;
        let answer = match at_once {
            true => permits.ask_now(bytes).map_or(Answer::TooMuch, Answer::Granted),
            false => permits.ask(bytes, Place::Last, requests.member.index),
        };
        if self.unanswered.outstanding(oldest).is_some() {
            self.reads.note_asked(oldest);
        }
        let (core, now) = (&mut *requests.core, requests.now);
        match answer {
            Answer::Granted(claim) => {
                self.reads.allow(oldest, claim, |ticket, bytes| core.allow_read(now, ticket, bytes));
            }
            Answer::TooMuch => {
                let limit = permits.claim_max();
                self.reads.waiting(oldest).for_each(|ticket| core.cancel(ticket, Some(limit)));
            }
            Answer::Waits(number) => {
                self.reads.asked = Some(number);
                requests.askers.insert(number, slot);
                self.reads.waiting(oldest).for_each(|ticket| core.suspend_read(ticket));
            }
        }
    }

    /// Another command has the value that this one shared with it: it gets its own, if it needs one.
    fn get_again(&mut self, origin: Origin, keyspace: KeyspaceId, key: &[u8], requests: &mut Requests<'_>) {
        let wants_value = self.unanswered.wants_value(origin.command);
        let request = if wants_value { Request::Get { key } } else { Request::Length { key } };
        if requests.begin_alone(keyspace, request, origin).is_err() {
            let busy = Err(OperationError::Busy).into();
            self.complete(origin.command, origin.part, busy, requests.now.unix_ms);
        }
    }

    /// How the peer does what it has to, for what it holds. Called while somebody waits for what is held.
    pub(crate) fn look_at_pace(&mut self, now: Now) -> Seen {
        let is_sending = self.parser.has_claim() && self.parser.command().is_none();
        if !is_sending && !self.output.has_parts() {
            self.pace.reset();
            return Seen::Going;
        }
        let is_to_send = is_sending && !self.readable && self.asked.is_none();
        let seen = self.pace.look(now.boot_ns, self.moved, is_to_send || !self.output.is_empty());
        if seen == Seen::Quiet && is_to_send {
            self.parser.interrupt();
        }
        seen
    }
}
