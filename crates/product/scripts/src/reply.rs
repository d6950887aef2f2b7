//! Converts RESP2 replies to Lua values and back, by the rules of Redis.

use crate::meter::Meter;
use mlua::{Error, Lua, Result, Table, Value};
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::number::parse_integer;

/// Maximum nesting of a reply.
const DEPTH_MAX: usize = 128;
/// Steps for each value of a reply, in addition to those for its bytes.
const VALUE_STEPS: u64 = 10;

/// Encodes an error reply; line ends in the text become spaces.
pub(crate) fn error(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    line(b'-', text, &mut out);
    out
}

fn line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(text.iter().map(|byte| if b"\r\n".contains(byte) { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

/// Appends the value that a script returns, as a RESP2 reply.
pub(crate) fn append(value: &Value, out: &mut Vec<u8>) -> Result<()> {
    append_at(value, 0, out)
}

fn append_at(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
            if out.len() + bytes.len() <= TRANSACTION_BYTES_MAX {
                out.extend_from_slice(&bytes);
                out.extend_from_slice(b"\r\n");
            } else {
                return Err(too_long());
            }
        }
        Value::Integer(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
        // Truncated to an integer, as in Redis.
        Value::Number(number) => out.extend_from_slice(format!(":{}\r\n", *number as i64).as_bytes()),
        Value::Boolean(true) => out.extend_from_slice(b":1\r\n"),
        Value::Table(table) => append_table(table, depth, out)?,
        _ => out.extend_from_slice(b"$-1\r\n"),
    }
    if out.len() > TRANSACTION_BYTES_MAX { Err(too_long()) } else { Ok(()) }
}

fn append_table(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    for (field, kind) in [("err", b'-'), ("ok", b'+')] {
        if let Value::String(text) = table.raw_get(field)? {
            line(kind, &text.as_bytes(), out);
            return Ok(());
        }
    }
    if depth == DEPTH_MAX {
        return Err(Error::runtime("reached lua stack limit"));
    }
    // The elements up to the first nil.
    let (mut elements, mut count) = (Vec::new(), 0i64);
    std::mem::swap(out, &mut elements);
    let before = elements.len();
    loop {
        let element: Value = table.raw_get(count + 1)?;
        if element.is_nil() {
            break;
        }
        append_at(&element, depth + 1, &mut elements)?;
        count += 1;
    }
    let header = format!("*{count}\r\n");
    elements.splice(before..before, header.bytes());
    std::mem::swap(out, &mut elements);
    Ok(())
}

fn too_long() -> Error {
    Error::runtime(format!("the reply would exceed the limit of {TRANSACTION_BYTES_MAX} bytes"))
}

/// Decodes the reply of a command; an error becomes a table with the field `err`.
pub(crate) fn read(lua: &Lua, rest: &mut &[u8], meter: &Meter) -> Result<Value> {
    meter.charge(VALUE_STEPS)?;
    let cut = || Error::runtime("invalid reply");
    let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(cut)?;
    let (&kind, text) = rest[..end].split_first().ok_or_else(cut)?;
    *rest = &rest[end + 2..];
    match kind {
        b'+' | b'-' => {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set(if kind == b'+' { "ok" } else { "err" }, lua.create_string(text)?)?;
            return Ok(Value::Table(table));
        }
        _ => {}
    }
    let number = parse_integer(text).ok_or_else(cut)?;
    match (kind, usize::try_from(number)) {
        (b':', _) => Ok(Value::Number(number as f64)),
        (b'$', Ok(length)) => {
            let bytes = rest.get(..length).ok_or_else(cut)?;
            *rest = rest.get(length + 2..).ok_or_else(cut)?;
            Ok(Value::String(lua.create_string(bytes)?))
        }
        (b'*', Ok(count)) => {
            let table = lua.create_table_with_capacity(count.min(rest.len()), 0)?;
            for index in 1..=count {
                table.raw_set(index, read(lua, rest, meter)?)?;
            }
            Ok(Value::Table(table))
        }
        // Null becomes false.
        _ => Ok(Value::Boolean(false)),
    }
}
