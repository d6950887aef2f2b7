//! `nicekv bench large`: large values where links are what is full, and beside small ones.
//!
//! ```text
//!   shaped   client, nodes ═══ 100 Mbit/s each ═══ switch        1 MB to 1, 3 … 9 replicas, and from one; Redis beside it
//!   any-k    node-4, -5, -6 ═══ 5 Mbit/s, the others 100         1 MB to any 1 and any 3 of 7 replicas, and with all links alike
//!   beside   client-0 ── 1,000 small puts a second               and without the large ones
//!            client-1 ── a put of 64 MiB after the other         links as fast as they are
//! ```
//!
//! NICE's Fig. 4, 5, 8 and 9 with values of 1 MB, a tenth of their links' rate. A store whose primary sends on what it gets to each of its replicas is theirs beside NICE; Redis with
//! `WAIT` is one here.

mod any_k;
mod beside;
mod shaped;

use crate::arguments::{FileArguments, NetworkArguments, RoundsArguments};
use crate::error::{BenchError, Result};
use crate::plot::Panel;
use nicekv_runtime::Stop;

const NAME: &str = "large";

/// Arguments of `nicekv bench large`.
#[derive(Clone, Debug, clap::Args)]
pub struct LargeArguments {
    /// One op of each kind in a round instead of four, and one put of 64 MiB instead of three
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    rounds: RoundsArguments,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// 1 MB over links of 100 Mbit/s
    Shaped,
    /// 1 MB to any k of seven replicas, three of which have slow links
    AnyK,
    /// Small values beside one of 64 MiB
    Beside,
}

/// What a part has to show.
struct Shown {
    table: String,
    json: String,
    panels: Vec<Panel>,
}

pub(crate) fn run(arguments: &LargeArguments) -> Result<()> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    crate::redis_server::installed_version()?;
    let directory = arguments.files.directory()?;
    let (mut json, mut panels) = (String::new(), Vec::new());
    for part in [Part::Shaped, Part::AnyK, Part::Beside] {
        if arguments.only.is_some_and(|only| only != part) {
            continue;
        }
        let shown = match part {
            Part::Shaped => shaped::run(arguments, directory.path(), &stop)?,
            Part::AnyK => any_k::run(arguments, directory.path(), &stop)?,
            Part::Beside => beside::run(arguments, directory.path(), &stop)?,
        };
        println!("{}", shown.table);
        json += &shown.json;
        panels.extend(shown.panels);
    }
    arguments.files.write(NAME, &json, &panels)
}
