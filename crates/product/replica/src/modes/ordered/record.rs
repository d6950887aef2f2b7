//! The records of a partition's log. The node writes the partition's id in front of each.
//!
//! Every record is idempotent: a checkpoint writes the open ones again, and replaying both copies
//! changes nothing.

use alloc::vec::Vec;
use nicekv_proto::DecodeError;
use nicekv_proto::bytes::{Reader, put};
use nicekv_proto::replication::Decision;
use zerocopy::network_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// An op is prepared: the client's datagram, and whether the op was contended when it was
    /// logged (R2).
    Prepare { contended: bool, datagram: &'a [u8] },
    /// An op is decided. The log has the decisions of a partition in index order.
    Decision(Decision<'a>),
    /// Every member holds the decisions up to this one, or this replica gets their effects with its
    /// copy.
    Released { through: u64 },
    /// The replica joins: what it held so far is set aside; if `afresh`, it is discarded (R7, R8).
    Join { afresh: bool },
    /// Client records, as `Clients` encodes them.
    Clients { payload: &'a [u8] },
    /// Of what was set aside, the decisions up to `since` count. If `since` is 0, the engine's
    /// entries are void, too.
    Begin { since: u64, floor: u64, history: &'a [u8] },
    /// Copied entries, which are also written to the engine.
    Copied { payload: &'a [u8] },
    /// The copy is complete.
    Complete,
    /// Every original member holds the decisions up to this one.
    Held { through: u64 },
    /// The partition takes the place of its parents, and continues after this decision (R17). The
    /// records of the parents' clients follow. All of these are void unless the node has logged the
    /// takeover, too.
    TookOver { index: u64 },
    /// The replica's state at a checkpoint, in place of all earlier records.
    Position { position: Position, history: &'a [u8] },
}

/// See [`Record::Position`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// For a replica that is not complete: up to which decision it agrees with the primary
    /// (`Former::through`).
    pub(crate) since: Option<u64>,
    pub(crate) floor: u64,
    pub(crate) released: u64,
    pub(crate) held_by_originals: u64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct BeginLayout {
    since: U64,
    floor: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct PositionLayout {
    since: U64,
    floor: U64,
    released: U64,
    held_by_originals: U64,
}

impl<'a> Record<'a> {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, flag: bool| out.extend_from_slice(&[kind, flag.into()]);
        match self {
            Self::Prepare { contended, datagram } => {
                head(out, 1, *contended);
                out.extend_from_slice(datagram);
            }
            Self::Decision(decision) => {
                head(out, 2, false);
                decision.append(out);
            }
            Self::Released { through } => {
                head(out, 3, false);
                out.extend_from_slice(&through.to_be_bytes());
            }
            Self::Join { afresh } => head(out, 4, *afresh),
            Self::Clients { payload } => {
                head(out, 5, false);
                out.extend_from_slice(payload);
            }
            Self::Begin { since, floor, history } => {
                head(out, 6, false);
                put(out, &BeginLayout { since: (*since).into(), floor: (*floor).into() });
                out.extend_from_slice(history);
            }
            Self::Copied { payload } => {
                head(out, 7, false);
                out.extend_from_slice(payload);
            }
            Self::Complete => head(out, 8, false),
            Self::Held { through } => {
                head(out, 10, false);
                out.extend_from_slice(&through.to_be_bytes());
            }
            Self::TookOver { index } => {
                head(out, 11, false);
                out.extend_from_slice(&index.to_be_bytes());
            }
            Self::Position { position, history } => {
                head(out, 9, position.since.is_some());
                let layout = PositionLayout {
                    since: position.since.unwrap_or(0).into(),
                    floor: position.floor.into(),
                    released: position.released.into(),
                    held_by_originals: position.held_by_originals.into(),
                };
                put(out, &layout);
                out.extend_from_slice(history);
            }
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let [kind, flag]: [u8; 2] = reader.layout("record")?;
        match kind {
            1 => Ok(Self::Prepare { contended: flag != 0, datagram: reader.rest() }),
            2 => {
                let decision = Decision::read(&mut reader)?;
                reader.finish("decision record")?;
                Ok(Self::Decision(decision))
            }
            3 => {
                let through = u64::from_be_bytes(reader.layout("released record")?);
                reader.finish("released record")?;
                Ok(Self::Released { through })
            }
            4 => Ok(Self::Join { afresh: flag != 0 }),
            5 => Ok(Self::Clients { payload: reader.rest() }),
            6 => {
                let layout: BeginLayout = reader.layout("begin record")?;
                let (since, floor) = (layout.since.get(), layout.floor.get());
                Ok(Self::Begin { since, floor, history: reader.rest() })
            }
            7 => Ok(Self::Copied { payload: reader.rest() }),
            8 => Ok(Self::Complete),
            9 => {
                let layout: PositionLayout = reader.layout("position record")?;
                let position = Position {
                    since: (flag != 0).then_some(layout.since.get()),
                    floor: layout.floor.get(),
                    released: layout.released.get(),
                    held_by_originals: layout.held_by_originals.get(),
                };
                Ok(Self::Position { position, history: reader.rest() })
            }
            10 => {
                let through = u64::from_be_bytes(reader.layout("held record")?);
                reader.finish("held record")?;
                Ok(Self::Held { through })
            }
            11 => {
                let index = u64::from_be_bytes(reader.layout("takeover record")?);
                reader.finish("takeover record")?;
                Ok(Self::TookOver { index })
            }
            other => Err(DecodeError::UnknownValue { field: "record kind", value: other.into() }),
        }
    }
}
