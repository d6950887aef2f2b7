//! `cjson.encode` and `cjson.decode`.

use crate::meter::Meter;
use mlua::{Error, Lua, LuaString, Result, Table, Value};
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;

/// Maximum nesting.
const DEPTH_MAX: usize = 100;
/// Steps to write a number that is not an integer.
pub(crate) const NUMBER_STEPS: u64 = 50;
/// Maximum bytes of a JSON text.
const BYTES_MAX: usize = 4 * TRANSACTION_BYTES_MAX;

/// Encodes a value as JSON.
pub(crate) fn encode(value: &Value, meter: &Meter) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    append(value, 0, meter, &mut out)?;
    Ok(out)
}

fn append(value: &Value, depth: usize, meter: &Meter, out: &mut Vec<u8>) -> Result<()> {
    meter.charge(10)?;
    if out.len() > BYTES_MAX {
        return Err(Error::runtime("Cannot serialise: the text is too long"));
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(_) => out.extend_from_slice(b"null"),
        Value::Boolean(is_so) => out.extend_from_slice(if *is_so { b"true" } else { b"false" }),
        Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Number(number) if !number.is_finite() => {
            return Err(Error::runtime("Cannot serialise number: must not be NaN or Inf"));
        }
        Value::Number(number) => {
            meter.charge(NUMBER_STEPS)?;
            out.extend_from_slice(shortest(*number).as_bytes());
        }
        Value::String(text) => append_text(text, meter, out)?,
        Value::Table(table) if depth >= DEPTH_MAX => {
            let _ = table;
            return Err(Error::runtime("Cannot serialise, excessive depth"));
        }
        Value::Table(table) => append_table(table, depth, meter, out)?,
        other => {
            let kind = other.type_name();
            return Err(Error::runtime(format!("Cannot serialise {kind}: type not supported")));
        }
    }
    Ok(())
}

/// Formats a number with 14 digits, like `%.14g`.
fn shortest(number: f64) -> String {
    general(number, 14)
}

/// Formats a number with at most this many digits, like `%g`.
pub(crate) fn general(number: f64, digits_max: usize) -> String {
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
    let text = format!("{number:.*e}", digits_max - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let is_short = (-4..digits_max as i32).contains(&exponent);
    let fixed = if is_short {
        format!("{number:.*}", (digits_max as i32 - 1 - exponent) as usize)
    } else {
        String::new()
    };
    let text = if is_short { &*fixed } else { digits };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    let sign = if exponent < 0 { '-' } else { '+' };
    if is_short { text.into() } else { format!("{text}e{sign}{:02}", exponent.abs()) }
}

fn append_text(text: &LuaString, meter: &Meter, out: &mut Vec<u8>) -> Result<()> {
    meter.charge_for(text)?;
    out.push(b'"');
    for byte in &*text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..32 | 127 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    Ok(())
}

fn append_table(table: &Table, depth: usize, meter: &Meter, out: &mut Vec<u8>) -> Result<()> {
    let length = array_length(table, meter)?;
    if let Some(length) = length {
        out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                out.push(b',');
            }
            append(&table.raw_get(index)?, depth + 1, meter, out)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match &key {
            Value::String(text) => append_text(text, meter, out)?,
            Value::Integer(number) => out.extend_from_slice(format!("\"{number}\"").as_bytes()),
            Value::Number(number) => {
                meter.charge(NUMBER_STEPS)?;
                out.extend_from_slice(format!("\"{}\"", shortest(*number)).as_bytes());
            }
            _ => return Err(Error::runtime("Cannot serialise table: table key must be a number or string")),
        }
        out.push(b':');
        append(&value, depth + 1, meter, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// The highest index, if all keys are indexes with few holes; `None` for an empty table.
fn array_length(table: &Table, meter: &Meter) -> Result<Option<i64>> {
    let (mut highest, mut count) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        meter.charge(5)?;
        let index = match pair?.0 {
            Value::Integer(index) => index,
            Value::Number(number) if number == number.trunc() && number < 1e15 => number as i64,
            _ => return Ok(None),
        };
        if index < 1 {
            return Ok(None);
        }
        (highest, count) = (highest.max(index), count + 1);
    }
    if highest > 10 && highest > count * 2 {
        return Err(Error::runtime("Cannot serialise table: excessively sparse array"));
    }
    Ok((count > 0).then_some(highest))
}

/// Decodes a JSON text.
pub(crate) fn decode(lua: &Lua, text: &LuaString, meter: &Meter) -> Result<Value> {
    meter.charge(text.as_bytes().len() as u64)?;
    let value: serde_json::Value = serde_json::from_slice(&text.as_bytes())
        .map_err(|error| Error::runtime(format!("Expected value but found invalid token: {error}")))?;
    from_json(lua, &value)
}

fn from_json(lua: &Lua, value: &serde_json::Value) -> Result<Value> {
    Ok(match value {
        serde_json::Value::Null => Value::NULL,
        serde_json::Value::Bool(is_so) => Value::Boolean(*is_so),
        serde_json::Value::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::String(lua.create_string(text)?),
        serde_json::Value::Array(values) => {
            let table = lua.create_table_with_capacity(values.len(), 0)?;
            for (index, value) in values.iter().enumerate() {
                table.raw_set(index + 1, from_json(lua, value)?)?;
            }
            Value::Table(table)
        }
        serde_json::Value::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, value) in fields {
                table.raw_set(name.as_str(), from_json(lua, value)?)?;
            }
            Value::Table(table)
        }
    })
}
