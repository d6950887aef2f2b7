//! A quorum keyspace (rule R14): two rounds, and the counting that stands in for a primary.
//!
//! ```text
//!            begin          R−k+1 answers               k answers
//!     ──────────────▶ asking ──────────────▶ storing ─────────────▶ done
//!                       ▲ │                   │  ▲                   ▲
//!                       └─│─ a newer epoch ───┘  │                   │
//!                         │ get: fewer than k hold the newest version│
//!                         └───────── get: k hold it ─────────────────┘
//! ```
//!
//! A put queries the newest timestamp, takes the next one and stores. A get queries the newest version. If k replicas are
//! not known to hold it, the get stores it again before it returns, since a later get might otherwise miss it. Queries and
//! stores go to all replicas through the multicast ring, so a slow or dead replica delays nothing.
//!
//! A store carries the epoch in which its query was answered. In any other epoch replicas treat the store as a query. A
//! client that learns of a newer epoch while it stores therefore queries again. A get forgets what it has read. A put keeps
//! its timestamp c, which may have arrived. It may store c again in an epoch in which some replica holds c, or holds
//! neither anything newer nor a floor as high as c's counter: then no replica can have forgotten a deletion newer than c,
//! which c would undo (the quorum module of `nicekv_replica` says why). If no replica says so, the outcome is unknown,
//! unless k replicas hold c or something newer.
//!
//! Invariants:
//! * Answers of one epoch are counted, the newest that has been seen; each replica counts once.
//! * A timestamp, once chosen, never changes: all stores of an op are the same but for their epoch. It is above all
//!   timestamps and floors in the answers to its query.
//! * Requests that depend on the previous value (conditions, increments, expiry) are refused: they need an order, and so a
//!   primary.
//!
//! Queries, stores and answers carry the reference of a large value. A put sends its chunks to all replicas together with
//! the query, as fast as the k-th best takes them (NICE §5); k answers to the store prove that k replicas have all of it. A
//! get reads it from replicas that hold it. If none of them does any more, the get starts over.
//!
//! The result of a delete says whether *its own query* found a value. A put at the same moment may make that untrue, but
//! not undo the deletion.

use super::buffers::{Buffers, Held};
use super::step::{Attempt, Round, Step};
use crate::large::{About, Large, Read, ReadSource};
use crate::request::Summary;
use crate::{Keyspace, OperationError, Outcome, Request, SubmitError};
use alloc::boxed::Box;
use nicekv_proto::large::Reference;
use nicekv_proto::quorum::{Content, Quorum, QuorumHeld, QuorumQuery, QuorumStore, Timestamp};
use nicekv_proto::{Condition, Datagram, Epoch, Expiry, Form, OpId, Operation, Reply, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Set,
    Delete,
}

/// An exchange with a quorum keyspace. In its buffers, `value` is the value that a set stores, or
/// the newest value that a get has seen; `held` is what each replica is known to hold durably in
/// `epoch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuorumExchange {
    quorum: Quorum,
    kind: Kind,
    key_bytes: usize,
    op: OpId,
    is_storing: bool,
    /// Timestamp of the version that is stored, or that a put has stored in an earlier epoch.
    chosen: Option<Timestamp>,
    /// The newest version in the answers to the query.
    newest: Timestamp,
    /// Whether the newest version has a value.
    present: bool,
    /// The version that is stored, or the newest version, has a large value; its reference is in
    /// the buffers.
    is_large: bool,
    /// The large value is being read.
    is_reading: bool,
    epoch: Epoch,
}

impl QuorumExchange {
    pub(super) fn new(quorum: Quorum, request: &Request<'_>) -> Result<Self, SubmitError> {
        Ok(Self::new_of(quorum, kind_of(request)?, request.key().len()))
    }

    fn new_of(quorum: Quorum, kind: Kind, key_bytes: usize) -> Self {
        Self {
            quorum,
            kind,
            key_bytes,
            op: OpId::NONE,
            is_storing: false,
            chosen: None,
            newest: Timestamp::NEVER,
            present: false,
            is_large: false,
            is_reading: false,
            epoch: Epoch(0),
        }
    }

    pub(super) fn begin(
        &mut self,
        Attempt { op, .. }: Attempt,
        to: &Keyspace,
        request: &Request<'_>,
        buffers: &mut Buffers,
    ) -> Round {
        self.op = op;
        let (quorum, key, digest) = (self.quorum, request.key(), to.digest(request.key()));
        let wants_value = self.kind == Kind::Get;
        (buffers.to, buffers.vnode) = (to.multicast_address(&digest), digest.vnode());
        buffers.unicast = buffers.to;
        buffers.held.clear();
        let about = About { keyspace: to.id, op, digest };
        let reference = match request {
            Request::Update { operation, .. } => buffers.keep_large(about, key, operation, Some(quorum)),
            _ => None,
        };
        let announced = reference.as_deref();
        QuorumQuery { keyspace: to.id, op, digest, reply_to: None, quorum, wants_value, key, announced }
            .encode(&mut buffers.datagram);
        buffers.set_value(announced.unwrap_or(request.value()));
        self.is_large = reference.is_some();
        Round::Read
    }

    /// Starts over, because the large value that was to be read is gone.
    pub(super) fn begin_afresh(&mut self, Attempt { op, .. }: Attempt, buffers: &mut Buffers) -> Round {
        *self = Self { op, ..Self::new_of(self.quorum, self.kind, self.key_bytes) };
        buffers.held.clear();
        buffers.rewrite(|datagram, _, out| query_again(&datagram, op).encode(out));
        Round::Read
    }

    pub(super) fn is_get(&self) -> bool {
        self.kind == Kind::Get
    }

    pub(super) fn on_datagram(&mut self, datagram: &Datagram<'_>, buffers: &mut Buffers) -> Step {
        match datagram {
            Datagram::Reply(reply) if self.is_reading => on_reply_while_reading(reply, buffers),
            Datagram::QuorumHeld(_) if self.is_reading => Step::Wait,
            Datagram::QuorumHeld(held) if self.is_storing && held.epoch > self.epoch => {
                self.query_in_new_epoch(held, buffers)
            }
            Datagram::QuorumHeld(held) if self.count(held, buffers) => self.judge(buffers),
            Datagram::Reply(reply) if reply.status == Status::NoSuchKeyspace && self.chosen.is_none() => {
                Step::Done(Err(OperationError::NoSuchKeyspace))
            }
            _ => Step::Stray,
        }
    }

    pub(super) fn on_timeout(&mut self, buffers: &mut Buffers) -> Step {
        if self.is_reading {
            return Step::Resend;
        }
        let has_enough = !self.is_storing && buffers.held.len() >= self.quorum.read_set();
        match self.kind {
            // The get has waited long enough for answers that show k holders.
            Kind::Get if has_enough => self.store(buffers),
            // The put has waited long enough for an answer that permits to store again.
            _ if has_enough && self.chosen.is_some() => Step::Done(Err(OperationError::OutcomeUnknown)),
            _ => Step::Resend,
        }
    }

    pub(super) fn given_up(&self) -> OperationError {
        match self.kind {
            Kind::Set | Kind::Delete if self.chosen.is_some() => OperationError::OutcomeUnknown,
            // No store was sent, or only one of a version that had been put before.
            _ => OperationError::TimedOut,
        }
    }

    /// Replicas are in a newer epoch and did not take the store: queries again.
    fn query_in_new_epoch(&mut self, held: &QuorumHeld<'_>, buffers: &mut Buffers) -> Step {
        self.is_storing = false;
        if self.kind == Kind::Get {
            self.chosen = None;
        }
        let is_put = self.kind != Kind::Get;
        let is_large = is_put && self.is_large;
        buffers.rewrite(|datagram, value, out| {
            let announced = is_large.then_some(value);
            QuorumQuery { wants_value: !is_put, announced, ..query_again(&datagram, self.op) }.encode(out);
        });
        let counted = self.count(held, buffers);
        match self.judge(buffers) {
            step if counted && step != Step::Wait => step,
            _ => Step::Send(Round::Read),
        }
    }

    /// Counts an answer. Returns false if it is of no use.
    fn count(&mut self, held: &QuorumHeld<'_>, buffers: &mut Buffers) -> bool {
        if !self.is_possible(held) {
            return false;
        }
        if held.epoch > self.epoch {
            self.epoch = held.epoch;
            buffers.held.clear();
            if self.chosen.is_none() {
                (self.newest, self.present) = (Timestamp::NEVER, false);
            }
        }
        let is_read = self.kind == Kind::Get && !self.is_storing;
        // A get queries values: an answer without one does not answer it.
        if held.epoch < self.epoch || (is_read && held.content == Content::Present) {
            return false;
        }
        if !buffers.note_held(held) {
            return false;
        }
        if self.chosen.is_none() && held.timestamp > self.newest {
            (self.newest, self.present) = (held.timestamp, held.content != Content::Absent);
            if let (true, Content::Value(value) | Content::Large(value)) = (is_read, held.content) {
                self.is_large = matches!(held.content, Content::Large(_));
                buffers.set_value(value);
            }
        }
        true
    }

    /// Whether a value of this length is possible for the key; it may have to be written back.
    fn is_possible(&self, held: &QuorumHeld<'_>) -> bool {
        let (value, form) = match held.content {
            Content::Absent | Content::Present => return true,
            Content::Value(value) => (value, Form::Plain),
            Content::Large(reference) => (reference, Form::Large),
        };
        form.check_beside(self.key_bytes, Some(value)).is_ok()
    }

    /// Continues if there are enough answers.
    fn judge(&mut self, buffers: &mut Buffers) -> Step {
        if let Some(chosen) = self.chosen {
            return self.judge_chosen(chosen, buffers);
        }
        let (read_set, write_set) = (self.quorum.read_set(), self.quorum.write_set());
        let answered = buffers.held.len();
        if self.kind != Kind::Get {
            return if answered >= read_set { self.store(buffers) } else { Step::Wait };
        }
        let is_held = buffers.holders(self.newest) >= write_set;
        if answered >= read_set && (is_held || self.newest == Timestamp::NEVER) {
            self.done(buffers)
        } else if answered >= read_set.max(write_set) {
            // Fewer answers could not show k holders. Waiting for more would mean waiting for the
            // slow replicas.
            self.store(buffers)
        } else {
            Step::Wait
        }
    }

    /// The same, for a version that is being stored, or was in an earlier epoch.
    fn judge_chosen(&mut self, chosen: Timestamp, buffers: &mut Buffers) -> Step {
        if buffers.holders(chosen) >= self.quorum.write_set() {
            return self.done(buffers);
        }
        if self.is_storing {
            return Step::Wait;
        }
        let allows = |held: &Held| {
            held.timestamp == chosen || (held.timestamp < chosen && held.floor < chosen.counter)
        };
        if buffers.held.iter().any(allows) {
            self.store(buffers)
        } else if buffers.held.len() >= self.quorum.replicas() {
            Step::Done(Err(OperationError::OutcomeUnknown))
        } else {
            Step::Wait
        }
    }

    /// A put's timestamp: above all timestamps and floors in the answers.
    fn next_timestamp(&self, buffers: &Buffers) -> Option<Timestamp> {
        let floor = buffers.held.iter().map(|held| held.floor).max().unwrap_or(0);
        Timestamp { counter: self.newest.counter.max(floor), ..self.newest }.next(self.op)
    }

    /// Stores: a put its value under its timestamp, a get the version that it has read.
    fn store(&mut self, buffers: &mut Buffers) -> Step {
        let timestamp = match (self.kind, self.chosen) {
            (Kind::Get, _) => Some(self.newest),
            (_, Some(chosen)) => Some(chosen),
            (_, None) => self.next_timestamp(buffers),
        };
        let Some(timestamp) = timestamp else { return Step::Done(Err(OperationError::Overflow)) };
        let epoch = self.epoch;
        let present = if self.kind == Kind::Get { self.present } else { self.kind == Kind::Set };
        buffers.rewrite(|datagram, value, out| {
            let Datagram::QuorumQuery(query) = datagram else { unreachable!("not a query: {datagram:?}") };
            let QuorumQuery { keyspace, op, digest, reply_to, quorum, key, .. } = query;
            let (value, is_large) = (present.then_some(value), present && self.is_large);
            QuorumStore { keyspace, op, digest, reply_to, quorum, timestamp, epoch, value, is_large, key }
                .encode(out);
        });
        // Replicas that hold the version already need not answer again.
        (self.is_storing, self.chosen) = (true, Some(timestamp));
        Step::Send(Round::Write)
    }

    fn done(&mut self, buffers: &mut Buffers) -> Step {
        let found = self.kind == Kind::Set || self.present;
        let version = match self.kind {
            Kind::Get if self.present => self.newest.op,
            Kind::Set => self.op,
            _ => OpId::NONE,
        };
        let has_value = self.kind == Kind::Get && self.present;
        let outcome = if found { Outcome::Done } else { Outcome::NotFound };
        let summary = Summary { outcome, version, expiry_ms: 0, integer: 0, has_value, form: Form::Plain };
        if has_value && self.is_large { self.read(summary, buffers) } else { Step::Done(Ok(summary)) }
    }

    /// The answer refers to a large value: reads it from its holders.
    fn read(&mut self, summary: Summary, buffers: &mut Buffers) -> Step {
        let reference = Reference::checked(&buffers.value);
        let about = buffers.about(self.op);
        let holds = |held: &&Held| held.timestamp == self.newest;
        let holders = buffers.held.iter().filter(holds).map(|held| held.node).collect();
        let read = Read::new(about, reference, ReadSource::Holders(holders), summary);
        buffers.large = Some(Box::new(Large::Read(read)));
        self.is_reading = true;
        Step::ReadLarge
    }
}

/// Handles a reply that arrives while a large value is read: a replica cannot send its chunks.
fn on_reply_while_reading(reply: &Reply<'_>, buffers: &mut Buffers) -> Step {
    let Some(Large::Read(read)) = buffers.large.as_deref_mut() else { return Step::Stray };
    let named = reply.large();
    match reply.status {
        _ if named == Some(read.reference()) => {
            read.take_token(reply.integer as u64);
            Step::Wait
        }
        Status::NotFound if !read.lose_holder() => Step::RestartNow,
        Status::NoSuchKeyspace => Step::Done(Err(OperationError::NoSuchKeyspace)),
        // Chunks that do not arrive will be requested again.
        _ => Step::Wait,
    }
}

/// The query of a get, derived from an earlier datagram of the same exchange.
fn query_again<'a>(datagram: &Datagram<'a>, op: OpId) -> QuorumQuery<'a> {
    let (keyspace, digest, reply_to, quorum, key) = match *datagram {
        Datagram::QuorumStore(QuorumStore { keyspace, digest, reply_to, quorum, key, .. })
        | Datagram::QuorumQuery(QuorumQuery { keyspace, digest, reply_to, quorum, key, .. }) => {
            (keyspace, digest, reply_to, quorum, key)
        }
        _ => unreachable!("not of a quorum keyspace: {datagram:?}"),
    };
    QuorumQuery { keyspace, op, digest, reply_to, quorum, wants_value: true, key, announced: None }
}

/// The kind of a request, if it needs no primary.
fn kind_of(request: &Request<'_>) -> Result<Kind, SubmitError> {
    let needs = |what| Err(SubmitError::NeedsPrimary { what });
    let (condition, return_old, operation) = match *request {
        Request::Get { .. } | Request::Length { .. } => return Ok(Kind::Get),
        Request::Named { .. } => return needs("a transaction"),
        Request::Scan { .. } => return needs("a scan"),
        Request::Listen { .. } | Request::Publish { .. } => return needs("publishing"),
        Request::Update { condition, return_old, operation, .. } => (condition, return_old, operation),
    };
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
        Operation::SetLong { .. } => needs("a value in one message"),
        Operation::Increment(_) | Operation::IncrementFloat(_) => needs("an increment"),
        Operation::Append(_) | Operation::AppendLarge(_) => needs("an append"),
        Operation::SetLarge { .. } => needs("a large value"),
        Operation::Transaction(_) => needs("a transaction"),
        Operation::SetBit { .. } | Operation::SetRange { .. } => needs("a change of a part of a value"),
        Operation::SetHash { .. }
        | Operation::SetFields { .. }
        | Operation::RemoveFields(_)
        | Operation::IncrementField { .. }
        | Operation::IncrementFieldFloat(_) => needs("a hash"),
    }
}
