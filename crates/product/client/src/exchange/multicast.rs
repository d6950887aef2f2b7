//! A keyspace with a primary: one datagram, one answer.
//!
//! ```text
//!   get     ──▶ unicast vnode   ──▶ one replica ──────────────▶ reply
//!   scan    ──▶ unicast vnode   ──▶ one replica ─▶ the primary ─▶ piece; if a switch may split it, several
//!   listen, publish ──▶ multicast vnode ──▶ every replica, the primary ─▶ listening, reply
//!   update  ──▶ multicast vnode ──▶ every replica, the primary ─▶ reply
//! ```
//!
//! The reply to a get, or to an update that returns the previous value, may refer to a large value, which is then read
//! (`large`). Replies that come meanwhile tell that another token is needed, or that the value is gone:
//!
//! ```text
//!   get     ── reference ──▶ reading ── gone ──▶ sent again
//!   update  ── reference ──▶ reading ── gone ──▶ error: it took effect, but the previous value is gone
//! ```

use super::buffers::Buffers;
use super::step::{Attempt, Round, Step};
use crate::large::{About, Large, Read, ReadSource};
use crate::request::Summary;
use crate::{Keyspace, LARGE_VALUE_BYTES_MAX, OperationError, Outcome, Request};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_proto::large::Reference;
use nicekv_proto::publish::{Listen, ListenKind, Publish};
use nicekv_proto::scan::{Scan, ScanPiece};
use nicekv_proto::{Datagram, Form, Get, KeyDigest, MatchRange, OpId, Operation, Reply, Status, Update};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Scan,
    Listen,
    Publish,
    Update,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MulticastExchange {
    kind: Kind,
    /// Replicas have refused the op as busy, and it was not sent since.
    is_refused: bool,
    /// A large value of the answer is being read; this is the error if that fails.
    unread: Option<OperationError>,
    /// Longest value that an update may result in.
    result_bytes_max: usize,
    /// The reference that the value must have, if the request reads a particular large value.
    only: Option<Reference>,
    /// The part of a scan that has not arrived.
    wanted: Wanted,
}

/// The part of a scan that has not arrived.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    range: MatchRange,
    /// Number of missing match values; 2^128 wraps to 0.
    values: u128,
    pieces: u8,
}

impl Wanted {
    const NOTHING: Self = Self { range: MatchRange::ALL, values: 0, pieces: 0 };

    fn new(range: MatchRange, pieces: u8) -> Self {
        Self { range, values: values_of(range), pieces }
    }
}

fn values_of(range: MatchRange) -> u128 {
    (range.last() - range.first()).wrapping_add(1)
}

impl MulticastExchange {
    pub(super) fn new(request: &Request<'_>) -> Self {
        let kind = match request {
            Request::Get { .. } | Request::Length { .. } | Request::Named { .. } => Kind::Get,
            Request::Scan { .. } => Kind::Scan,
            Request::Listen { .. } => Kind::Listen,
            Request::Publish { .. } => Kind::Publish,
            Request::Update { .. } => Kind::Update,
        };
        let only = if let Request::Named { reference, .. } = request { Some(*reference) } else { None };
        let (result_bytes_max, wanted) = (request.small_value_limit(), Wanted::NOTHING);
        Self { kind, is_refused: false, unread: None, result_bytes_max, only, wanted }
    }

    pub(super) fn is_get(&self) -> bool {
        self.kind == Kind::Get
    }

    pub(super) fn is_scan(&self) -> bool {
        self.kind == Kind::Scan
    }

    pub(super) fn is_about_channels(&self) -> bool {
        matches!(self.kind, Kind::Listen | Kind::Publish)
    }

    pub(super) fn begin(
        &mut self,
        Attempt { op, watermark }: Attempt,
        to: &Keyspace,
        request: &Request<'_>,
        buffers: &mut Buffers,
    ) -> Round {
        let digest = match request {
            Request::Scan { range, .. } => KeyDigest(range.first().to_be_bytes()),
            Request::Listen { kind: ListenKind::Pattern, from, .. } => KeyDigest(from.to_be_bytes()),
            _ => to.digest(request.key()),
        };
        let keyspace = to.id;
        (buffers.vnode, buffers.unicast) = (digest.vnode(), to.unicast_address(&digest));
        match *request {
            Request::Get { key } | Request::Length { key } | Request::Named { key, .. } => {
                Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding: 0 }
                    .encode(&mut buffers.datagram);
                buffers.to = buffers.unicast;
                Round::Read
            }
            Request::Scan { wants, range, after, bytes_max, pieces } => {
                let (reply_to, forwarded, is_cut) = (None, None, false);
                let padding = Scan::padding_for(after, bytes_max, pieces);
                Scan {
                    keyspace,
                    op,
                    digest,
                    reply_to,
                    forwarded,
                    wants,
                    pieces,
                    is_cut,
                    range,
                    after,
                    padding,
                }
                .encode(&mut buffers.datagram);
                buffers.to = buffers.unicast;
                buffers.value.clear();
                buffers.covered.clear();
                self.wanted = Wanted::new(range, pieces);
                Round::Read
            }
            Request::Listen { .. } | Request::Publish { .. } => {
                begin_about_channel((op, digest), to, request, buffers)
            }
            Request::Update { key, condition, return_old, operation } => {
                if matches!(operation, Operation::Append(_)) && to.has_large_values() {
                    self.result_bytes_max = LARGE_VALUE_BYTES_MAX;
                }
                let (about, keeps) = (About { keyspace, op, digest }, to.has_large_values());
                let reference = if keeps { buffers.keep_large(about, key, &operation, None) } else { None };
                let operation = match (operation, &reference) {
                    (Operation::Set { expiry, .. }, Some(reference)) => {
                        Operation::SetLarge { reference, expiry }
                    }
                    (Operation::Append(_), Some(reference)) => Operation::AppendLarge(reference),
                    _ => operation.in_one_message(key.len()),
                };
                let reply_to = None;
                Update { keyspace, op, digest, reply_to, watermark, condition, return_old, operation, key }
                    .encode(&mut buffers.datagram);
                buffers.to = to.multicast_address(&digest);
                Round::Write
            }
        }
    }

    pub(super) fn on_datagram(&mut self, datagram: &Datagram<'_>, buffers: &mut Buffers) -> Step {
        let reply = match datagram {
            Datagram::Reply(reply) => reply,
            Datagram::ScanPiece(piece) if self.is_scan() => return self.gather(piece, buffers),
            Datagram::Listening(listening) if self.kind == Kind::Listen => {
                buffers.set_value(&listening.range.last().to_be_bytes());
                return Step::Done(Ok(LISTED));
            }
            _ => return Step::Stray,
        };
        if self.unread.is_some() {
            return self.on_reply_while_reading(reply, buffers);
        }
        match reply.status {
            Status::Busy => {
                self.is_refused = true;
                Step::RestartLater
            }
            Status::Expired => Step::ClientExpired,
            Status::ValueTooLong if self.kind == Kind::Publish => {
                Step::Done(Err(OperationError::TooManyListeners))
            }
            Status::ValueTooLong => {
                Step::Done(Err(OperationError::ResultTooLong { limit: self.result_bytes_max }))
            }
            Status::Ok | Status::NotFound if self.only.is_some_and(|only| reply.large() != Some(only)) => {
                Step::Done(Err(OperationError::OldValueGone))
            }
            _ if reply.form == Form::Large => self.on_reference(reply, buffers),
            _ => {
                buffers.set_value(reply.value.unwrap_or_default());
                Step::Done(summary(reply, self.kind))
            }
        }
    }

    /// The answer refers to a large value.
    fn on_reference(&mut self, reply: &Reply<'_>, buffers: &mut Buffers) -> Step {
        let Some(reference) = reply.large() else { return Step::Stray };
        match summary(reply, self.kind) {
            Ok(summary) => {
                self.unread = Some(match (self.kind, summary.outcome) {
                    (Kind::Update, Outcome::Done) => OperationError::OldValueGone,
                    // Nothing was stored.
                    (Kind::Update, _) => OperationError::Busy,
                    _ => OperationError::TimedOut,
                });
                let about = buffers.about(reply.op);
                let summary = Summary { integer: 0, ..summary };
                let read = Read::new(about, reference, ReadSource::Any(reply.integer as u64), summary);
                buffers.large = Some(Box::new(Large::Read(read)));
                Step::ReadLarge
            }
            error => Step::Done(error),
        }
    }

    /// Handles a reply that arrives while a large value is read: a replica cannot send its chunks.
    fn on_reply_while_reading(&mut self, reply: &Reply<'_>, buffers: &mut Buffers) -> Step {
        let Some(Large::Read(read)) = buffers.large.as_deref_mut() else { return Step::Stray };
        let named = reply.large();
        match reply.status {
            // Chunks that do not arrive will be requested again.
            Status::Busy | Status::Expired => Step::Wait,
            _ if named == Some(read.reference()) => {
                read.take_token(reply.integer as u64);
                Step::Wait
            }
            Status::NotFound | Status::NoSuchKeyspace if self.kind == Kind::Update => {
                Step::Done(Err(self.unread.expect("it is being read")))
            }
            // A repeated answer to the update.
            _ if self.kind == Kind::Update => Step::Wait,
            Status::NoSuchKeyspace => Step::Done(Err(OperationError::NoSuchKeyspace)),
            _ => Step::RestartNow,
        }
    }

    /// A piece of a scan has arrived. It is the last one if nothing is missing, or no more can
    /// arrive.
    fn gather(&mut self, piece: &ScanPiece<'_>, buffers: &mut Buffers) -> Step {
        let Wanted { range: asked, values, pieces } = &mut self.wanted;
        let covered = piece.range;
        let is_new = |known: &MatchRange| covered.first() > known.last() || covered.last() < known.first();
        let is_within = covered.first() >= asked.first() && covered.last() <= asked.last();
        if !is_within || !buffers.covered.iter().all(is_new) {
            return Step::Stray;
        }
        buffers.covered.push(covered);
        piece.encode(&mut buffers.spare);
        buffers.value.extend_from_slice(&buffers.spare);
        *values = values.wrapping_sub(values_of(covered));
        *pieces = pieces.saturating_sub(1);
        if *values == 0 || *pieces == 0 { Step::Done(Ok(LISTED)) } else { Step::Wait }
    }

    pub(super) fn on_timeout(&self, buffers: &Buffers) -> Step {
        if self.is_scan() && !buffers.covered.is_empty() {
            // The caller will scan the missing part.
            return Step::Done(Ok(LISTED));
        }
        Step::Resend
    }

    pub(super) fn begin_afresh(
        &mut self,
        Attempt { op, watermark }: Attempt,
        buffers: &mut Buffers,
    ) -> Round {
        (self.is_refused, self.unread) = (false, None);
        if let Some(Large::Put(put)) = buffers.large.as_deref_mut() {
            put.rename(op);
        }
        buffers.rewrite(|datagram, _, out| match datagram {
            Datagram::Get(get) => Get { op, ..get }.encode(out),
            Datagram::Scan(scan) => Scan { op, ..scan }.encode(out),
            Datagram::Listen(listen) => Listen { op, ..listen }.encode(out),
            Datagram::Publish(publish) => Publish { op, ..publish }.encode(out),
            Datagram::Update(update) => rename(Update { op, watermark, ..update }, out),
            other => unreachable!("not a request: {other:?}"),
        });
        if self.kind == Kind::Update { Round::Write } else { Round::Read }
    }

    pub(super) fn given_up(&self) -> OperationError {
        if let Some(error) = self.unread {
            return error;
        }
        match self.kind {
            _ if self.is_refused => OperationError::Busy,
            Kind::Get | Kind::Scan | Kind::Listen => OperationError::TimedOut,
            Kind::Publish | Kind::Update => OperationError::OutcomeUnknown,
        }
    }
}

/// Writes a subscription or a message to publish.
fn begin_about_channel(
    (op, digest): (OpId, KeyDigest),
    to: &Keyspace,
    request: &Request<'_>,
    buffers: &mut Buffers,
) -> Round {
    let (keyspace, reply_to, out) = (to.id, None, &mut buffers.datagram);
    match *request {
        Request::Listen { kind, name, count, hold_ms, .. } => {
            Listen { keyspace, op, digest, reply_to, kind, hold_ms, count, name }.encode(out);
        }
        Request::Publish { channel, message } => {
            Publish { keyspace, op, digest, reply_to, channel, message }.encode(out);
        }
        _ => unreachable!("about keys: {request:?}"),
    }
    buffers.to = to.multicast_address(&digest);
    Round::Read
}

/// Encodes an update under its new op id, which also names its large value.
fn rename(update: Update<'_>, out: &mut Vec<u8>) {
    let Some(reference) = update.operation.reference() else { return update.encode(out) };
    let renamed = Reference { name: update.op, ..Reference::checked(reference) }.bytes();
    let operation = match update.operation {
        Operation::SetLarge { expiry, .. } => Operation::SetLarge { reference: &renamed, expiry },
        _ => Operation::AppendLarge(&renamed),
    };
    Update { operation, ..update }.encode(out);
}

/// The answer to a subscription, and to a scan, whose value is the pieces.
const LISTED: Summary = Summary {
    outcome: Outcome::Done,
    version: OpId::NONE,
    expiry_ms: 0,
    integer: 0,
    has_value: true,
    form: Form::Plain,
};

fn summary(reply: &Reply<'_>, kind: Kind) -> Result<Summary, OperationError> {
    let outcome = match reply.status {
        Status::NotFound => Outcome::NotFound,
        Status::ConditionFailed => Outcome::ConditionFailed,
        status => OperationError::from_status(status).map_or(Ok(Outcome::Done), Err)?,
    };
    Ok(Summary {
        outcome,
        version: reply.version,
        expiry_ms: reply.expiry_ms,
        // In the reply to a get, the integer is the padded length for the next get.
        integer: if kind == Kind::Get { 0 } else { reply.integer },
        has_value: reply.value.is_some(),
        form: reply.form.told(),
    })
}
