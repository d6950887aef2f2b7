//! `nicekv top`: what goes on in a cluster, live: what is wrong, keyspaces, nodes, who answers gets, partitions that are not whole, switch tables, hot keys.
//!
//! ```text
//!   metadata service ──status, once a second───▶ [`sections`] (rates from two of them) ───────┬─▶ screen (ratatui)
//!   nodes, pages of metrics ──histograms, gets─▶ [`latencies`], [`hot_keys`] (of the time between) ─┴─▶ plain text (`--once`, pipes)
//! ```

mod hot_keys;
mod latencies;
mod screen;
mod sections;

use crate::admin::ask;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::output::print;
use latencies::Gathered;
use nicekv_metadata::Status;
use nicekv_runtime::control_plane::AdminRequest;
use sections::Sections;
use std::io::IsTerminal;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

/// `nicekv top`
#[derive(clap::Args)]
pub struct TopArguments {
    /// Print it once, as text, and end; so it is done, too, if the output is no terminal
    #[arg(long)]
    once: bool,
    /// Milliseconds between two looks
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Pages of metrics to show latencies of, too, such as gateways'; nodes are asked in any case
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
        // Rates need two looks.
        std::thread::sleep(interval);
        return print(watch.look()?.text().as_bytes());
    }
    screen::run(first, interval, || watch.look())
}

/// After keyspaces and nodes.
const LATENCIES_AT: usize = 2;

/// The last look at a cluster.
struct Watch {
    endpoint: Vec<SocketAddrV4>,
    pages: Vec<SocketAddr>,
    last: Option<(Instant, Status, Gathered)>,
}

impl Watch {
    fn look(&mut self) -> Result<Sections, Failure> {
        let json = ask(&self.endpoint, &AdminRequest::Status)?;
        let (now, status) = (Instant::now(), serde_json::from_slice(&json).map_err(Failure::environment)?);
        let gathered = latencies::gather(&status, &self.pages);
        let before =
            self.last.as_ref().map(|(at, status, earlier)| (status, earlier, now.duration_since(*at)));
        let mut sections = Sections::of(&status, before.map(|(status, _, elapsed)| (status, elapsed)));
        let earlier = before.map_or(&[][..], |(_, earlier, _)| &earlier.histograms);
        let latencies = latencies::section(earlier, &gathered.histograms);
        let earlier = before.map(|(_, earlier, elapsed)| (&earlier.gets[..], elapsed));
        let answers = hot_keys::answers(status.hot.as_ref(), earlier, &gathered.gets);
        sections.tables.splice(LATENCIES_AT..LATENCIES_AT, [latencies, answers]);
        self.last = Some((now, status, gathered));
        Ok(sections)
    }
}
