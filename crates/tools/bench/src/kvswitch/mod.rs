//! `nicekv bench kvswitch-fig7`, `kvswitch-fig8`, `kvswitch-fig9`: load on servers at the paper's
//! scale, by simulation (KVSwitch §5); `kvswitch-table1`: the cost of the programs;
//! `kvswitch-nodes`: panels of Fig. 7 with real nodes.
//!
//! ```text
//!   popularity ─▶ trace ─▶ rack: production cores ─▶ loads of each period ─▶ rows ─▶ table, JSON, charts
//! ```
//!
//! A rack has 32 servers; there are 100 million keys, and 160,000 requests per server in a period.
//! The simulation decides where requests go; it has no packets, nodes or time. Experiments are
//! independent, have their own seeds, and run on all processors; the results do not depend on the
//! number of processors.
//!
//! With `--kernel` each request of a rack is a frame for the real programs ([`kernel`]), whose
//! counts are reported. Servers are names even then.
//!
//! The pictures of the paper's figures are lost: their content is in its text.

mod accuracy;
mod experiment;
mod fig7;
mod fig8;
mod fig9;
mod kernel;
pub(crate) mod nodes;
mod popularity;
mod rack;
mod rows;
pub(crate) mod table1;
mod testbed;
mod trace;

use crate::error::Result;
use crate::output::OutputArguments;
use crate::report::{Report, charts};
use nicekv_switch_xdp::Hook;

/// Arguments of `nicekv bench kvswitch-…`.
#[derive(Clone, Debug, clap::Args)]
pub struct KvswitchArguments {
    /// Run fewer experiments, with fewer periods where there are many racks
    #[arg(long)]
    quick: bool,
    /// Run the switch programs of this hook, xdp or tc, on each request, where a single switch is
    /// measured; needs root
    #[arg(long, value_name = "HOOK", value_parser = parse_hook)]
    kernel: Option<Hook>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Figures of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Balance and throughput: against skew, big values, writes, racks.
    Fig7,
    /// How many of the hottest keys are found.
    Fig8,
    /// The cost of copies.
    Fig9,
}

fn parse_hook(name: &str) -> std::result::Result<Hook, String> {
    match name.parse()? {
        hook @ (Hook::Xdp | Hook::Tc) => Ok(hook),
        _ => Err("xdp or tc".into()),
    }
}

pub(crate) fn run(figure: Figure, arguments: &KvswitchArguments) -> Result<()> {
    let KvswitchArguments { quick, kernel, .. } = *arguments;
    let (name, (rows, notes)) = match figure {
        Figure::Fig7 => ("kvswitch-fig7", fig7::run(quick, kernel)?),
        Figure::Fig8 => ("kvswitch-fig8", fig8::run(quick, kernel)?),
        Figure::Fig9 => ("kvswitch-fig9", fig9::run(quick, kernel)?),
    };
    let mut report = Report::new(name);
    report.rows(&rows);
    notes.iter().for_each(|note| report.note(note));
    report.charts(charts(&rows, rows::logarithmic));
    report.finish(&arguments.output)
}
