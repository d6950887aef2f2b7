//! `nicekv bench replicast`: chunks whose targets are negotiated (Replicast-M and -H), beside the
//! same store with targets by hash over TCP, in a lab.
//!
//! ```text
//!   client-0 … client-3 ═══ 100 Mbit/s each way ═══ switch ═══ 100 Mbit/s each way ═══ node-0 … node-8
//!     M, H   NICEKV: an initiator at each client, the targets in the nodes' processes
//!     TCP    `hashed`: three of nine by the hash of a chunk's id, sent to all three at once; a server in each node's namespace
//!
//!   full        links are the bottleneck
//!   slow-disk   disks write twice what links carry, that of node-0 a tenth of it
//!   busy-link   background traffic takes 80 % of node-0's link
//! ```
//!
//! Both sides have the same store on the same disk (`ChunkDisk`: segments, verified by BLAKE3,
//! synced in groups, acknowledged then), the same links, the same chunks, and as many of them in
//! flight. They differ in who chooses the targets, and in how bytes get there. The paper's own
//! comparison, with its numbers of hosts, is simulated (`crate::replicast_sim`).

mod hashed;
mod load;
mod results;
mod testbed;
mod traffic;

use crate::error::{BenchError, Result};
use crate::report::Report;
use crate::session::{RoundsArguments, Session, SessionArguments};
use load::Period;
use results::Results;
use serde_json::{Value, json};
use std::time::Duration;
use testbed::Testbed;

/// Rate of a link in each direction: with four clients it is the bottleneck, and not one of two
/// processors.
const MBIT: u32 = 100;
/// Bytes of a chunk.
const CHUNK_BYTES: usize = 1 << 20;
/// Targets, and servers by hash.
const NODES: u8 = 9;
/// Copies of each chunk.
const COPIES: usize = 3;

/// Arguments of `nicekv bench replicast`.
#[derive(Clone, Debug, clap::Args)]
pub struct NegotiatedArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Only these cases, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CASES")]
    only: Vec<Case>,
    /// Client hosts; with nine of them the links of targets are the bottleneck on every side
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    clients: u8,
    /// Chunks that each client has in flight
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    under_way: u8,
    #[command(flatten)]
    session: SessionArguments,
}

/// Conditions of the links and disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Nothing special: links are the bottleneck
    Full,
    /// One disk is ten times slower than the others
    SlowDisk,
    /// Background traffic takes 80 % of one target's link
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

    /// Warm-up and measurement. Behind a slow disk the warm-up fills the queue.
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

/// How chunks get to their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Replicast-M: by multicast to three targets that have a window in common.
    Multicast,
    /// Replicast-H: by unicast to three targets, one after the other.
    Unicast,
    /// By TCP to three targets by hash, all at once.
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
    let session = arguments.session.start()?;
    let mut report = Report::new("replicast");
    for case in Case::ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&case) {
            continue;
        }
        let mut results = Results::default();
        let period = case.period(session.quick);
        for round in 1..=arguments.rounds.rounds {
            // Each round has its own lab and directory, which are removed after it.
            let directory = tempfile::tempdir_in(session.directory())
                .map_err(BenchError::system("create a directory"))?;
            let mut testbed = Testbed::start(case, arguments, &session, directory.path())?;
            for system in in_turn(round) {
                let measured = testbed.measure(system, period, &session.stop)?;
                eprintln!("{round}: {}, {:3}: {measured}", case.name(), system.name());
                results.add(system, measured);
            }
        }
        results.report(case, &arguments.parameters(case, &session), &mut report);
        report.note("");
        report.print();
    }
    session.finish(report)
}

impl NegotiatedArguments {
    fn parameters(&self, case: Case, session: &Session) -> Value {
        json!({
            "case": case.name(), "network": session.network.name(), "mbit": MBIT, "nodes": NODES,
            "copies": COPIES, "clients": self.clients, "under_way": self.under_way, "chunk_bytes": CHUNK_BYTES,
            "seconds": case.period(session.quick).length.as_secs(),
        })
    }
}

/// The order of a round: the first system of one round is the last of the next.
fn in_turn(round: u32) -> [System; 3] {
    let mut systems = System::ALL;
    systems.rotate_left(round as usize % System::ALL.len());
    systems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_is_first_in_some_round() {
        let first: Vec<&str> = (1..=3).map(|round| in_turn(round)[0].name()).collect();
        assert_eq!(first, ["H", "TCP", "M"]);
    }

    #[test]
    fn case_names_are_accepted_on_the_command_line() {
        for case in Case::ALL {
            assert_eq!(<Case as clap::ValueEnum>::from_str(case.name(), false), Ok(case));
        }
    }
}
