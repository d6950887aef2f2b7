//! Commands on the bits of a value.

use super::Planned;
use crate::bits::{BitQuery, Unit};
use crate::error::CommandError;
use crate::plan::{Call, Context, Finish, Plan};
use nicekv_client::Request;
use nicekv_wire::number::parse_integer;

/// As in Redis: a value has no more bits.
const PLACES: u64 = 1 << 32;

/// `GETBIT key offset`.
pub(crate) fn getbit<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const TEXT: &str = "ERR bit offset is not an integer or out of range";
    let place = parse_integer(call.bytes(2)?).and_then(|place| u64::try_from(place).ok());
    let place = place.filter(|place| *place < PLACES).ok_or(CommandError::fixed(TEXT))?;
    ask(call, BitQuery::At(place))
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
    Ok(Plan::One(Request::Get { key: call.key(1)? }, Finish::Bits(query)))
}
