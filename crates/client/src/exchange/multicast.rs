//! A keyspace with a primary: one datagram, one answer.
//!
//! ```text
//!   get     ──▶ unicast vnode   ──▶ one replica ──────────────▶ reply
//!   scan    ──▶ unicast vnode   ──▶ one replica ─▶ the primary ─▶ piece; if a switch may split it, several
//!   update  ──▶ multicast vnode ──▶ every replica, the primary ─▶ reply
//! ```

use super::{Buffers, Name, Round, Step, Summary};
use crate::plant::{Plant, Planted};
use crate::{Keyspace, OperationError, Outcome, Request};
use nicekv_wire::scan::{Scan, ScanPiece};
use nicekv_wire::{Datagram, Get, KeyDigest, MatchRange, OpId, Reply, Status, Update};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Scan,
    Update,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MulticastExchange {
    kind: Kind,
    /// Replicas have refused the op for now, and it has not been sent since.
    is_refused: bool,
    planted: Planted,
    /// Of a scan.
    wanted: Wanted,
}

/// What has not come yet.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    range: MatchRange,
    /// Match values of it, of which there may be 2^128, which is 0.
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
    pub(super) fn new(request: &Request<'_>, planted: Planted) -> Self {
        let kind = match request {
            Request::Get { .. } => Kind::Get,
            Request::Scan { .. } => Kind::Scan,
            Request::Update { .. } => Kind::Update,
        };
        Self { kind, is_refused: false, planted, wanted: Wanted::NOTHING }
    }

    pub(super) fn is_get(&self) -> bool {
        self.kind == Kind::Get
    }

    pub(super) fn is_scan(&self) -> bool {
        self.kind == Kind::Scan
    }

    pub(super) fn begin(
        &mut self,
        Name { op, watermark }: Name,
        to: &Keyspace,
        request: &Request<'_>,
        buffers: &mut Buffers,
    ) -> Round {
        let digest = match request {
            Request::Scan { range, .. } => KeyDigest(range.first().to_be_bytes()),
            _ => to.digest(request.key()),
        };
        let keyspace = to.id;
        buffers.vnode = digest.vnode();
        match *request {
            Request::Get { key } => {
                Get { keyspace, op, digest, reply_to: None, forwarded: None, key, padding: 0 }
                    .encode(&mut buffers.datagram);
                buffers.to = to.unicast_address(&digest);
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
                buffers.to = to.unicast_address(&digest);
                buffers.value.clear();
                buffers.covered.clear();
                self.wanted = Wanted::new(range, pieces);
                Round::Read
            }
            Request::Update { key, condition, return_old, operation } => {
                Update {
                    keyspace,
                    op,
                    digest,
                    reply_to: None,
                    watermark,
                    condition,
                    return_old,
                    operation,
                    key,
                }
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
            _ => return Step::Stray,
        };
        match reply.status {
            Status::Busy => {
                self.is_refused = true;
                Step::Afresh
            }
            Status::Expired => Step::Forgotten,
            _ => {
                buffers.set_value(reply.value.unwrap_or_default());
                Step::Done(summary(reply, self.kind))
            }
        }
    }

    /// A piece has come. When nothing is missing, or no more can come, it is the last.
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
            // What is missing is asked for on its own.
            return Step::Done(Ok(LISTED));
        }
        if self.planted.has(Plant::RetryIsNewOp) { Step::Afresh } else { Step::Again }
    }

    pub(super) fn begin_afresh(&mut self, Name { op, watermark }: Name, buffers: &mut Buffers) {
        self.is_refused = false;
        buffers.rewrite(|datagram, _, out| match datagram {
            Datagram::Get(get) => Get { op, ..get }.encode(out),
            Datagram::Scan(scan) => Scan { op, ..scan }.encode(out),
            Datagram::Update(update) => Update { op, watermark, ..update }.encode(out),
            other => unreachable!("not a request: {other:?}"),
        });
    }

    pub(super) fn given_up(&self) -> OperationError {
        match self.kind {
            _ if self.is_refused || self.planted.has(Plant::TimeoutIsFailure) => OperationError::Busy,
            Kind::Get | Kind::Scan => OperationError::TimedOut,
            Kind::Update => OperationError::OutcomeUnknown,
        }
    }
}

/// Of a scan, whose answer is its piece.
const LISTED: Summary =
    Summary { outcome: Outcome::Done, version: OpId::NONE, expiry_ms: 0, integer: 0, has_value: true };

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
        // Of a get it is for whoever sends the next one.
        integer: if kind == Kind::Get { 0 } else { reply.integer },
        has_value: reply.value.is_some(),
    })
}
