//! Instructions and memory of the modules for hot keys.

use crate::error::{BenchError, Result};
use crate::report::{Report, Row};
use nicekv_switch_xdp::measure::{self, MapSize};
use nicekv_switch_xdp::{Hook, KernelSwitch};
use serde_json::json;
use std::collections::BTreeMap;

/// Functions and maps of a module. Inlined code belongs to its caller. Names of maps are as long as
/// the kernel keeps them.
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

pub(super) struct Sizes {
    /// Instructions of each function of the object.
    functions: BTreeMap<String, usize>,
    /// Instructions of each program after loading, and bytes of machine code.
    programs: Vec<(Hook, u32, u32)>,
    maps: Vec<MapSize>,
}

impl Sizes {
    pub(super) fn of_object() -> Result<Self> {
        let functions = measure::function_sizes()?;
        Ok(Self { functions, programs: Vec::new(), maps: Vec::new() })
    }

    /// Adds the program at this hook. Both programs have the same maps.
    pub(super) fn add(&mut self, switch: &KernelSwitch, hook: Hook) -> Result<()> {
        let size = switch
            .program_size(hook)
            .ok_or_else(|| BenchError::failed("the kernel reports no program size"))?;
        self.programs.push((hook, size.instructions, size.machine_code));
        self.maps = switch.map_sizes(hook)?;
        Ok(())
    }

    /// Instructions of a module, and bytes of its maps.
    fn of(&self, Module { functions, maps, .. }: &Module) -> (usize, u64) {
        let instructions = functions.iter().filter_map(|name| self.functions.get(*name)).sum();
        let is_own = |map: &&MapSize| maps.contains(&map.name.as_str());
        (instructions, self.maps.iter().filter(is_own).map(|map| map.bytes).sum())
    }

    /// Name, instructions and bytes of each module.
    fn rows(&self) -> Vec<(&'static str, usize, u64)> {
        let row = |module: &Module| {
            let (instructions, bytes) = self.of(module);
            (module.name, instructions, bytes)
        };
        let mut rows: Vec<_> = MODULES.iter().map(row).collect();
        // The rest includes the entry points at both hooks, with inlined code.
        let own: usize = rows.iter().map(|row| row.1).sum();
        let memory: u64 = rows.iter().map(|row| row.2).sum();
        let all: u64 = self.maps.iter().map(|map| map.bytes).sum();
        rows.push((OTHERS, self.functions.values().sum::<usize>() - own, all - memory));
        rows
    }

    pub(super) fn report(&self, report: &mut Report) {
        let module = |(name, instructions, bytes): (&str, usize, u64)| {
            vec![name.into(), instructions.to_string(), bytes.to_string()]
        };
        let program = |(hook, instructions, machine_code): &(Hook, u32, u32)| {
            vec![
                format!("the whole program at {hook}, in the kernel"),
                instructions.to_string(),
                format!("{machine_code} of machine code"),
            ]
        };
        let lines = self.rows().into_iter().map(module).chain(self.programs.iter().map(program));
        report.table(&["module", "instructions, as compiled", "memory of its maps, bytes"], lines);
        let mut record = |name: &str, metric: (&str, &'static str), figure: f64, parameters| {
            report.record(&Row::new("", name, metric, vec![figure]).parameters(parameters));
        };
        for (name, instructions, bytes) in self.rows() {
            record(name, ("instructions", ""), instructions as f64, json!({}));
            record(name, ("map_memory", "byte"), bytes as f64, json!({}));
        }
        for &(hook, instructions, machine_code) in &self.programs {
            let parameters = json!({ "hook": hook.name() });
            record("whole program", ("instructions", ""), instructions.into(), parameters.clone());
            record("whole program", ("machine_code", "byte"), machine_code.into(), parameters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_for_hot_keys_belongs_to_a_module() {
        let functions = measure::function_sizes().unwrap();
        let of_modules: Vec<&str> = MODULES.iter().flat_map(|module| module.functions).copied().collect();
        let words = ["hot", "holder", "value", "asked"];
        let hot = functions.keys().filter(|name| words.iter().any(|word| name.contains(word)));
        let others: Vec<&String> = hot.filter(|name| !of_modules.contains(&name.as_str())).collect();
        assert!(others.is_empty(), "{others:?}");
        assert!(of_modules.iter().all(|name| functions.contains_key(*name)), "{functions:?}");
    }
}
