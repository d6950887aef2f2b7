//! The effects of operations on hashes, and on parts of plain values.

use super::Stored;
use nicekv_numbers::Arithmetic;
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::number::{LongDouble, parse_integer};
use nicekv_proto::{Form, Operation, Status, Update};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Whether the key has a value of the wrong type for the operation.
pub(super) fn is_wrong(update: &Update<'_>, before: Option<&Stored>) -> bool {
    let is_of_any = matches!(
        update.operation,
        Operation::Set { .. }
            | Operation::SetHash { .. }
            | Operation::Delete
            | Operation::Expire { .. }
            | Operation::Persist
    );
    before.is_some_and(|stored| match stored.form {
        Form::Hash => {
            if is_of_any {
                update.return_old
            } else {
                !update.operation.is_of_hash()
            }
        }
        _ => update.operation.is_of_hash(),
    })
}

/// The value afterwards (`None` if the key is deleted), and the integer of the reply.
pub(super) fn apply(
    operation: Operation<'_>,
    before: Option<&Stored>,
) -> Result<(Option<Vec<u8>>, i64), Status> {
    let bytes = before.map_or(&[][..], |stored| &stored.value);
    match operation {
        Operation::SetBit { offset, bit } => {
            let (place, mask) = ((offset / 8) as usize, 128 >> (offset % 8));
            let mut value = bytes.to_vec();
            value.resize(value.len().max(place + 1), 0);
            let was = value[place] & mask != 0;
            value[place] = if bit { value[place] | mask } else { value[place] & !mask };
            stored(value, was.into())
        }
        Operation::SetRange { bytes: [], .. } => {
            Ok((before.map(|stored| stored.value.clone()), bytes.len() as i64))
        }
        Operation::SetRange { offset, bytes: new } => {
            let end = offset as usize + new.len();
            let mut value = bytes.to_vec();
            value.resize(value.len().max(end), 0);
            value[offset as usize..end].copy_from_slice(new);
            let length = value.len() as i64;
            stored(value, length)
        }
        operation => {
            let owned = |field: Field<'_>| (field.name.to_vec(), field.value.to_vec());
            let mut fields = Field::each(bytes).map(owned).collect();
            let integer = change(operation, &mut fields)?;
            if fields.is_empty() {
                return Ok((None, integer));
            }
            let mut value = Vec::new();
            fields.iter().for_each(|(name, of)| Field { name, value: of }.append(&mut value));
            stored(value, integer)
        }
    }
}

fn stored(value: Vec<u8>, integer: i64) -> Result<(Option<Vec<u8>>, i64), Status> {
    if value.len() > 1024 { Err(Status::ValueTooLong) } else { Ok((Some(value), integer)) }
}

fn change(operation: Operation<'_>, fields: &mut Fields) -> Result<i64, Status> {
    match operation {
        Operation::SetFields { fields: new, only_new } => {
            let mut added = 0;
            for field in Field::each(new) {
                let has = value_of(fields, field.name).is_some();
                added += i64::from(!has);
                if !has || !only_new {
                    set(fields, field.name, field.value.to_vec());
                }
            }
            Ok(added)
        }
        Operation::RemoveFields(names) => {
            let before = fields.len();
            Name::each(names).for_each(|name| fields.retain(|(of, _)| of != name));
            Ok((before - fields.len()) as i64)
        }
        Operation::IncrementField { name, delta } => {
            let value = value_of(fields, name).map_or(Some(0), parse_integer).ok_or(Status::NotAnInteger)?;
            let sum = value.checked_add(delta).ok_or(Status::Overflow)?;
            set(fields, name, sum.to_string().into_bytes());
            Ok(sum)
        }
        Operation::IncrementFieldFloat(added) => {
            let (name, delta) = Field::delta(added).expect("checked");
            let value = LongDouble::parse(value_of(fields, name).unwrap_or(b"0")).ok_or(Status::NotAFloat)?;
            let sum = value.checked_add(delta).ok_or(Status::Overflow)?;
            set(fields, name, sum.to_text().into_bytes());
            Ok(0)
        }
        other => unreachable!("{other:?} is not an operation on hashes"),
    }
}

fn value_of<'a>(fields: &'a Fields, name: &[u8]) -> Option<&'a [u8]> {
    fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_slice())
}

fn set(fields: &mut Fields, name: &[u8], value: Vec<u8>) {
    match fields.iter_mut().find(|(of, _)| of == name) {
        Some((_, place)) => *place = value,
        None => fields.push((name.to_vec(), value)),
    }
}
