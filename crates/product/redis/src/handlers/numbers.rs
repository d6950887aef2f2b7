//! Commands on numbers. The arithmetic is done by nodes.

use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::finish::Finish;
use crate::plan::Plan;
use nicekv_client::Request;
use nicekv_numbers::Arithmetic;
use nicekv_proto::Operation;
use nicekv_proto::number::LongDouble;

pub(crate) fn incr<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    add(call, 1)
}

pub(crate) fn decr<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    add(call, -1)
}

pub(crate) fn incrby<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    add(call, call.integer(2)?)
}

pub(crate) fn decrby<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let delta = call.integer(2)?.checked_neg();
    add(call, delta.ok_or(CommandError::fixed("ERR decrement would overflow"))?)
}

fn add<'a>(call: &Call<'a>, delta: i64) -> Planned<'a> {
    Ok(Plan::request(Request::update(call.key(1)?, Operation::Increment(delta)), Finish::Integer))
}

pub(crate) fn incrbyfloat<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    // An infinite increment is sent to the node, too: if the value is not a number, that is the
    // error to report.
    let delta = LongDouble::parse(call.bytes(2)?).ok_or(CommandError::NOT_A_FLOAT)?;
    Ok(Plan::request(Request::update(call.key(1)?, Operation::IncrementFloat(delta)), Finish::Float))
}
