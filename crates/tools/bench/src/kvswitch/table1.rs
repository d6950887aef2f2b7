//! `nicekv bench kvswitch-table1`: what the modules for hot keys take of the real programs, as instructions, memory and time of a packet (KVSwitch Table 1).
//!
//! ```text
//!   get, plain             ─▶ routing                                             A
//!   get, plain, with room  ─▶ routing, hot table, stamp of zeros                  B
//!   get of a watched key   ─▶ routing, hot table, load counter                    C, and with room: stamp
//!   get of a candidate     ─▶ routing, hot table, HashPipe, load counter          D, and F with room
//!   get of a copied key    ─▶ routing, hot table, round robin, stamp, load        E
//!   get of a kept value    ─▶ answered                                            V
//! ```
//!
//! A packet's time is the kernel's own count of how long the program runs (`BPF_PROG_TEST_RUN`, frame by frame). Reading its clock costs as much in all cases, so
//! that only differences say something: in a block all cases take turns, and differences are of one block. Caches are as cold as a system call leaves them.

mod cases;
mod sizes;

use crate::arguments::OutputArguments;
use crate::error::{BenchError, Result};
use crate::plot::{self, Bar, Panel};
use crate::report::{self, Goal};
use crate::statistics::{Summary, figure};
use cases::{Asked, Case, Times};
use nicekv_switch_xdp::Hook;
use serde_json::{Value, json};
use sizes::Sizes;

const NAME: &str = "kvswitch-table1";
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];
/// What all modules together may add to a packet, in nanoseconds.
const ADDED_MAX: f64 = 200.0;

/// The paper's, in percent of what a Tofino has: resource, switch.p4, KVSwitch, both, NetCache. Of SRAM there is only what §5.5 says, which contradicts itself for KVSwitch.
const PAPER: [[&str; 5]; 6] = [
    ["resource, % of a Tofino", "switch.p4", "KVSwitch", "both", "NetCache"],
    ["match crossbar", "50.13", "7.72", "57.85", "45.34"],
    ["hash bits", "32.35", "17.58", "49.93", "30.54"],
    ["VLIW actions", "34.64", "8.26", "42.9", "37.85"],
    ["stateful ALUs", "15.63", "24.61", "40.24", "16.74"],
    ["SRAM", "", "38.43 and 29.79", "", "48.98"],
];

/// Arguments of `nicekv bench kvswitch-table1`.
#[derive(Clone, Debug, clap::Args)]
pub struct Table1Arguments {
    /// Put fewer frames through
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// What a module adds to a packet: cases whose times are added, and subtracted.
struct Added {
    name: &'static str,
    plus: &'static [Case],
    minus: &'static [Case],
    goal: Option<Goal>,
}

const ALL: Option<Goal> = Some(Goal::AtMost(ADDED_MAX));

const ADDED: [Added; 9] = [
    added("room for a stamp, of a plain get", &[Case::PlainRoom], &[Case::Plain], None),
    added("hot table, load counter", &[Case::Watched], &[Case::Plain], None),
    added("stamp", &[Case::WatchedRoom], &[Case::Watched], None),
    added("round robin", &[Case::Copied], &[Case::WatchedRoom], None),
    added("HashPipe, in the place of an entry", &[Case::Candidate], &[Case::Watched], None),
    added("all, get of a copied key", &[Case::Copied], &[Case::Plain], ALL),
    added("all, get of a candidate", &[Case::CandidateRoom], &[Case::Plain], ALL),
    added("all, put of a copied key", &[Case::CopiedPut], &[Case::PlainPut], ALL),
    added("value, answered, beside a get that is sent on", &[Case::Kept], &[Case::Plain], None),
];

const fn added(
    name: &'static str,
    plus: &'static [Case],
    minus: &'static [Case],
    goal: Option<Goal>,
) -> Added {
    Added { name, plus, minus, goal }
}

/// One row of times: the differences of each block.
struct Row {
    hook: Hook,
    asked: Asked,
    name: &'static str,
    goal: Option<Goal>,
    nanoseconds: Vec<f64>,
}

pub(crate) fn run(arguments: &Table1Arguments) -> Result<()> {
    // The thread changes its namespace, and is not to keep it.
    let (sizes, rows) = std::thread::scope(|scope| {
        let measured = scope.spawn(|| measure(arguments.quick)).join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    print!("{}\n{}\n", report::aligned(&sizes.table()), report::aligned(&table(&rows)));
    print!("the paper's Table 1:\n{}", report::aligned(&PAPER.map(|row| row.map(String::from))));
    println!(
        "The paper's packets take 185 ns without KVSwitch and 214 ns with it; its SRAM is 38.43 % in §5.5, and 29.79 % three sentences later."
    );
    let json: String = sizes.json(NAME).chain(rows.iter().map(Row::json)).collect();
    arguments.output.write_image(NAME, &json, &plot::svg(&panels(&rows)))
}

fn measure(quick: bool) -> Result<(Sizes, Vec<Row>)> {
    let (mut sizes, mut rows) = (Sizes::of_object()?, Vec::new());
    for hook in HOOKS {
        let mut times = Times::new(hook, quick)?;
        sizes.add(times.switch(), hook)?;
        for asked in Asked::ALL {
            let blocks = times.measure(asked)?;
            let of = |cases: &[Case], block: usize| -> f64 {
                cases.iter().map(|case| blocks[*case as usize][block]).sum()
            };
            let row = |added: &Added| {
                let number = blocks[Case::Plain as usize].len();
                let difference = |block| of(added.plus, block) - of(added.minus, block);
                let nanoseconds = (0..number).map(difference).collect();
                Row { hook, asked, name: added.name, goal: added.goal, nanoseconds }
            };
            let plain = blocks[Case::Plain as usize].clone();
            let name = "a plain get, with the reading of the clock";
            rows.push(Row { hook, asked, name, goal: None, nanoseconds: plain });
            rows.extend(ADDED.iter().map(row));
        }
    }
    Ok((sizes, rows))
}

impl Row {
    fn summary(&self) -> Summary {
        Summary::of(self.nanoseconds.iter().copied())
    }

    fn columns(&self) -> [String; 7] {
        let Summary { median, min, max } = self.summary();
        let met = self.goal.map(|goal| if goal.is_met(median) { "yes" } else { "no" });
        [
            self.hook.name().into(),
            self.asked.name().into(),
            self.name.into(),
            figure(median),
            format!("[{} .. {}]", figure(min), figure(max)),
            self.goal.map_or_else(String::new, |goal| goal.to_string()),
            met.unwrap_or_default().into(),
        ]
    }

    fn parameters(&self) -> Value {
        json!({ "hook": self.hook.name(), "keys": self.asked.name(), "entries": cases::ENTRIES })
    }

    fn json(&self) -> String {
        report::row_of(NAME, self.name, &self.parameters(), ("program_time", "ns"), &self.nanoseconds, None)
    }
}

fn table(rows: &[Row]) -> Vec<[String; 7]> {
    let header = ["hook", "keys", "a packet's time for", "ns", "[min .. max]", "target", "met"];
    std::iter::once(header.map(String::from)).chain(rows.iter().map(Row::columns)).collect()
}

fn panels(rows: &[Row]) -> Vec<Panel> {
    let panel = |rows: &[Row]| {
        // A difference may be less than nothing, by chance; a bar may not.
        let positive = |Summary { median, min, max }: Summary| Summary {
            median: median.max(0.0),
            min: min.max(0.0),
            max: max.max(0.0),
        };
        let bars = rows[1..].iter().map(|row| Bar::ours(short(row.name), positive(row.summary()))).collect();
        Panel { title: format!("added, ns, {}, {}", rows[0].hook, rows[0].asked.name()), bars }
    };
    rows.chunk_by(|one, other| (one.hook, one.asked) == (other.hook, other.asked)).map(panel).collect()
}

/// What there is room for before a bar.
fn short(name: &str) -> &str {
    name.split_once(", beside").or_else(|| name.split_once(", in the")).map_or(name, |(short, _)| short)
}

fn failed(what: &str) -> BenchError {
    BenchError::Failed(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_copied_keys_get_are_the_whole() {
        let sum = |names: &[&str]| {
            let mut counts = [0_i32; Case::ALL.len()];
            for added in ADDED.iter().filter(|added| names.contains(&added.name)) {
                added.plus.iter().for_each(|case| counts[*case as usize] += 1);
                added.minus.iter().for_each(|case| counts[*case as usize] -= 1);
            }
            counts
        };
        let parts = sum(&["stamp", "hot table, load counter", "round robin"]);
        assert_eq!(parts, sum(&["all, get of a copied key"]));
        assert!(parts.iter().any(|count| *count != 0));
    }
}
