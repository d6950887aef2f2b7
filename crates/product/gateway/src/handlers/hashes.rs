//! Commands on hashes. The node changes them; what is read of one is all of it.

use super::Planned;
use crate::error::CommandError;
use crate::hashes::{Chance, HashReply};
use crate::plan::{Call, Context, Finish, Made, Plan};
use nicekv_client::Request;
use nicekv_proto::Operation;
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::limits::HASH_BYTES_MAX;
use nicekv_proto::number::{LongDouble, parse_integer};
use std::hash::{BuildHasher, RandomState};

/// Most fields of one HRANDFIELD that may be the same.
const REPEATED_MAX: i64 = 65_536;

/// `HSET key field value [field value …]`.
pub(crate) fn hset<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set(call, |fields| Operation::SetFields { fields, only_new: false }, HashReply::Integer)
}

pub(crate) fn hmset<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set(call, |fields| Operation::SetFields { fields, only_new: false }, HashReply::Stored)
}

pub(crate) fn hsetnx<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set(call, |fields| Operation::SetFields { fields, only_new: true }, HashReply::Integer)
}

fn set<'a>(call: &Call<'a>, operation: fn(&[u8]) -> Operation<'_>, reply: HashReply) -> Planned<'a> {
    if !call.count().is_multiple_of(2) {
        return Err(CommandError::arity(call.name));
    }
    let (key, mut bytes) = (call.key(1)?, Vec::new());
    for index in (2..call.count()).step_by(2) {
        let field = Field { name: call.value(index)?, value: call.value(index + 1)? };
        check(bytes.len() + field.bytes())?;
        field.append(&mut bytes);
    }
    Ok(Plan::Made(Made { key, bytes, operation }, Finish::Hash(reply)))
}

/// `HDEL key field …`.
pub(crate) fn hdel<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (key, mut bytes) = (call.key(1)?, Vec::new());
    for index in 2..call.count() {
        let name = call.value(index)?;
        check(bytes.len() + size_of::<u16>() + name.len())?;
        Name { name }.append(&mut bytes);
    }
    let made = Made { key, bytes, operation: |names| Operation::RemoveFields(names) };
    Ok(Plan::Made(made, Finish::Hash(HashReply::Integer)))
}

/// Whether what is sent of fields has room.
fn check(bytes: usize) -> Result<(), CommandError> {
    if bytes > HASH_BYTES_MAX { Err(CommandError::hash_too_long(HASH_BYTES_MAX)) } else { Ok(()) }
}

pub(crate) fn hincrby<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (key, name, delta) = (call.key(1)?, call.value(2)?, call.integer(3)?);
    check(Field { name, value: b"0" }.bytes())?;
    let operation = Operation::IncrementField { name, delta };
    Ok(Plan::One(Request::update(key, operation), Finish::Hash(HashReply::Integer)))
}

pub(crate) fn hincrbyfloat<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (key, name) = (call.key(1)?, call.value(2)?);
    let delta = LongDouble::parse(call.bytes(3)?).ok_or(CommandError::NOT_A_FLOAT)?;
    if !delta.is_finite() {
        return Err(CommandError::fixed("ERR value is NaN or Infinity"));
    }
    check(Field { name, value: &delta.to_bytes() }.bytes())?;
    let bytes = Field::with_delta(name, delta);
    let made = Made { key, bytes, operation: |added| Operation::IncrementFieldFloat(added) };
    Ok(Plan::Made(made, Finish::Hash(HashReply::Sum(name.into()))))
}

fn read<'a>(call: &Call<'a>, reply: HashReply) -> Planned<'a> {
    Ok(Plan::One(Request::Get { key: call.key(1)? }, Finish::Hash(reply)))
}

/// A name that is looked for. No hash has a longer one.
fn name(call: &Call<'_>, index: usize) -> Box<[u8]> {
    let name = call.arguments.prefix(index);
    name[..name.len().min(HASH_BYTES_MAX + 1)].into()
}

pub(crate) fn hget<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::Value(name(call, 2)))
}

pub(crate) fn hmget<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::Values((2..call.count()).map(|index| name(call, index)).collect()))
}

pub(crate) fn hexists<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::Has(name(call, 2)))
}

pub(crate) fn hstrlen<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::LengthOf(name(call, 2)))
}

pub(crate) fn hlen<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::Count)
}

pub(crate) fn hgetall<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::All)
}

pub(crate) fn hkeys<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::AllNames)
}

pub(crate) fn hvals<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, HashReply::AllValues)
}

/// `HRANDFIELD key [count [WITHVALUES]]`.
pub(crate) fn hrandfield<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let chance = Chance(RandomState::new().hash_one(call.count()));
    if call.count() == 2 {
        return read(call, HashReply::Any(chance));
    }
    const RANGE: CommandError = CommandError::fixed("ERR value is out of range");
    let count = call.integer(2)?;
    let with_values = call.count() == 4 && call.is(3, "withvalues");
    if call.count() > 4 || (call.count() == 4 && !with_values) {
        return Err(CommandError::SYNTAX);
    }
    if count < -REPEATED_MAX {
        return Err(RANGE);
    }
    read(call, HashReply::Some { count, with_values, chance })
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`: all of it, whatever the count.
pub(crate) fn hscan<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let cursor = std::str::from_utf8(call.bytes(2)?).ok().and_then(|text| text.parse::<u64>().ok());
    cursor.ok_or(CommandError::fixed("ERR invalid cursor"))?;
    let (mut pattern, mut with_values, mut index) = (None, true, 3);
    while index < call.count() {
        if call.is(index, "novalues") {
            with_values = false;
            index += 1;
            continue;
        }
        if index + 1 == call.count() {
            return Err(CommandError::SYNTAX);
        }
        if call.is(index, "match") {
            pattern = Some(call.bytes(index + 1)?.into());
        } else if call.is(index, "count") {
            let count = parse_integer(call.bytes(index + 1)?).ok_or(CommandError::NOT_AN_INTEGER)?;
            if count < 1 {
                return Err(CommandError::SYNTAX);
            }
        } else {
            return Err(CommandError::SYNTAX);
        }
        index += 2;
    }
    read(call, HashReply::Scan { pattern, with_values })
}
