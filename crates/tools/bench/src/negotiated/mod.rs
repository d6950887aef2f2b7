//! `nicekv bench replicast`: chunks that are negotiated for (Replicast-M and -H), beside the same store with targets by hash over TCP, on cables.
//!
//! ```text
//!   client-0 … client-3 ═══ 100 Mbit/s each way ═══ switch ═══ 100 Mbit/s each way ═══ node-0 … node-8
//!     M, H   the product: an initiator at each client, the targets in the nodes' processes
//!     TCP    `hashed`: three of nine by the hash of a chunk's id, sent to all three at once; a server in each node's namespace
//!
//!   full        links are what is full
//!   slow-disk   disks write twice what links carry, that of node-0 a tenth of it
//!   busy-link   somebody else sends node-0 80 % of what its link carries
//! ```
//!
//! Both sides have the same store on the same disk (`ChunkDisk`: segments, verified by BLAKE3, forced together, acknowledged then), the same links, the same chunks, and as many of them
//! under way. What is compared is who chooses the targets, and how bytes get there. The paper's own comparison, with its numbers of hosts, is simulated (`crate::replicast`).

mod bed;
mod hashed;
mod lines;
mod load;
mod traffic;

use crate::arguments::{FileArguments, NetworkArguments, RoundsArguments};
use crate::error::{BenchError, Result};
use bed::Bed;
use lines::Rows;
use load::Period;
use nicekv_runtime::Stop;
use std::time::Duration;

const NAME: &str = "replicast";
/// What a cable carries, each way: with four clients neither of two processors is what is full.
const MBIT: u32 = 100;

/// Arguments of `nicekv bench replicast`.
#[derive(Clone, Debug, clap::Args)]
pub struct NegotiatedArguments {
    /// Measure for two seconds instead of five (slow-disk: eight instead of fifteen) in each round
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Only these cases, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CASES")]
    only: Vec<Case>,
    /// Hosts that put; with nine of them the links of targets are what is full on every side
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    clients: u8,
    /// Chunks that each of them has under way
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    under_way: u8,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Nothing: links are what is full
    Full,
    /// One disk is ten times slower than the others
    SlowDisk,
    /// One target's link carries others' traffic to 80 %
    BusyLink,
}

impl Case {
    const ALL: [Self; 3] = [Self::Full, Self::SlowDisk, Self::BusyLink];

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::SlowDisk => "slow-disk",
            Self::BusyLink => "busy-link",
        }
    }

    /// What is put before anything is measured, and how long that takes then. Behind a slow disk the queue is to be as long as it gets.
    fn period(self, is_quick: bool) -> Period {
        let (warm_up, length) = match (self, is_quick) {
            (Self::SlowDisk, true) => (4, 8),
            (Self::SlowDisk, false) => (5, 15),
            (_, true) => (1, 2),
            (_, false) => (1, 5),
        };
        Period { warm_up: Duration::from_secs(warm_up), length: Duration::from_secs(length) }
    }
}

/// Who puts chunks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Replicast-M: once, to three that have a window in common.
    Multicast,
    /// Replicast-H: to three, one after the other.
    Unicast,
    /// To three by hash, at once.
    Hashed,
}

impl System {
    const ALL: [Self; 3] = [Self::Multicast, Self::Unicast, Self::Hashed];

    fn name(self) -> &'static str {
        match self {
            Self::Multicast => "M",
            Self::Unicast => "H",
            Self::Hashed => "TCP",
        }
    }
}

pub(crate) fn run(arguments: &NegotiatedArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    let directory = arguments.files.directory()?;
    let (mut json, mut panels) = (String::new(), Vec::new());
    for case in Case::ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&case) {
            continue;
        }
        let mut rows = Rows::default();
        for round in 1..=arguments.rounds.rounds {
            // Each round has a lab of its own: what was put is gone from the disk after it.
            let place =
                tempfile::tempdir_in(directory.path()).map_err(BenchError::system("make a directory"))?;
            let mut bed = Bed::up(case, arguments, place.path(), &stop)?;
            for system in in_turn(round) {
                let measured = bed.measure(system, case.period(arguments.quick), &stop)?;
                eprintln!("{round}: {}, {:3}: {measured}", case.name(), system.name());
                rows.note(system, measured);
            }
            drop((bed, place));
        }
        let shown = rows.show(case, arguments);
        println!("{}", shown.table);
        json += &shown.json;
        panels.extend(shown.panels);
    }
    arguments.files.write(NAME, &json, &panels)
}

/// Who is first in one round is last in the next.
fn in_turn(round: u32) -> [System; 3] {
    let mut systems = System::ALL;
    systems.rotate_left(round as usize % System::ALL.len());
    systems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_first_in_its_turn() {
        let first: Vec<&str> = (1..=3).map(|round| in_turn(round)[0].name()).collect();
        assert_eq!(first, ["H", "TCP", "M"]);
    }

    #[test]
    fn a_case_is_asked_for_by_its_name() {
        for case in Case::ALL {
            assert_eq!(<Case as clap::ValueEnum>::from_str(case.name(), false), Ok(case));
        }
    }
}
