//! Instructions and memory of the modules.

use super::failed;
use crate::error::Result;
use crate::kvswitch::bed;
use crate::report;
use nicekv_switch_xdp::measure::{self, MapSize};
use nicekv_switch_xdp::{Hook, KernelSwitch};
use serde_json::json;
use std::collections::BTreeMap;

/// Functions and maps of a module, as far as they are its own. What is inlined belongs to the function around it. Maps by as many letters as the kernel keeps.
struct Module {
    name: &'static str,
    functions: &'static [&'static str],
    maps: &'static [&'static str],
}

const MODULES: [Module; 5] = [
    Module {
        name: "hot table, load counters, stamps",
        functions: &["pass_hot"],
        maps: &["hot_entries", "hot_newest", "hot_keyspaces", "hot_request", "hot_loads"],
    },
    Module { name: "round robin", functions: &["port_of_holder"], maps: &["hot_holders"] },
    Module {
        name: "HashPipe",
        functions: &["count_hot"],
        maps: &["hot_pipe", "hot_bank", "hot_slots", "hot_dropped"],
    },
    Module { name: "what owners and holders say", functions: &["hear_hot"], maps: &[] },
    Module {
        name: "values",
        functions: &[
            "begin_value",
            "clear_reply",
            "copy_reply",
            "is_of_asked",
            "read_asked",
            "show_value",
            "tc_answers",
            "tc_keep",
            "tc_reply",
            "xdp_answers",
            "xdp_keep",
            "xdp_reply",
        ],
        maps: &["hot_values", "hot_leases", "hot_life", "hot_scratch"],
    },
];
const OTHERS: &str = "all else";

/// See the module.
pub(super) struct Sizes {
    /// Of each function of the object.
    functions: BTreeMap<String, usize>,
    /// Of each program: instructions when the kernel has taken it, bytes of machine code.
    programs: Vec<(Hook, u32, u32)>,
    maps: Vec<MapSize>,
}

impl Sizes {
    pub(super) fn of_object() -> Result<Self> {
        let functions = measure::function_sizes().map_err(bed::failed)?;
        Ok(Self { functions, programs: Vec::new(), maps: Vec::new() })
    }

    /// Adds what a switch has at this hook; both programs have the same maps.
    pub(super) fn add(&mut self, switch: &KernelSwitch, hook: Hook) -> Result<()> {
        let size =
            switch.program_size(hook).ok_or_else(|| failed("the kernel does not tell a program's size"))?;
        self.programs.push((hook, size.instructions, size.machine_code));
        self.maps = switch.map_sizes(hook).map_err(bed::failed)?;
        Ok(())
    }

    /// Instructions and bytes of a module.
    fn of(&self, Module { functions, maps, .. }: &Module) -> (usize, u64) {
        let instructions = functions.iter().filter_map(|name| self.functions.get(*name)).sum();
        let is_its = |map: &&MapSize| maps.contains(&map.name.as_str());
        (instructions, self.maps.iter().filter(is_its).map(|map| map.bytes).sum())
    }

    /// By module.
    fn rows(&self) -> Vec<(&'static str, usize, u64)> {
        let row = |module: &Module| {
            let (instructions, bytes) = self.of(module);
            (module.name, instructions, bytes)
        };
        let mut rows: Vec<_> = MODULES.iter().map(row).collect();
        // The entry points at both hooks have what is common inlined.
        let own: usize = rows.iter().map(|row| row.1).sum();
        let memory: u64 = rows.iter().map(|row| row.2).sum();
        let all: u64 = self.maps.iter().map(|map| map.bytes).sum();
        rows.push((OTHERS, self.functions.values().sum::<usize>() - own, all - memory));
        rows
    }

    pub(super) fn table(&self) -> Vec<[String; 3]> {
        let mut lines =
            vec![["module", "instructions, as compiled", "memory of its maps, bytes"].map(String::from)];
        let row = |(name, instructions, bytes): (&str, usize, u64)| {
            [name.into(), instructions.to_string(), bytes.to_string()]
        };
        lines.extend(self.rows().into_iter().map(row));
        let program = |(hook, instructions, machine_code): &(Hook, u32, u32)| {
            [
                format!("the whole program at {hook}, in the kernel"),
                instructions.to_string(),
                format!("{machine_code} of machine code"),
            ]
        };
        lines.extend(self.programs.iter().map(program));
        lines
    }

    pub(super) fn json(&self, bench: &str) -> impl Iterator<Item = String> {
        let row = |(name, instructions, bytes): (&'static str, usize, u64)| {
            let (parameters, none) = (json!({}), None);
            report::row_of(bench, name, &parameters, ("instructions", ""), &[instructions as f64], none)
                + &report::row_of(bench, name, &parameters, ("map_memory", "byte"), &[bytes as f64], none)
        };
        let program = |&(hook, instructions, machine_code): &(Hook, u32, u32)| {
            let (name, parameters) = ("whole program", json!({ "hook": hook.name() }));
            let code = ("machine_code", "byte");
            report::row_of(bench, name, &parameters, ("instructions", ""), &[instructions.into()], None)
                + &report::row_of(bench, name, &parameters, code, &[machine_code.into()], None)
        };
        let programs: Vec<String> = self.programs.iter().map(program).collect();
        self.rows().into_iter().map(row).chain(programs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_hot_keys_is_of_a_module() {
        let functions = measure::function_sizes().unwrap();
        let of_modules: Vec<&str> = MODULES.iter().flat_map(|module| module.functions).copied().collect();
        let words = ["hot", "holder", "value", "asked"];
        let hot = functions.keys().filter(|name| words.iter().any(|word| name.contains(word)));
        let others: Vec<&String> = hot.filter(|name| !of_modules.contains(&name.as_str())).collect();
        assert!(others.is_empty(), "{others:?}");
        assert!(of_modules.iter().all(|name| functions.contains_key(*name)), "{functions:?}");
    }
}
