//! `redis.*`, as far as it is not written in Lua.

use crate::meter::Meter;
use crate::reply;
use mlua::{Lua, LuaString, Result, Value, Variadic};
use nicekv_gateway::LocalCommands;
use nicekv_node::ScriptKeys;

/// What a command costs beside its bytes.
const COMMAND_STEPS: u64 = 100;

/// Runs a command; its reply, of which an error is a table with `err`.
pub(crate) fn call(
    lua: &Lua,
    meter: &Meter,
    commands: &mut LocalCommands,
    keys: &mut dyn ScriptKeys,
    arguments: &Variadic<LuaString>,
) -> Result<Value> {
    let bytes: Vec<_> = arguments.iter().map(LuaString::as_bytes).collect();
    let words: Vec<&[u8]> = bytes.iter().map(|bytes| &**bytes).collect();
    let length: usize = words.iter().map(|word| word.len()).sum();
    meter.charge(COMMAND_STEPS + length as u64 / 16)?;
    let mut out = Vec::new();
    if let Err(refused) = commands.run(&words, keys, &mut out) {
        out = reply::error(refused.text().as_bytes());
    }
    meter.charge(out.len() as u64 / 16)?;
    reply::read(lua, &mut &out[..])
}

/// The SHA-1 of a text, in lower case.
pub(crate) fn sha1hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
