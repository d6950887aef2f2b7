//! `nicekv bench kvswitch-table1`: what the modules for hot keys add to the real programs, as
//! instructions, memory and time of a packet (KVSwitch Table 1).
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
//! A packet's time is the kernel's own count of the program's run time (`BPF_PROG_TEST_RUN`, frame
//! by frame). Reading its clock costs the same in all cases, so that only differences count: in a
//! block all cases take turns, and differences are taken within a block. Caches are as cold as a
//! system call leaves them.

mod cases;
mod sizes;

use crate::bar_chart::{Bar, Panel};
use crate::error::Result;
use crate::netns::apart;
use crate::output::OutputArguments;
use crate::report::{Goal, Report, Row};
use cases::{Asked, Case, Times};
use nicekv_switch_xdp::Hook;
use serde_json::json;
use sizes::Sizes;

const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];
/// Maximum nanoseconds that all modules together may add to a packet.
const ALL: Option<Goal> = Some(Goal::AtMost(200.0));

/// The paper's table, in percent of a Tofino's resources. For SRAM there is only §5.5, which
/// contradicts itself for KVSwitch.
const PAPER_HEADER: [&str; 5] = ["resource, % of a Tofino", "switch.p4", "KVSwitch", "both", "NetCache"];
const PAPER: [[&str; 5]; 5] = [
    ["match crossbar", "50.13", "7.72", "57.85", "45.34"],
    ["hash bits", "32.35", "17.58", "49.93", "30.54"],
    ["VLIW actions", "34.64", "8.26", "42.9", "37.85"],
    ["stateful ALUs", "15.63", "24.61", "40.24", "16.74"],
    ["SRAM", "", "38.43 and 29.79", "", "48.98"],
];

/// Arguments of `nicekv bench kvswitch-table1`.
#[derive(Clone, Debug, clap::Args)]
pub struct Table1Arguments {
    /// Run the programs on fewer frames
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// The time that a module adds to a packet: cases whose times are added, and subtracted.
struct Added {
    name: &'static str,
    plus: &'static [Case],
    minus: &'static [Case],
    goal: Option<Goal>,
}

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

/// Times at one hook with one distribution of keys; the first row is the time of a plain get, the
/// others are added times.
struct Block {
    title: String,
    rows: Vec<Row>,
}

pub(crate) fn run(arguments: &Table1Arguments) -> Result<()> {
    let (sizes, blocks) = apart(|| measure(arguments.quick))?;
    let mut report = Report::new("kvswitch-table1");
    sizes.report(&mut report);
    report.note("");
    report.rows(&blocks.iter().flat_map(|block| block.rows.clone()).collect::<Vec<_>>());
    report.note("\nthe paper's Table 1:");
    report.table(&PAPER_HEADER, PAPER.map(|line| line.map(String::from).to_vec()));
    report.note(
        "The paper's packets take 185 ns without KVSwitch and 214 ns with it; its SRAM is 38.43 % in §5.5, and 29.79 % three sentences later.",
    );
    for Block { title, rows } in &blocks {
        let bars = rows[1..].iter().map(|row| Bar::ours(short(&row.system), &row.figures)).collect();
        report.panel(Panel { title: format!("added, ns, {title}"), bars });
    }
    report.finish(&arguments.output)
}

fn measure(quick: bool) -> Result<(Sizes, Vec<Block>)> {
    let (mut sizes, mut blocks) = (Sizes::of_object()?, Vec::new());
    for hook in HOOKS {
        let mut times = Times::new(hook, quick)?;
        sizes.add(times.switch(), hook)?;
        for asked in Asked::ALL {
            let nanoseconds = times.measure(asked)?;
            let title = format!("{hook}, {}", asked.name());
            let row = |name: &str, figures: Vec<f64>| {
                let parameters =
                    json!({ "hook": hook.name(), "keys": asked.name(), "entries": cases::ENTRIES });
                Row::new(&title, name, ("program_time", "ns"), figures).parameters(parameters)
            };
            let plain = nanoseconds[Case::Plain as usize].clone();
            let difference = |added: &Added| {
                let sum = |cases: &[Case], block: usize| -> f64 {
                    cases.iter().map(|case| nanoseconds[*case as usize][block]).sum()
                };
                let of_block = |block| sum(added.plus, block) - sum(added.minus, block);
                row(added.name, (0..plain.len()).map(of_block).collect()).goal(added.goal)
            };
            let first = row("a plain get, with the reading of the clock", plain.clone());
            let rows = std::iter::once(first).chain(ADDED.iter().map(difference)).collect();
            blocks.push(Block { title, rows });
        }
    }
    Ok((sizes, blocks))
}

/// A name that fits left of a bar.
fn short(name: &str) -> &str {
    name.split_once(", beside").or_else(|| name.split_once(", in the")).map_or(name, |(short, _)| short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_get_of_a_copied_key_add_up_to_the_whole() {
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
