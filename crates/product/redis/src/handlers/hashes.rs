//! Commands on hashes. Nodes change single fields; reads get the whole hash.

use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::finish::Finish;
use crate::hash_reply::{HashReply, Seed};
use crate::plan::{BuiltOperation, BuiltUpdate, Plan, PlannedRequest};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_client::Request;
use nicekv_numbers::Arithmetic;
use nicekv_proto::hash::{Field, Name};
use nicekv_proto::limits::HASH_BYTES_MAX;
use nicekv_proto::number::{LongDouble, parse_integer};
use nicekv_proto::{Condition, Operation};

/// Maximum number of fields of an HRANDFIELD with repetitions.
const REPEATED_MAX: i64 = 65_536;

/// `HSET key field value [field value …]`.
pub(crate) fn hset<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set(call, false, HashReply::Integer)
}

pub(crate) fn hmset<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set(call, false, HashReply::Stored)
}

pub(crate) fn hsetnx<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set(call, true, HashReply::Integer)
}

fn set<'a>(call: &Call<'a>, only_new: bool, reply: HashReply) -> Planned<'a> {
    if !call.count().is_multiple_of(2) {
        return Err(CommandError::arity(call.name));
    }
    let (key, mut bytes) = (call.key(1)?, Vec::new());
    for index in (2..call.count()).step_by(2) {
        let field = Field { name: call.value(index)?, value: call.value(index + 1)? };
        check(bytes.len() + field.bytes())?;
        field.append(&mut bytes);
    }
    Ok(update(key, bytes, BuiltOperation::SetFields { only_new }, reply))
}

fn update<'a>(key: &'a [u8], bytes: Vec<u8>, operation: BuiltOperation, reply: HashReply) -> Plan<'a> {
    let built = BuiltUpdate { key, condition: Condition::Always, bytes, operation };
    Plan::Request(PlannedRequest::Built(built), Finish::Hash(reply))
}

/// `HDEL key field …`.
pub(crate) fn hdel<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (key, mut bytes) = (call.key(1)?, Vec::new());
    for index in 2..call.count() {
        let name = call.value(index)?;
        check(bytes.len() + size_of::<u16>() + name.len())?;
        Name { name }.append(&mut bytes);
    }
    Ok(update(key, bytes, BuiltOperation::RemoveFields, HashReply::Integer))
}

/// Refuses fields that together exceed the limit of a hash.
fn check(bytes: usize) -> Result<(), CommandError> {
    if bytes > HASH_BYTES_MAX { Err(CommandError::hash_too_long(HASH_BYTES_MAX)) } else { Ok(()) }
}

pub(crate) fn hincrby<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (key, name, delta) = (call.key(1)?, call.value(2)?, call.integer(3)?);
    check(Field { name, value: b"0" }.bytes())?;
    let operation = Operation::IncrementField { name, delta };
    Ok(Plan::request(Request::update(key, operation), Finish::Hash(HashReply::Integer)))
}

pub(crate) fn hincrbyfloat<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (key, name) = (call.key(1)?, call.value(2)?);
    let delta = LongDouble::parse(call.bytes(3)?).ok_or(CommandError::NOT_A_FLOAT)?;
    if !delta.is_finite() {
        return Err(CommandError::fixed("ERR value is NaN or Infinity"));
    }
    check(Field { name, value: &delta.to_bytes() }.bytes())?;
    let bytes = Field::with_delta(name, delta);
    Ok(update(key, bytes, BuiltOperation::IncrementFieldFloat, HashReply::Sum(name.into())))
}

fn read<'a>(call: &Call<'a>, reply: HashReply) -> Planned<'a> {
    Ok(Plan::request(Request::Get { key: call.key(1)? }, Finish::Hash(reply)))
}

/// A field name to look up. A name longer than any in a hash is truncated: it matches nothing
/// either way.
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
pub(crate) fn hrandfield<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let seed = Seed(super::random_number(context)?);
    if call.count() == 2 {
        return read(call, HashReply::Any(seed));
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
    read(call, HashReply::Some { count, with_values, seed })
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`: returns all fields at once,
/// whatever the count.
pub(crate) fn hscan<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let cursor = core::str::from_utf8(call.bytes(2)?).ok().and_then(|text| text.parse::<u64>().ok());
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
