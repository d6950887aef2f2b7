//! Commands on whole values.

use super::expiry::{Anchor, SetOptions, expiry_ms};
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::each_key::{EachKey, RequestFor};
use crate::error::CommandError;
use crate::finish::{Finish, FinishEachKey, TimeUnit};
use crate::lcs::LcsQuery;
use crate::plan::{Plan, PlannedRequest};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_client::transaction::Transaction;
use nicekv_client::{Request, SubmitError};
use nicekv_proto::limits::VALUE_BYTES_MAX;
use nicekv_proto::{Condition, ExpireCondition, Expiry, Operation};

pub(crate) fn get<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Get { key: call.key(1)? }, Finish::Value))
}

pub(crate) fn strlen<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::Length))
}

pub(crate) fn key_type<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::Type))
}

pub(crate) fn getrange<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let finish = Finish::Range(call.integer(2)?, call.integer(3)?);
    Ok(Plan::request(Request::Get { key: call.key(1)? }, finish))
}

/// `SETRANGE key offset value`.
pub(crate) fn setrange<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (offset, bytes) = (call.integer(2)?, call.value(3)?);
    if offset < 0 {
        return Err(CommandError::fixed("ERR offset is out of range"));
    }
    // Nodes refuse an offset beyond the maximum length of a value.
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    Ok(Plan::request(Request::update(call.key(1)?, Operation::SetRange { offset, bytes }), Finish::Integer))
}

/// `SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`.
pub(crate) fn set<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let options = SetOptions::parse(call, 3, true)?;
    let expiry = match options.time {
        _ if options.keep => Expiry::Keep,
        Some(time) => Expiry::At(time.at_ms(context, call)?),
        None => Expiry::Never,
    };
    let finish = if options.get { Finish::Value } else { Finish::Stored };
    store(call, 2, options.condition, options.get, expiry, finish)
}

pub(crate) fn setnx<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    store(call, 2, Condition::IfAbsent, false, Expiry::Never, Finish::Applied)
}

pub(crate) fn getset<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    store(call, 2, Condition::Always, true, Expiry::Never, Finish::Value)
}

pub(crate) fn setex<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set_for(context, call, TimeUnit::Seconds)
}

pub(crate) fn psetex<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set_for(context, call, TimeUnit::Milliseconds)
}

fn set_for<'a>(context: &mut Context<'_, '_>, call: &Call<'a>, unit: TimeUnit) -> Planned<'a> {
    let at_ms = expiry_ms(context, call, call.integer(2)?, unit, Anchor::Now)?;
    store(call, 3, Condition::Always, false, Expiry::At(at_ms), Finish::Stored)
}

fn store<'a>(
    call: &Call<'a>,
    value: usize,
    condition: Condition,
    return_old: bool,
    expiry: Expiry,
    finish: Finish,
) -> Planned<'a> {
    let operation = Operation::Set { value: call.value(value)?, expiry };
    Ok(Plan::request(Request::Update { key: call.key(1)?, condition, return_old, operation }, finish))
}

pub(crate) fn getdel<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    returning_old(call, Operation::Delete)
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`.
pub(crate) fn getex<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let options = SetOptions::parse(call, 2, false)?;
    match options.time {
        _ if options.persist => returning_old(call, Operation::Persist),
        Some(time) => match time.at_ms(context, call) {
            Ok(at_ms) => returning_old(call, Operation::Expire { at_ms, condition: ExpireCondition::Always }),
            // As in Redis, a key without a value is answered with null before the time is checked.
            Err(error) => Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::NullOr(error))),
        },
        None => get(context, call),
    }
}

fn returning_old<'a>(call: &Call<'a>, operation: Operation<'a>) -> Planned<'a> {
    let (key, condition) = (call.key(1)?, Condition::Always);
    Ok(Plan::request(Request::Update { key, condition, return_old: true, operation }, Finish::Value))
}

pub(crate) fn append<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let operation = Operation::Append(call.value(2)?);
    Ok(Plan::request(Request::update(call.key(1)?, operation), Finish::Integer))
}

pub(crate) fn mget<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    for_each_key(context, call, FinishEachKey::Values, |call, key| Request::Get {
        key: call.arguments.prefix(key),
    })
}

/// `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]`.
pub(crate) fn lcs<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (mut query, mut index) = (LcsQuery::default(), 3);
    while index < call.count() {
        if call.is(index, "idx") {
            query.places = true;
        } else if call.is(index, "len") {
            query.length = true;
        } else if call.is(index, "withmatchlen") {
            query.with_lengths = true;
        } else if call.is(index, "minmatchlen") && index + 1 < call.count() {
            query.least = call.integer(index + 1)?;
            index += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
        index += 1;
    }
    if query.length && query.places {
        const TEXT: &str = "ERR If you want both the length and indexes, please just use IDX.";
        return Err(CommandError::fixed(TEXT));
    }
    (1..=2).try_for_each(|index| call.key(index).map(|_| ()))?;
    let request: RequestFor = |call, key| Request::Get { key: call.arguments.prefix(key) };
    Ok(each_key(context, vec![1, 2], request, FinishEachKey::Common(query)))
}

/// `EXISTS` and `TOUCH`: a key given twice counts twice.
pub(crate) fn exists<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    for_each_key(context, call, FinishEachKey::Count, |call, key| Request::Length {
        key: call.arguments.prefix(key),
    })
}

/// `DEL` and `UNLINK`: a key given twice counts once.
pub(crate) fn del<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    for_each_key(context, call, FinishEachKey::Count, |call, key| {
        Request::update(call.arguments.prefix(key), Operation::Delete)
    })
}

fn for_each_key<'a>(
    context: &Context<'_, '_>,
    call: &Call<'a>,
    finish: FinishEachKey,
    request: RequestFor,
) -> Planned<'a> {
    (1..call.count()).try_for_each(|index| call.key(index).map(|_| ()))?;
    Ok(each_key(context, (1..call.count() as u32).collect(), request, finish))
}

fn each_key<'a>(
    context: &Context<'_, '_>,
    keys: Vec<u32>,
    request: RequestFor,
    finish: FinishEachKey,
) -> Plan<'a> {
    Plan::Continue(Box::new(EachKey::new(context.session.keyspace, keys, request, finish)))
}

/// `MSET`: unlike in Redis, not atomic; each key is a separate put.
pub(crate) fn mset<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.count().is_multiple_of(2) {
        return Err(CommandError::arity(call.name));
    }
    // The puts of one command are concurrent, so if a key is repeated, only its last value may be
    // sent.
    let mut last = BTreeMap::new();
    for index in (1..call.count()).step_by(2) {
        let (key, bytes) = (call.key(index)?, call.value(index + 1)?.len());
        if bytes > VALUE_BYTES_MAX {
            // All values are checked first, because a refused command must put nothing.
            let limit = context.host.value_limit(context.session.keyspace);
            if bytes > limit {
                return Err(SubmitError::ValueTooLong { bytes, limit }.into());
            }
        }
        last.insert(key, index as u32);
    }
    let request: RequestFor = |call, key| {
        let value = call.arguments.prefix(key + 1);
        Request::update(call.arguments.prefix(key), Operation::Set { value, expiry: Expiry::Never })
    };
    Ok(each_key(context, last.into_values().collect(), request, FinishEachKey::AllStored))
}

/// `MSETNX`: puts all keys, or none if one of them has a value. All keys must be in one partition.
pub(crate) fn msetnx<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.count().is_multiple_of(2) {
        return Err(CommandError::arity(call.name));
    }
    let mut transaction = Transaction::default();
    for index in (1..call.count()).step_by(2) {
        transaction.require(call.key(index)?, Condition::IfAbsent)?;
    }
    for index in (1..call.count()).step_by(2) {
        let operation = Operation::Set { value: call.value(index + 1)?, expiry: Expiry::Never };
        transaction.add(&Request::update(call.key(index)?, operation))?;
    }
    Ok(Plan::Request(PlannedRequest::Transaction(transaction), Finish::AllOrNone))
}
