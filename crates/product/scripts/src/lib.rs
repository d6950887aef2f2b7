//! Lua 5.1 in a sandbox, in a worker process for each node ([`WorkerScripts`]). The node runs its
//! clients' scripts with it ([`ScriptEngine`](nicekv_replica::ScriptEngine)).
//!
//! ```text
//!   ScriptCall ─▶ a new Lua state (sandbox) ───▶ redis.call ─▶ ScriptCommands ─▶ ScriptKeys
//!                   │ meter: steps and bytes       ▲ redis       of nicekv-redis    of the node
//!                   ▼                              │
//!   ScriptEnd ◀─ reply ◀─ what it returns          └ patterns, bits, json
//! ```
//!
//! A script gives the same result whenever it runs on the same keys: its only clock is the time of
//! its call, nothing is random, no addresses are visible, and its bounds count steps and bytes
//! instead of time (`meter`). (The order of `pairs` in a table whose keys are tables or functions
//! is undefined; scripts should not write anything that depends on it.)
//!
//! Each script has a new state, which is freed afterwards, so scripts cannot affect each other.

mod bits;
mod commands;
mod formats;
mod json;
mod meter;
mod patterns;
mod redis;
mod reply;
mod sandbox;
mod worker;

use nicekv_replica::{ScriptCall, ScriptEnd, ScriptKeys};

pub use meter::{MEMORY_BYTES_MAX, STEPS_MAX};
pub use worker::{CPU_MS_MAX, WorkerScripts, serve};

/// Runs scripts in this process, one after the other: in the worker, and in tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct LuaScripts;

impl LuaScripts {
    /// Runs a script to its end.
    pub fn run(&self, call: &ScriptCall<'_>, keys: &mut dyn ScriptKeys) -> ScriptEnd {
        match sandbox::run(call, keys) {
            Ok(reply) => ScriptEnd { has_failed: reply.is_raised, reply: reply.bytes, may_differ: false },
            Err(error) => {
                let text = sandbox::text(&error);
                ScriptEnd { reply: reply::error(text.as_bytes()), has_failed: true, may_differ: false }
            }
        }
    }
}

#[cfg(test)]
mod tests;
