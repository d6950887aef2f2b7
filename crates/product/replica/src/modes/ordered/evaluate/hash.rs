//! Evaluates updates on hashes.

use super::{KeyValue, Verdict};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;
use nicekv_numbers::Arithmetic;
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::limits::HASH_BYTES_MAX;
use nicekv_proto::number::{LongDouble, parse_integer};
use nicekv_proto::replication::Effect;
use nicekv_proto::{Form, Status, Update};

/// A hash under change, with an index of its fields.
#[derive(Default)]
struct Changed<'a> {
    /// Fields in the order in which they were first set; `None` for a removed one.
    fields: Vec<Option<Field<'a>>>,
    places: BTreeMap<&'a [u8], usize>,
}

impl<'a> Changed<'a> {
    fn new(state: Option<&'a KeyValue>) -> Self {
        let mut changed = Self::default();
        state.into_iter().flat_map(|state| Field::each(&state.value)).for_each(|field| {
            changed.set(field);
        });
        changed
    }

    fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        let place = self.places.get(name)?;
        self.fields[*place].map(|field| field.value)
    }

    /// Sets a field. Returns whether it is new.
    fn set(&mut self, field: Field<'a>) -> bool {
        if let Some(place) = self.places.get(field.name) {
            self.fields[*place] = Some(field);
            return false;
        }
        self.places.insert(field.name, self.fields.len());
        self.fields.push(Some(field));
        true
    }

    /// Removes a field. Returns whether it existed.
    fn remove(&mut self, name: &[u8]) -> bool {
        self.places.remove(name).is_some_and(|place| self.fields[place].take().is_some())
    }

    /// Stores the changed hash, or removes the key if no field is left.
    fn store(&self, update: &Update<'_>, state: Option<&KeyValue>) -> Verdict {
        if self.places.is_empty() {
            return Verdict { effect: Effect::Remove, ..Verdict::unchanged(Status::Ok, None) };
        }
        let mut value = Vec::new();
        self.fields.iter().flatten().for_each(|field| field.append(&mut value));
        if value.len() > HASH_BYTES_MAX {
            return Verdict::unchanged(Status::ValueTooLong, state);
        }
        let expiry_ms = state.map_or(0, |state| state.expiry_ms);
        Verdict { form: Form::Hash, ..Verdict::store(update.op, value, expiry_ms) }
    }

    /// Stores the hash with a number in a field.
    fn store_number(mut self, update: &Update<'_>, state: Option<&KeyValue>, field: Field<'a>) -> Verdict {
        self.set(field);
        self.store(update, state)
    }
}

pub(crate) fn set(
    update: &Update<'_>,
    state: Option<&KeyValue>,
    (fields, only_new): (&[u8], bool),
) -> Verdict {
    let mut changed = Changed::new(state);
    let mut count = 0;
    for field in Field::each(fields) {
        if !only_new || changed.get(field.name).is_none() {
            count += i64::from(changed.set(field));
        }
    }
    if only_new && count == 0 {
        return Verdict::unchanged(Status::Ok, state);
    }
    counted(changed.store(update, state), count)
}

pub(crate) fn remove(update: &Update<'_>, state: Option<&KeyValue>, names: &[u8]) -> Verdict {
    let mut changed = Changed::new(state);
    let removed = Name::each(names).filter(|name| changed.remove(name)).count();
    if removed == 0 {
        let status = if state.is_some() { Status::Ok } else { Status::NotFound };
        return Verdict::unchanged(status, state);
    }
    counted(changed.store(update, state), removed as i64)
}

/// Adds a count to a successful verdict. A refused op returns no count.
fn counted(verdict: Verdict, integer: i64) -> Verdict {
    match verdict.status {
        Status::Ok => Verdict { integer, ..verdict },
        _ => verdict,
    }
}

pub(crate) fn increment(
    update: &Update<'_>,
    state: Option<&KeyValue>,
    (name, delta): (&[u8], i64),
) -> Verdict {
    let changed = Changed::new(state);
    let Some(before) = changed.get(name).map_or(Some(0), parse_integer) else {
        return Verdict::unchanged(Status::NotAnInteger, state);
    };
    let Some(after) = before.checked_add(delta) else {
        return Verdict::unchanged(Status::Overflow, state);
    };
    let value = format!("{after}");
    counted(changed.store_number(update, state, Field { name, value: value.as_bytes() }), after)
}

/// Increments a field by a float. A decision has room for one value, which is the hash here, so the
/// reply carries the hash, and the client finds the sum in it.
pub(crate) fn increment_float(update: &Update<'_>, state: Option<&KeyValue>, added: &[u8]) -> Verdict {
    let (name, delta) = Field::delta(added).expect("checked when it was decoded");
    let changed = Changed::new(state);
    let Some(before) = LongDouble::parse(changed.get(name).unwrap_or(b"0")) else {
        return Verdict::unchanged(Status::NotAFloat, state);
    };
    let Some(after) = before.checked_add(delta) else {
        return Verdict::unchanged(Status::Overflow, state);
    };
    let value = after.to_text();
    let verdict = changed.store_number(update, state, Field { name, value: value.as_bytes() });
    Verdict { value_is_result: verdict.effect == Effect::Store, ..verdict }
}
