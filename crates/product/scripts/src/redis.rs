//! The part of `redis.*` that is not written in Lua.

use crate::commands::ScriptCommands;
use crate::meter::Meter;
use crate::reply;
use mlua::{Lua, LuaString, Result, Value, Variadic};
use nicekv_proto::{Condition, Operation};
use nicekv_replica::{ScriptKeys, ScriptTold};

/// Steps of a command, in addition to those for its bytes.
const COMMAND_STEPS: u64 = 100;
/// Bytes of a value that cost one step: they are copied a few times, and parsed or compared.
const VALUE_BYTES_PER_STEP: u64 = 16;

/// Runs a command and returns its reply as a Lua value; an error is a table with the field `err`.
pub(crate) fn call(
    lua: &Lua,
    meter: &Meter,
    commands: &mut ScriptCommands,
    keys: &mut dyn ScriptKeys,
    arguments: &Variadic<LuaString>,
) -> Result<Value> {
    let bytes: Vec<_> = arguments.iter().map(LuaString::as_bytes).collect();
    let words: Vec<&[u8]> = bytes.iter().map(|bytes| &**bytes).collect();
    let length: usize = words.iter().map(|word| word.len()).sum();
    meter.charge(COMMAND_STEPS + length as u64 / 16)?;
    let mut out = Vec::new();
    let keys = &mut ChargedKeys { keys, meter };
    if let Err(refused) = commands.run(&words, keys, &mut out) {
        out = reply::error(refused.text().as_bytes());
    }
    // Also charges for the reply.
    meter.charge(out.len() as u64 / 16)?;
    reply::read(lua, &mut &out[..], meter)
}

/// The lent keys; each operation is charged by the length of the key's value. A command cannot be
/// interrupted between two of its keys, but it has at most as many keys as the script declares.
struct ChargedKeys<'a> {
    keys: &'a mut dyn ScriptKeys,
    meter: &'a Meter,
}

impl ChargedKeys<'_> {
    fn charge(&self, key: &[u8]) {
        // If the steps exceed the bound, the script ends after this command.
        let _ = self.meter.charge(1 + self.keys.work_bytes(key) as u64 / VALUE_BYTES_PER_STEP);
    }
}

impl ScriptKeys for ChargedKeys<'_> {
    fn has(&self, key: &[u8]) -> bool {
        self.keys.has(key)
    }

    fn get(&self, key: &[u8]) -> ScriptTold {
        self.charge(key);
        self.keys.get(key)
    }

    fn work_bytes(&self, key: &[u8]) -> usize {
        self.keys.work_bytes(key)
    }

    fn update(
        &mut self,
        key: &[u8],
        operation: &Operation<'_>,
        condition: Condition,
        return_old: bool,
    ) -> ScriptTold {
        self.charge(key);
        let told = self.keys.update(key, operation, condition, return_old);
        self.charge(key);
        told
    }
}

/// The SHA-1 of a text, in lower-case hexadecimal.
pub(crate) fn sha1hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
