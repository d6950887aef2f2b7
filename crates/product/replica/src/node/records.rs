//! The node's own log records: discarded partitions (R16), and splits and merges (R17). Their kinds
//! differ from those of partitions' records.
//!
//! Every record is idempotent, because a checkpoint writes the open ones again.

use alloc::vec::Vec;
use nicekv_proto::bytes::Reader;
use nicekv_proto::control::{Child, RESHAPED_MAX};
use nicekv_proto::{DecodeError, KeyOrder, MatchRange, PartitionId};

const DISCARDED: u8 = 128;
const FORMING: u8 = 129;
const FORMS: u8 = 130;
const FORMED: u8 = 131;
const FILLED: u8 = 132;
const VOID: u8 = 133;
const TOOK_OVER: u8 = 134;

/// One record about a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeRecord<'a> {
    /// This node holds nothing of the partition any more.
    Discarded,
    /// These children are being formed of the partition. They begin empty, and from now on the
    /// partition's writes go to them, too.
    Forming(Vec<Child>),
    /// At a checkpoint, in place of all earlier records: these children are being formed of the
    /// partition, and whether they are complete.
    Forms(Vec<Child>, bool),
    /// The children of the partition are complete.
    Formed,
    /// Entries of the parent that were written to this child.
    Filled(&'a [u8]),
    /// Everything that was formed of the partition is void.
    Void,
    /// The partition takes over from these parents, of which it was formed. This record follows the
    /// partition's own first records, which are void without it.
    TookOver(Vec<PartitionId>),
}

impl<'a> NodeRecord<'a> {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, flag: bool| out.extend_from_slice(&[kind, flag.into()]);
        match self {
            Self::Discarded => head(out, DISCARDED, false),
            Self::Forming(children) => {
                head(out, FORMING, false);
                append_children(children, out);
            }
            Self::Forms(children, formed) => {
                head(out, FORMS, *formed);
                append_children(children, out);
            }
            Self::Formed => head(out, FORMED, false),
            Self::Filled(entries) => {
                head(out, FILLED, false);
                out.extend_from_slice(entries);
            }
            Self::Void => head(out, VOID, false),
            Self::TookOver(parents) => {
                head(out, TOOK_OVER, false);
                parents.iter().for_each(|parent| out.extend_from_slice(&parent.0.to_be_bytes()));
            }
        }
    }

    /// Decodes a record. `None`: it is a record of a partition.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        if bytes.first().is_none_or(|kind| *kind < DISCARDED) {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes);
        let [kind, flag]: [u8; 2] = reader.layout("record")?;
        let record = match kind {
            DISCARDED => Self::Discarded,
            FORMING => Self::Forming(read_children(&mut reader)?),
            FORMS => Self::Forms(read_children(&mut reader)?, flag != 0),
            FORMED => Self::Formed,
            FILLED => return Ok(Some(Self::Filled(reader.rest()))),
            VOID => Self::Void,
            TOOK_OVER => Self::TookOver(read_parents(&mut reader)?),
            _ => return Ok(None),
        };
        reader.finish("record of a node")?;
        Ok(Some(record))
    }
}

fn append_children(children: &[Child], out: &mut Vec<u8>) {
    for child in children {
        out.extend_from_slice(&child.partition.0.to_be_bytes());
        out.extend_from_slice(&child.range.first().to_be_bytes());
        out.extend_from_slice(&child.range.last().to_be_bytes());
        out.push(child.order as u8);
    }
}

fn read_children(reader: &mut Reader<'_>) -> Result<Vec<Child>, DecodeError> {
    let mut children = Vec::new();
    while !reader.is_empty() && children.len() < RESHAPED_MAX {
        let partition = PartitionId(u32::from_be_bytes(reader.layout("child")?));
        let first = u128::from_be_bytes(reader.layout("range of a child")?);
        let last = u128::from_be_bytes(reader.layout("range of a child")?);
        let range = MatchRange::new(first, last)
            .map_err(|_| DecodeError::UnknownValue { field: "range of a child", value: 0 })?;
        let order = match reader.layout("order of a child")? {
            0u8 => KeyOrder::Hash,
            1 => KeyOrder::Range,
            other => {
                return Err(DecodeError::UnknownValue { field: "order of a child", value: other.into() });
            }
        };
        children.push(Child { partition, range, order });
    }
    Ok(children)
}

fn read_parents(reader: &mut Reader<'_>) -> Result<Vec<PartitionId>, DecodeError> {
    let mut parents = Vec::new();
    while !reader.is_empty() && parents.len() < RESHAPED_MAX {
        parents.push(PartitionId(u32::from_be_bytes(reader.layout("parent")?)));
    }
    Ok(parents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_partition_records_are_none() {
        let child = |id, first, last, order| Child {
            partition: PartitionId(id),
            range: MatchRange::new(first, last).unwrap(),
            order,
        };
        let children = vec![child(7, 0, 9, KeyOrder::Hash), child(8, 10, u128::MAX, KeyOrder::Range)];
        for record in [
            NodeRecord::Discarded,
            NodeRecord::Forming(children.clone()),
            NodeRecord::Forms(children.clone(), true),
            NodeRecord::Forms(children, false),
            NodeRecord::Formed,
            NodeRecord::Filled(b"entries"),
            NodeRecord::Void,
            NodeRecord::TookOver(vec![PartitionId(1), PartitionId(2)]),
        ] {
            let mut bytes = Vec::new();
            record.append(&mut bytes);
            assert_eq!(NodeRecord::decode(&bytes), Ok(Some(record.clone())));
            if !matches!(record, NodeRecord::Filled(_)) {
                bytes.push(0);
                assert!(NodeRecord::decode(&bytes).is_err(), "{record:?}");
            }
        }
        assert_eq!(NodeRecord::decode(&[11, 0, 5]), Ok(None));
        assert_eq!((NodeRecord::decode(&[1]), NodeRecord::decode(&[])), (Ok(None), Ok(None)));
        assert!(NodeRecord::decode(&[FORMING, 0, 1]).is_err());
    }
}
