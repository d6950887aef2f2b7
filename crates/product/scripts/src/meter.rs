//! Bounds on the time and the memory of a script.
//!
//! Time is counted in steps: a Lua instruction is one step, and native functions (patterns,
//! sorting, JSON) count steps by the length of their input. An instruction may work on a long
//! string (to compare it, or to convert it to a number), so an instruction counts for more if long
//! strings may exist: the bytes allocated between two checks bound their length. There is no
//! garbage collection while a script runs, so its memory is everything that it has allocated, and
//! the memory bound also limits what it copies.

use mlua::{Error, HookTriggers, Lua, LuaString, Result, VmState};
use std::cell::Cell;
use std::rc::Rc;

/// Maximum steps of a script.
pub const STEPS_MAX: u64 = 2_000_000;
/// Maximum bytes that a script may allocate.
pub const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Number of instructions between two checks.
const INTERVAL: u32 = 200;
/// For this many bytes of a string that it may use, an instruction counts one more step.
const BYTES_PER_STEP: usize = 2 << 10;

/// Counts the steps of a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Rc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    steps: Cell<u64>,
    is_over: Cell<bool>,
    used: Cell<usize>,
    longest: Cell<usize>,
}

impl Meter {
    /// Begins counting.
    pub(crate) fn watch(&self, lua: &Lua) -> Result<()> {
        lua.gc_stop();
        lua.set_memory_limit(lua.used_memory() + MEMORY_BYTES_MAX)?;
        let meter = self.clone();
        let every = HookTriggers::new().every_nth_instruction(INTERVAL);
        lua.set_global_hook(every, move |lua, _| meter.look(lua.used_memory()).map(|()| VmState::Continue))
    }

    /// Called when the script begins. `longest`: length of its longest input.
    pub(crate) fn begin(&self, lua: &Lua, longest: usize) {
        self.0.longest.set(longest);
        self.0.used.set(lua.used_memory());
    }

    fn look(&self, used: usize) -> Result<()> {
        let Counts { used: before, longest, .. } = &*self.0;
        let allocated = if before.get() == 0 { 0 } else { used.saturating_sub(before.replace(used)) };
        longest.set(longest.get().max(allocated));
        let weight = 1 + longest.get() / BYTES_PER_STEP;
        self.charge(u64::from(INTERVAL) * weight as u64)
    }

    /// Counts steps. Fails once there are too many.
    pub(crate) fn charge(&self, steps: u64) -> Result<()> {
        let total = self.0.steps.get().saturating_add(steps);
        self.0.steps.set(total);
        if total <= STEPS_MAX && !self.is_over() {
            return Ok(());
        }
        self.0.is_over.set(true);
        Err(over())
    }

    /// Counts the steps of one pass over these bytes.
    pub(crate) fn charge_for(&self, text: &LuaString) -> Result<()> {
        self.charge(1 + text.as_bytes().len() as u64 / 16)
    }

    /// Whether there were too many steps. If so, the script ends even if it has caught the error.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.get()
    }
}

pub(crate) fn over() -> Error {
    Error::runtime(format!("Script killed: it takes more than {STEPS_MAX} steps"))
}
