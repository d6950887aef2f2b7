//! Records of the replica's log.
//!
//! Every record is idempotent: a checkpoint writes the open ones again, and replaying both the old and the new changes nothing.

use alloc::vec::Vec;
use nicekv_wire::bytes::Reader;
use nicekv_wire::replication::Decision;
use nicekv_wire::{DecodeError, PartitionId};

/// One record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Record<'a> {
    /// An op is prepared: the client's datagram, and whether it was contended when it was logged (R2).
    Prepare { partition: PartitionId, contended: bool, datagram: &'a [u8] },
    /// An op is decided. Decisions of a partition stand in the log in the order of their indexes.
    Decision(Decision<'a>),
    /// Every member holds the decisions up to this one, or this replica got their effects by copying.
    Released { partition: PartitionId, through: u64 },
    /// What the log says of this partition before this record is void (R7 step 2).
    Reset { partition: PartitionId },
    /// Deduplication records, in `Clients`' own form.
    Clients { partition: PartitionId, payload: &'a [u8] },
}

impl<'a> Record<'a> {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let mut head = |kind: u8, partition: PartitionId, flag: bool| {
            let [high, low] = partition.0.to_be_bytes();
            out.extend_from_slice(&[kind, flag.into(), high, low]);
        };
        match *self {
            Self::Prepare { partition, contended, datagram } => {
                head(1, partition, contended);
                out.extend_from_slice(datagram);
            }
            Self::Decision(decision) => {
                head(2, decision.partition, false);
                decision.append(out);
            }
            Self::Released { partition, through } => {
                head(3, partition, false);
                out.extend_from_slice(&through.to_be_bytes());
            }
            Self::Reset { partition } => head(4, partition, false),
            Self::Clients { partition, payload } => {
                head(5, partition, false);
                out.extend_from_slice(payload);
            }
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let [kind, flag, high, low]: [u8; 4] = reader.layout("record")?;
        let partition = PartitionId(u16::from_be_bytes([high, low]));
        match kind {
            1 => Ok(Self::Prepare { partition, contended: flag != 0, datagram: reader.rest() }),
            2 => {
                let decision = Decision::read(&mut reader)?;
                reader.finish("decision record")?;
                Ok(Self::Decision(decision))
            }
            3 => {
                let through = u64::from_be_bytes(reader.layout("released record")?);
                reader.finish("released record")?;
                Ok(Self::Released { partition, through })
            }
            4 => Ok(Self::Reset { partition }),
            5 => Ok(Self::Clients { partition, payload: reader.rest() }),
            other => Err(DecodeError::UnknownValue { field: "record kind", value: other.into() }),
        }
    }
}
