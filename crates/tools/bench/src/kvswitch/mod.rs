//! `nicekv bench kvswitch-fig7`, `kvswitch-fig8`, `kvswitch-fig9`: load on servers at the paper's scale, by simulation (KVSwitch §5); `kvswitch-table1`: what programs take;
//! `kvswitch-nodes`: panels of Fig. 7 by nodes that are there.
//!
//! ```text
//!   popularity ─▶ trace ─▶ rack: production cores ─▶ loads of each period ─▶ lines ─▶ table, JSON, charts
//! ```
//!
//! 32 servers a rack, 100 million keys, 160,000 requests of each server in a period. What is simulated is where requests go; packets, nodes and time are not. Cells are
//! independent, begin from their own seeds, and are computed on all processors; what they find does not depend on how many there are.
//!
//! With `--kernel` each request of a rack is a frame that the real programs are given ([`kernel`]), and what they count is what is reported. Servers are names even so.
//!
//! The paper's figures' pictures are lost: what they show is told by its text.

mod accuracy;
mod bed;
mod cells;
mod fig7;
mod fig8;
mod fig9;
mod kernel;
mod lines;
pub(crate) mod nodes;
mod popularity;
mod rack;
pub(crate) mod table1;
mod trace;

use crate::arguments::OutputArguments;
use crate::curves;
use crate::error::Result;
use crate::report;
use lines::{HEADER, Line};
use nicekv_switch_xdp::Hook;

/// Arguments of `nicekv bench kvswitch-…`.
#[derive(Clone, Debug, clap::Args)]
pub struct KvswitchArguments {
    /// Simulate fewer cells, with fewer periods where there are many racks
    #[arg(long)]
    quick: bool,
    /// Put requests as frames through the programs of a switch in the kernel, xdp or tc, where one switch is what is measured; needs root
    #[arg(long, value_name = "HOOK", value_parser = parse_hook)]
    kernel: Option<Hook>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Which of the paper's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Balance and throughput: against skew, big values, writes, racks.
    Fig7,
    /// How many of the hottest keys are found.
    Fig8,
    /// What copies cost.
    Fig9,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Fig7 => "kvswitch-fig7",
            Self::Fig8 => "kvswitch-fig8",
            Self::Fig9 => "kvswitch-fig9",
        }
    }
}

fn parse_hook(name: &str) -> std::result::Result<Hook, String> {
    match name.parse()? {
        hook @ (Hook::Xdp | Hook::Tc) => Ok(hook),
        _ => Err("xdp or tc".into()),
    }
}

pub(crate) fn run(figure: Figure, arguments: &KvswitchArguments) -> Result<()> {
    let KvswitchArguments { quick, kernel, .. } = *arguments;
    let (lines, notes) = match figure {
        Figure::Fig7 => fig7::run(quick, kernel),
        Figure::Fig8 => fig8::run(quick, kernel),
        Figure::Fig9 => fig9::run(quick, kernel),
    }?;
    let cells: Vec<_> =
        std::iter::once(HEADER.map(String::from)).chain(lines.iter().map(Line::columns)).collect();
    print!("{}", report::aligned(&cells));
    notes.iter().for_each(|note| println!("{note}"));
    let json: String = lines.iter().map(|line| line.json(figure.name())).collect();
    arguments.output.write_image(figure.name(), &json, &curves::svg(&lines::charts(&lines)))
}
