//! A quorum keyspace (rule R14): two rounds, and the counting that stands in for a primary.
//!
//! ```text
//!            begin          R−k+1 answers               k answers
//!     ──────────────▶ asking ──────────────▶ storing ─────────────▶ done
//!                       │                       ▲                    ▲
//!                       │ get: fewer than k hold the newest version  │
//!                       └───────── get: k hold it ───────────────────┘
//! ```
//!
//! A put asks for the newest timestamp, takes the next one and stores. A get asks for the newest version; if it is not shown to be held
//! by k replicas it is stored again before it is returned, since a later get might otherwise miss it. Both go to all replicas through
//! the multicast ring, so one that is slow, or gone, holds up nothing.
//!
//! Invariants:
//! * Answers of one epoch are counted, the newest that has been seen; each replica once.
//! * A timestamp, once chosen, is never changed: all stores of an op are the same.
//! * Rounds may belong to different epochs; `nicekv_replication`'s quorum module says why that is sound.
//! * What depends on the value from before (conditions, increments, expiry) is refused: it needs an order, thus a primary.
//!
//! A delete tells whether *its own question* found a value: a put at the same moment may make that untrue, not the deletion.

use super::{Buffers, Name, Round, Step, Summary};
use crate::plant::{Plant, Planted};
use crate::{Keyspace, OperationError, Outcome, Request, SubmitError};
use nicekv_placement::key_digest;
use nicekv_wire::limits::MEMBERS_MAX;
use nicekv_wire::quorum::{Content, Quorum, QuorumHeld, QuorumQuery, QuorumStore, Timestamp};
use nicekv_wire::{Condition, Datagram, Epoch, Expiry, OpId, Operation, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Set,
    Delete,
}

/// Its buffers hold in `value` what a set stores, or the newest value that a get has seen, and in `held` the newest version that each
/// replica is known to hold durably, all in `epoch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuorumExchange {
    quorum: Quorum,
    kind: Kind,
    op: OpId,
    is_storing: bool,
    /// The newest version seen; while storing, the one that is stored.
    newest: Timestamp,
    /// Whether the newest version seen has a value.
    present: bool,
    epoch: Epoch,
    planted: Planted,
}

impl QuorumExchange {
    pub(super) fn new(quorum: Quorum, request: &Request<'_>, planted: Planted) -> Result<Self, SubmitError> {
        Ok(Self {
            quorum,
            kind: understood(request)?,
            op: OpId::NONE,
            is_storing: false,
            newest: Timestamp::NEVER,
            present: false,
            epoch: Epoch(0),
            planted,
        })
    }

    pub(super) fn begin(
        &mut self,
        Name { op, .. }: Name,
        &Keyspace { id: keyspace, vrings, .. }: &Keyspace,
        request: &Request<'_>,
        buffers: &mut Buffers,
    ) -> Round {
        self.op = op;
        let (quorum, key, digest) = (self.quorum, request.key(), key_digest(request.key()));
        let wants_value = self.kind == Kind::Get;
        QuorumQuery { keyspace, op, digest, reply_to: None, quorum, wants_value, key }
            .encode(&mut buffers.datagram);
        buffers.to = vrings.multicast_address(&digest);
        buffers.held.clear();
        buffers.set_value(request.value());
        Round::Read
    }

    pub(super) fn on_datagram(&mut self, datagram: &Datagram<'_>, buffers: &mut Buffers) -> Step {
        match datagram {
            Datagram::QuorumHeld(held) if self.count(held, buffers) => self.judge(buffers),
            Datagram::Reply(reply) if reply.status == Status::NoSuchKeyspace && !self.is_storing => {
                Step::Done(Err(OperationError::NoSuchKeyspace))
            }
            _ => Step::Stray,
        }
    }

    pub(super) fn on_timeout(&mut self, buffers: &mut Buffers) -> Step {
        let has_enough = buffers.held.len() >= self.quorum.read_set();
        match self.kind {
            // It has waited long enough for those that would show that k hold it.
            Kind::Get if !self.is_storing && has_enough => self.store(buffers),
            _ => Step::Again,
        }
    }

    pub(super) fn given_up(&self) -> OperationError {
        match self.kind {
            Kind::Set | Kind::Delete if self.is_storing => OperationError::OutcomeUnknown,
            // Nothing was sent that could be stored, or all that was stored had been put before.
            _ => OperationError::TimedOut,
        }
    }

    /// Notes what a replica holds; false if that is of no use.
    fn count(&mut self, held: &QuorumHeld<'_>, buffers: &mut Buffers) -> bool {
        let is_read = self.kind == Kind::Get && !self.is_storing;
        // A get asks for values: one that is missing is no answer to its question.
        if is_read && held.content == Content::Present {
            return false;
        }
        if !self.planted.has(Plant::MixEpochs) {
            if held.epoch < self.epoch {
                return false;
            }
            if held.epoch > self.epoch {
                self.epoch = held.epoch;
                buffers.held.clear();
            }
        }
        let known = buffers.held.iter().position(|(node, _)| *node == held.node);
        match known.filter(|_| !self.planted.has(Plant::CountTwice)) {
            Some(at) => buffers.held[at].1 = buffers.held[at].1.max(held.timestamp),
            None if buffers.held.len() < MEMBERS_MAX => buffers.held.push((held.node, held.timestamp)),
            None => return false,
        }
        if !self.is_storing && held.timestamp > self.newest {
            (self.newest, self.present) = (held.timestamp, held.content != Content::Absent);
            if let (true, Content::Value(value)) = (is_read, held.content) {
                buffers.set_value(value);
            }
        }
        true
    }

    /// What the answers so far are enough for.
    fn judge(&mut self, buffers: &mut Buffers) -> Step {
        let (read_set, write_set) = (self.quorum.read_set(), self.quorum.write_set());
        let answered = buffers.held.len();
        let holders = buffers.held.iter().filter(|(_, timestamp)| *timestamp >= self.newest).count();
        if self.is_storing {
            return if holders >= write_set { self.done() } else { Step::Wait };
        }
        if self.kind != Kind::Get {
            let enough = if self.planted.has(Plant::AskOne) { 1 } else { read_set };
            return if answered >= enough { self.store(buffers) } else { Step::Wait };
        }
        let is_held = holders >= write_set || self.planted.has(Plant::NoWriteBack);
        if answered >= read_set && (is_held || self.newest == Timestamp::NEVER) {
            self.done()
        } else if answered >= read_set.max(write_set) {
            // Fewer answers could not show k holders; more would, at the cost of waiting for the slow ones.
            self.store(buffers)
        } else {
            Step::Wait
        }
    }

    /// Goes on to storing: a put under the timestamp after the newest, a get what it has read.
    fn store(&mut self, buffers: &mut Buffers) -> Step {
        let (timestamp, present) = match self.kind {
            Kind::Get => (Some(self.newest), self.present),
            Kind::Set => (self.newest.next(self.op), true),
            Kind::Delete => (self.newest.next(self.op), false),
        };
        let Some(timestamp) = timestamp else { return Step::Done(Err(OperationError::Overflow)) };
        buffers.rewrite(|datagram, value, out| {
            let Datagram::QuorumQuery(query) = datagram else { unreachable!("not a query: {datagram:?}") };
            let QuorumQuery { keyspace, op, digest, reply_to, quorum, key, .. } = query;
            let value = present.then_some(value);
            QuorumStore { keyspace, op, digest, reply_to, quorum, timestamp, value, key }.encode(out);
        });
        // Who was found to hold what is written back need not say so again.
        (self.is_storing, self.newest) = (true, timestamp);
        Step::Send(Round::Write)
    }

    fn done(&self) -> Step {
        let found = self.kind == Kind::Set || self.present;
        let version = match self.kind {
            Kind::Get if self.present => self.newest.op,
            Kind::Set => self.op,
            _ => OpId::NONE,
        };
        Step::Done(Ok(Summary {
            outcome: if found { Outcome::Done } else { Outcome::NotFound },
            version,
            expiry_ms: 0,
            integer: 0,
            has_value: self.kind == Kind::Get && self.present,
        }))
    }
}

/// What a request asks for, if no primary is needed for it.
fn understood(request: &Request<'_>) -> Result<Kind, SubmitError> {
    let Request::Update { condition, return_old, operation, .. } = *request else { return Ok(Kind::Get) };
    let needs = |what| Err(SubmitError::NeedsPrimary { what });
    if condition != Condition::Always {
        return needs("a condition");
    }
    if return_old {
        return needs("returning the old value");
    }
    match operation {
        Operation::Set { expiry: Expiry::Never, .. } => Ok(Kind::Set),
        Operation::Delete => Ok(Kind::Delete),
        Operation::Set { .. } | Operation::Expire { .. } | Operation::Persist => needs("an expiry time"),
        Operation::Increment(_) | Operation::IncrementFloat(_) => needs("an increment"),
        Operation::Append(_) => needs("an append"),
    }
}
