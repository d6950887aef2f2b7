//! Effects of field updates on a hash, and their replies.

use super::{Change, number};
use alloc::string::ToString;
use alloc::vec::Vec;
use nicekv_proto::Status;
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::limits::HASH_BYTES_MAX;

/// The result of a change of fields.
pub(crate) enum Changed {
    /// The new hash (empty if no field is left), and the number in the reply.
    To(Vec<u8>, i64),
    /// The hash stays as it is, and the reply has this status.
    Not(Status),
}

impl Change {
    /// Whether the change is one of hash fields.
    pub fn is_of_fields(&self) -> bool {
        matches!(self, Self::SetFields { .. } | Self::RemoveFields(_) | Self::IncrementField { .. })
    }

    /// Applies the change to a hash, or to an absent key.
    pub(crate) fn of_fields(&self, hash: Option<&[u8]>) -> Changed {
        let mut fields: Vec<(&[u8], Vec<u8>)> = Vec::new();
        let before = Field::each(hash.unwrap_or_default());
        fields.extend(before.map(|field| (field.name, field.value.to_vec())));
        let told = match self {
            Self::SetFields { fields: given, only_new } => {
                let mut new = 0;
                for Field { name, value } in Field::each(given) {
                    match fields.iter_mut().find(|(known, _)| *known == name) {
                        Some(_) if *only_new => continue,
                        Some((_, before)) => *before = value.to_vec(),
                        None => {
                            new += 1;
                            fields.push((name, value.to_vec()));
                        }
                    }
                }
                if *only_new && new == 0 {
                    return Changed::Not(Status::Ok);
                }
                new
            }
            Self::RemoveFields(names) => {
                let count = fields.len();
                Name::each(names).for_each(|name| fields.retain(|(known, _)| *known != name));
                if fields.len() == count {
                    return Changed::Not(if hash.is_some() { Status::Ok } else { Status::NotFound });
                }
                (count - fields.len()) as i64
            }
            Self::IncrementField { name, delta } => {
                let place = fields.iter().position(|(known, _)| *known == name);
                let Some(before) = place.map_or(Some(0), |place| number(&fields[place].1)) else {
                    return Changed::Not(Status::NotAnInteger);
                };
                let Some(sum) = before.checked_add(*delta) else { return Changed::Not(Status::Overflow) };
                let value = sum.to_string().into_bytes();
                match place {
                    Some(place) => fields[place].1 = value,
                    None => fields.push((name, value)),
                }
                sum
            }
            _ => unreachable!("it is not a change of fields"),
        };
        let mut after = Vec::new();
        fields.iter().for_each(|(name, value)| Field { name, value }.append(&mut after));
        if after.len() > HASH_BYTES_MAX {
            Changed::Not(Status::ValueTooLong)
        } else {
            Changed::To(after, told)
        }
    }
}
