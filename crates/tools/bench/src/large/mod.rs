//! `nicekv bench large`: large values where links are the bottleneck, and beside small values.
//!
//! ```text
//!   shaped   client, nodes ═══ 100 Mbit/s each ═══ switch        1 MB to 1, 3 … 9 replicas, and gets; Redis beside it
//!   any-k    node-4, -5, -6 ═══ 5 Mbit/s, the others 100         1 MB to any 1 and any 3 of 7 replicas, and with all links alike
//!   beside   client-0 ── 1,000 small puts a second               and without the large ones
//!            client-1 ── a put of 64 MiB after the other         unlimited links
//! ```
//!
//! These are NICE's Fig. 4, 5, 8 and 9 with values of 1 MB and a tenth of NICE's link rate. NICE
//! compares with a store whose primary forwards values to each of its replicas, as Redis with
//! `WAIT` does.

mod replicas;
mod small_beside_large;
mod write_set;

use crate::error::Result;
use crate::redis_server;
use crate::report::Report;
use crate::session::{RoundsArguments, SessionArguments};
use std::time::Duration;

/// Rate of a link, and its burst.
const MBIT: u32 = 100;
const BURST: &str = "32k";
const PARTITIONS: u32 = 16;
/// Time limit of an op.
const OP_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `nicekv bench large`.
#[derive(Clone, Debug, clap::Args)]
pub struct LargeArguments {
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    #[command(flatten)]
    session: SessionArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// 1 MB over links of 100 Mbit/s
    Shaped,
    /// 1 MB to any k of seven replicas, three of which have slow links
    AnyK,
    /// Small values beside one of 64 MiB
    Beside,
}

pub(crate) fn run(arguments: &LargeArguments) -> Result<()> {
    redis_server::installed_version()?;
    let session = arguments.session.start()?;
    let (mut report, rounds) = (Report::new("large"), arguments.rounds.rounds);
    for part in [Part::Shaped, Part::AnyK, Part::Beside] {
        if arguments.only.is_some_and(|only| only != part) {
            continue;
        }
        match part {
            Part::Shaped => replicas::run(&session, rounds, &mut report)?,
            Part::AnyK => write_set::run(&session, rounds, &mut report)?,
            Part::Beside => small_beside_large::run(&session, rounds, &mut report)?,
        }
        report.note("");
        report.print();
    }
    session.finish(report)
}
