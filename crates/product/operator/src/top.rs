//! `nicekv top`: problems, keyspaces, nodes, latencies, switch tables and hot keys, live.
//!
//! ```text
//!   metadata service ──status, once a second───▶ [`tables`](crate::tables) (rates from two of them) ──┬─▶ screen (ratatui)
//!   nodes, metrics pages ──histograms, gets────▶ [`latencies`], [`answers`] (between two looks) ──────┴─▶ text (`--once`, pipes)
//! ```

mod answers;
mod latencies;
mod screen;

use crate::admin::ask;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::output::print;
use crate::tables::Screen;
use latencies::Gathered;
use nicekv_metadata::Status;
use nicekv_runtime::control_plane::AdminRequest;
use std::io::IsTerminal;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

/// `nicekv top`
#[derive(clap::Args)]
pub struct TopArguments {
    /// Print once, as text, and exit; the default if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Refresh interval in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Also show latencies from these metrics pages, such as a gateway's; nodes are always included
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    metrics: Vec<SocketAddr>,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let (endpoint, pages) = (discovery::find(&arguments.endpoint, Purpose::Read)?, arguments.metrics.clone());
    let mut watch = Watch { endpoint, pages, last: None };
    let interval = Duration::from_millis(arguments.interval_ms);
    let first = watch.look()?;
    if arguments.once || !std::io::stdout().is_terminal() {
        // A rate needs two observations.
        std::thread::sleep(interval);
        return print(watch.look()?.text().as_bytes());
    }
    screen::run(first, interval, || watch.look())
}

/// Index of the table of latencies: after keyspaces and nodes.
const LATENCIES_AT: usize = 2;

/// A cluster, and its last observation.
struct Watch {
    endpoint: Vec<SocketAddrV4>,
    pages: Vec<SocketAddr>,
    last: Option<(Instant, Status, Gathered)>,
}

impl Watch {
    fn look(&mut self) -> Result<Screen, Failure> {
        let json = ask(&self.endpoint, &AdminRequest::Status)?;
        let (now, status) = (Instant::now(), serde_json::from_slice(&json).map_err(Failure::environment)?);
        let gathered = latencies::gather(&status, &self.pages);
        let before =
            self.last.as_ref().map(|(at, status, earlier)| (status, earlier, now.duration_since(*at)));
        let mut sections = Screen::of(&status, before.map(|(status, _, elapsed)| (status, elapsed)));
        let earlier = before.map_or(&[][..], |(_, earlier, _)| &earlier.histograms);
        let latencies = latencies::table(earlier, &gathered.histograms);
        let earlier = before.map(|(_, earlier, elapsed)| (&earlier.gets[..], elapsed));
        let answers = answers::table(status.hot.as_ref(), earlier, &gathered.gets);
        sections.tables.splice(LATENCIES_AT..LATENCIES_AT, [latencies, answers]);
        self.last = Some((now, status, gathered));
        Ok(sections)
    }
}
