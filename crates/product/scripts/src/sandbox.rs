//! The Lua state of one script: its environment, how it runs, and how it ends.

use crate::commands::ScriptCommands;
use crate::meter::{Meter, over};
use crate::patterns::{Captured, Found, search};
use crate::{bits, formats, json, redis, reply};
use mlua::chunk::ChunkMode;
use mlua::{
    Error, ExternalError, Function, Lua, LuaOptions, LuaString, MultiValue, Result, Scope, StdLib, Table,
    Value, Variadic,
};
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;
use nicekv_proto::transaction::Argument;
use nicekv_replica::{ScriptCall, ScriptKeys};
use std::cell::RefCell;
use std::fmt::{Display, Formatter};
use std::sync::OnceLock;

/// Name of the script in error messages.
const CHUNK: &str = "@user_script";
const PRELUDE: &str = include_str!("prelude.lua");
/// Maximum stack frames searched for the line of an error.
const FRAMES_MAX: usize = 16;

/// How a script ended.
pub(crate) struct Ended {
    pub(crate) bytes: Vec<u8>,
    /// The script ended with an error.
    pub(crate) is_raised: bool,
}

/// The error of a command, which scripts can catch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandFailed(Vec<u8>);

impl Display for CommandFailed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for CommandFailed {}

/// Runs a script. Fails if the sandbox itself fails, or if a bound ended the script.
pub(crate) fn run<'keys>(call: &ScriptCall<'_>, keys: &'keys mut (dyn ScriptKeys + 'keys)) -> Result<Ended> {
    let (source, is_read_only) = headed(call)?;
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
    let lua = &Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let meter = &Meter::default();
    let commands = &RefCell::new((ScriptCommands::new(call.unix_ms, is_read_only), keys));
    let ended = lua.scope(move |scope| {
        let native = native(lua, meter)?;
        add_commands(scope, &native, meter, commands)?;
        let prelude = lua.load(prelude()).set_mode(ChunkMode::Binary).into_function()?;
        meter.watch(lua)?;
        let declared = texts(lua, call.keys.iter().copied())?;
        let arguments = texts(lua, Argument::each(call.arguments))?;
        let (globals, run): (Table, Function) = prelude.call((native, declared, arguments))?;
        let chunk = lua.load(&*source).set_name(CHUNK).set_mode(ChunkMode::Text);
        let body = match chunk.set_environment(globals).into_function() {
            Ok(body) => body,
            Err(Error::SyntaxError { message, .. }) => return Ok(not_compiled(&message)),
            Err(error) => return Err(error),
        };
        let given = call.keys.iter().copied().chain(Argument::each(call.arguments)).chain([call.source]);
        meter.begin(lua, given.map(<[u8]>::len).max().unwrap_or(0));
        let ran = run.call(body);
        lua.remove_global_hook();
        end(call, ran?)
    });
    if meter.is_over() {
        return Err(over());
    }
    let mut ended = ended?;
    if !ended.is_raised {
        ended.bytes.extend_from_slice(commands.borrow().0.published());
    }
    Ok(ended)
}

/// Prepares what the first script would otherwise have to wait for.
pub(crate) fn warm_up() {
    prelude();
}

/// The prelude as byte code. Compiling it for each script would take longer than most scripts.
fn prelude() -> &'static [u8] {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let lua = Lua::new_with(StdLib::NONE, LuaOptions::new()).expect("there is memory for it");
        let read = lua.load(PRELUDE).set_name("=redis").into_function();
        read.expect("it is Lua").dump(false)
    })
}

fn not_compiled(message: &str) -> Ended {
    let text = format!("ERR Error compiling script (new function): {message}");
    Ended { bytes: reply::error(text.as_bytes()), is_raised: true }
}

fn end(call: &ScriptCall<'_>, (is_done, value, line): (bool, Value, Option<i64>)) -> Result<Ended> {
    let mut bytes = Vec::new();
    if is_done {
        reply::append(&value, &mut bytes)?;
        return Ok(Ended { bytes, is_raised: false });
    }
    let reason = value.as_string().map(|reason| reason.as_bytes().to_vec()).unwrap_or_default();
    let digest = redis::sha1hex(call.source);
    let place = format!(" script: {digest}, on {CHUNK}:{}.", line.unwrap_or(0));
    Ok(Ended { bytes: reply::error(&[&reason, place.as_bytes()].concat()), is_raised: true })
}

/// The message of an error, without its traceback.
pub(crate) fn text(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { cause, .. } => return text(cause),
        Error::RuntimeError(text) | Error::MemoryError(text) => text.clone(),
        other => other.to_string(),
    };
    let first = text.lines().next().unwrap_or_default();
    format!("ERR {first}")
}

/// The source without its shebang line, and whether the script is read-only.
fn headed<'a>(call: &ScriptCall<'a>) -> Result<(std::borrow::Cow<'a, [u8]>, bool)> {
    let Some(head) = call.source.strip_prefix(b"#!") else {
        return Ok((call.source.into(), call.is_read_only));
    };
    let end = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
    let line = String::from_utf8_lossy(&head[..end]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(Error::runtime(format!("Unexpected engine in script shebang: {engine}")));
    }
    let mut is_read_only = call.is_read_only;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Error::runtime(format!("Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => is_read_only = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => return Err(Error::runtime(format!("Unexpected flag in script shebang: {other}"))),
            }
        }
    }
    Ok((head[end..].into(), is_read_only))
}

fn texts<'a>(lua: &Lua, texts: impl Iterator<Item = &'a [u8]>) -> Result<Table> {
    let table = lua.create_table()?;
    for (index, text) in texts.enumerate() {
        table.raw_set(index + 1, lua.create_string(text)?)?;
    }
    Ok(table)
}

/// The functions that are written in Rust, except commands.
fn native(lua: &Lua, meter: &Meter) -> Result<Table> {
    let table = lua.create_table()?;
    let of = meter.clone();
    table.set("over", lua.create_function(move |_, ()| Ok(of.is_over()))?)?;
    table.set("fail", lua.create_function(|_, ()| Err::<(), _>(over()))?)?;
    let of = meter.clone();
    table.set("charge", lua.create_function(move |_, steps: f64| of.charge(steps.max(0.0) as u64))?)?;
    table.set("explain", lua.create_function(explain)?)?;
    table.set("line", lua.create_function(|lua, ()| Ok(line(lua)))?)?;
    let of = meter.clone();
    let sha1hex = move |_: &Lua, text: LuaString| {
        of.charge_for(&text)?;
        Ok(redis::sha1hex(&text.as_bytes()))
    };
    table.set("sha1hex", lua.create_function(sha1hex)?)?;
    let of = meter.clone();
    let charge_format = move |_: &Lua, words: Variadic<Value>| formats::charge(&words, &of);
    table.set("charge_format", lua.create_function(charge_format)?)?;
    table.set("bit", bits::table(lua)?)?;
    table.set("cjson", cjson(lua, meter)?)?;
    let of = meter.clone();
    let rep = move |lua: &Lua, (text, count): (LuaString, f64)| repeated(lua, &text, count, &of);
    table.set("rep", lua.create_function(rep)?)?;
    let of = meter.clone();
    table.set("find", lua.create_function(move |lua, words| find(lua, words, &of))?)?;
    let of = meter.clone();
    let searched = move |lua: &Lua, (text, pattern, from): (LuaString, LuaString, usize)| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        match search(&text, &pattern, from - 1, &of)? {
            // Without captures, the whole match is the only capture.
            Some(found) if found.captures.is_empty() => {
                placed(lua, &found, &[Captured::Text(&text[found.start..found.end])], &of)
            }
            Some(found) => placed(lua, &found, &found.captures, &of),
            None => Ok(MultiValue::new()),
        }
    };
    table.set("search", lua.create_function(searched)?)?;
    let of = meter.clone();
    table.set("expand", lua.create_function(move |lua, words| expand(lua, words, &of))?)?;
    Ok(table)
}

fn cjson(lua: &Lua, meter: &Meter) -> Result<Table> {
    let table = lua.create_table()?;
    let of = meter.clone();
    let encode = move |lua: &Lua, value: Value| lua.create_string(json::encode(&value, &of)?);
    table.set("encode", lua.create_function(encode)?)?;
    let of = meter.clone();
    table.set("decode", lua.create_function(move |lua, text: LuaString| json::decode(lua, &text, &of))?)?;
    table.set("null", Value::NULL)?;
    Ok(table)
}

/// Adds `redis.call` and `redis.pcall`.
fn add_commands<'scope, 'env, 'keys: 'env>(
    scope: &'scope Scope<'scope, 'env>,
    native: &Table,
    meter: &'env Meter,
    commands: &'env RefCell<(ScriptCommands, &'keys mut (dyn ScriptKeys + 'keys))>,
) -> Result<()> {
    let run = move |lua: &Lua, arguments: Variadic<Value>| {
        let arguments = words(lua, &arguments, meter)?;
        // The borrow cannot fail, because a command never calls a script.
        let (commands, keys) = &mut *commands.borrow_mut();
        redis::call(lua, meter, commands, *keys, &arguments)
    };
    let call = move |lua: &Lua, arguments: Variadic<Value>| {
        let value = run(lua, arguments)?;
        let error = value.as_table().map(|table| table.raw_get::<Option<LuaString>>("err")).transpose()?;
        match error.flatten() {
            Some(text) => Err(CommandFailed(text.as_bytes().to_vec()).into_lua_err()),
            None => Ok(value),
        }
    };
    native.set("call", scope.create_function(call)?)?;
    let caught = move |lua: &Lua, arguments: Variadic<Value>| match run(lua, arguments) {
        Err(error) if !meter.is_over() && failed(&error).is_some() => explained(lua, &error),
        other => other,
    };
    native.set("pcall", scope.create_function(caught)?)?;
    Ok(())
}

/// Converts the arguments of a command to strings.
fn words(lua: &Lua, arguments: &Variadic<Value>, meter: &Meter) -> Result<Variadic<LuaString>> {
    let refused = |text: &str| CommandFailed(text.as_bytes().to_vec()).into_lua_err();
    if arguments.is_empty() {
        return Err(refused("ERR Please specify at least one argument for this redis lib call"));
    }
    let word = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => lua.create_string(number.to_string()),
        Value::Number(number) => {
            meter.charge(json::NUMBER_STEPS)?;
            lua.create_string(json::general(*number, 17))
        }
        _ => Err(refused("ERR Lua redis lib command arguments must be strings or integers")),
    };
    arguments.iter().map(word).collect()
}

fn failed(error: &Error) -> Option<&CommandFailed> {
    match error {
        Error::CallbackError { cause, .. } => failed(cause),
        Error::ExternalError(cause) => cause.downcast_ref(),
        _ => None,
    }
}

fn explained(lua: &Lua, error: &Error) -> Result<Value> {
    let Some(CommandFailed(text)) = failed(error) else {
        let text = text(error);
        return Ok(Value::String(lua.create_string(text.strip_prefix("ERR ").unwrap_or(&text))?));
    };
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// Converts an error of a Rust function to a Lua value.
fn explain(lua: &Lua, error: Value) -> Result<Value> {
    match &error {
        Value::Error(error) => explained(lua, error),
        _ => Ok(error),
    }
}

/// The line of the script that is being executed.
fn line(lua: &Lua) -> Option<usize> {
    (1..FRAMES_MAX).find_map(|level| {
        lua.inspect_stack(level, |frame| {
            let is_script = frame.source().source.as_deref() == Some(CHUNK);
            is_script.then(|| frame.current_line()).flatten()
        })?
    })
}

fn repeated(lua: &Lua, text: &LuaString, count: f64, meter: &Meter) -> Result<LuaString> {
    let bytes = text.as_bytes();
    let length = bytes.len() as f64 * count.max(0.0);
    if length > 4.0 * TRANSACTION_BYTES_MAX as f64 {
        return Err(Error::runtime("resulting string too large"));
    }
    meter.charge(length as u64 / 16)?;
    if bytes.is_empty() { Ok(text.clone()) } else { lua.create_string(bytes.repeat(count.max(0.0) as usize)) }
}

type FindWords = (LuaString, LuaString, usize, bool);

fn find(lua: &Lua, (text, pattern, from, is_plain): FindWords, meter: &Meter) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let is_plain = is_plain || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte));
    if !is_plain {
        return match search(&text, &pattern, from - 1, meter)? {
            Some(found) => placed(lua, &found, &found.captures, meter),
            None => Ok(MultiValue::from_vec(vec![Value::Nil])),
        };
    }
    let rest = &text[from - 1..];
    meter.charge(1 + (rest.len() as u64 * pattern.len().max(1) as u64) / 16)?;
    let place = match pattern.is_empty() {
        true => Some(0),
        false => rest.windows(pattern.len()).position(|part| part == &*pattern),
    };
    Ok(MultiValue::from_vec(place.map_or(vec![Value::Nil], |place| {
        let start = from + place;
        vec![Value::Integer(start as i64), Value::Integer((start + pattern.len()) as i64 - 1)]
    })))
}

fn placed(lua: &Lua, found: &Found<'_>, captures: &[Captured<'_>], meter: &Meter) -> Result<MultiValue> {
    let mut values = vec![Value::Integer(found.start as i64 + 1), Value::Integer(found.end as i64)];
    for capture in captures {
        values.push(match capture {
            Captured::Text(text) => {
                meter.charge(text.len() as u64 / 16)?;
                Value::String(lua.create_string(text)?)
            }
            Captured::Position(place) => Value::Integer(*place as i64),
        });
    }
    Ok(MultiValue::from_vec(values))
}

/// Expands a replacement text, in which `%1` stands for a capture and `%0` for the whole match.
fn expand(
    lua: &Lua,
    (by, whole, captures): (LuaString, LuaString, Variadic<LuaString>),
    meter: &Meter,
) -> Result<LuaString> {
    let (mut out, by) = (Vec::new(), by.as_bytes());
    let mut rest = by.iter();
    while let Some(byte) = rest.next() {
        match (byte, if *byte == b'%' { rest.next() } else { None }) {
            (b'%', Some(b'0')) => out.extend_from_slice(&whole.as_bytes()),
            (b'%', Some(digit @ b'1'..=b'9')) => {
                let capture = captures.get(usize::from(digit - b'1'));
                let capture = capture.ok_or_else(|| Error::runtime("invalid capture index"))?;
                out.extend_from_slice(&capture.as_bytes());
            }
            (b'%', Some(literal)) => out.push(*literal),
            (literal, _) => out.push(*literal),
        }
        if out.len() > 4 * TRANSACTION_BYTES_MAX {
            return Err(Error::runtime("resulting string too large"));
        }
    }
    meter.charge(by.len() as u64 / 4 + out.len() as u64 / 16)?;
    lua.create_string(&out)
}
