//! Commands on the bits of a value.

use crate::bits::{BitQuery, Unit};
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::finish::Finish;
use crate::plan::Plan;
use nicekv_client::Request;
use nicekv_proto::Operation;
use nicekv_proto::number::parse_integer;

/// `GETBIT key offset`.
pub(crate) fn getbit<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    ask(call, BitQuery::At(offset(call)?.into()))
}

/// `SETBIT key offset bit`.
pub(crate) fn setbit<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let offset = offset(call)?;
    let bit = match call.bytes(3)? {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::fixed("ERR bit is not an integer or out of range")),
    };
    Ok(Plan::request(Request::update(call.key(1)?, Operation::SetBit { offset, bit }), Finish::Integer))
}

/// As in Redis, a value has at most 2^32 bits.
fn offset(call: &Call<'_>) -> Result<u32, CommandError> {
    const TEXT: &str = "ERR bit offset is not an integer or out of range";
    let offset = parse_integer(call.bytes(2)?).and_then(|offset| u32::try_from(offset).ok());
    offset.ok_or(CommandError::fixed(TEXT))
}

/// `BITCOUNT key [start end [BYTE | BIT]]`.
pub(crate) fn bitcount<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    ask(
        call,
        BitQuery::Count(match call.count() {
            2 => None,
            4 | 5 => Some((call.integer(2)?, call.integer(3)?, unit(call, 4)?)),
            _ => return Err(CommandError::SYNTAX),
        }),
    )
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`.
pub(crate) fn bitpos<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let bit = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::fixed("ERR The bit argument must be 1 or 0.")),
    };
    if call.count() > 6 {
        return Err(CommandError::SYNTAX);
    }
    let start = if call.count() > 3 { call.integer(3)? } else { 0 };
    let unit = unit(call, 5)?;
    let end = if call.count() > 4 { Some(call.integer(4)?) } else { None };
    ask(call, BitQuery::First { bit, start, end, unit })
}

fn unit(call: &Call<'_>, index: usize) -> Result<Unit, CommandError> {
    if index >= call.count() || call.is(index, "byte") {
        Ok(Unit::Bytes)
    } else if call.is(index, "bit") {
        Ok(Unit::Bits)
    } else {
        Err(CommandError::SYNTAX)
    }
}

fn ask<'a>(call: &Call<'a>, query: BitQuery) -> Planned<'a> {
    Ok(Plan::request(Request::Get { key: call.key(1)? }, Finish::Bits(query)))
}
