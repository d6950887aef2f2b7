//! Options that benches have in common, and what a bench that starts labs has while it runs.

use crate::error::{BenchError, Result};
use crate::lab::{Engine, LabPlan, Network, Size};
use crate::load::Limits;
use crate::output::OutputArguments;
use crate::report::Report;
use crate::statistics::ROUNDS_MIN;
use nicekv_lab::{Fabric, Hook};
use nicekv_runtime::Stop;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// How many rounds there are.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct RoundsArguments {
    /// Rounds of each comparison: in each, both sides one after the other
    #[arg(long, default_value_t = ROUNDS_MIN, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..))]
    pub(crate) rounds: u32,
}

/// The network between the hosts of a lab.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct NetworkArguments {
    /// Hook at which the lab's switch sees frames: xdp, tc or auto, which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value_t)]
    switch: Hook,
    /// What is in the middle of the lab: the switch, or a plain network, on which each host runs
    /// the pipeline for what it sends
    #[arg(long, value_enum, env = "NICEKV_LAB_FABRIC", default_value_t)]
    fabric: Fabric,
}

impl NetworkArguments {
    fn network(self) -> Network {
        match self.fabric {
            Fabric::Switch => Network::Switch(self.switch),
            Fabric::Plain => Network::Plain,
        }
    }
}

/// Options of every bench that starts servers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FileArguments {
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    /// Keep data of durable nodes and servers below this directory, which must be on a disk
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    data_dir: PathBuf,
}

impl FileArguments {
    /// A directory for durable data. One in memory is refused: a durable write would cost nothing
    /// there.
    fn directory(&self) -> Result<TempDir> {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        let parent: &Path = &self.data_dir;
        let named = |operation: &str| format!("{operation} {}", parent.display());
        let kind = rustix::fs::statfs(parent).map_err(BenchError::system(named("look at")))?.f_type as u64;
        if kind == TMPFS_MAGIC {
            let line = format!("{} is in memory, not on a disk: choose another --data-dir", parent.display());
            return Err(BenchError::Environment(line));
        }
        tempfile::Builder::new()
            .prefix("nicekv-bench-")
            .tempdir_in(parent)
            .map_err(BenchError::system(named("make a directory in")))
    }
}

/// Options of a bench whose lab has one network.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SessionArguments {
    /// Measure less in each round: half a second instead of two, or fewer operations
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    files: FileArguments,
}

impl SessionArguments {
    pub(crate) fn start(&self) -> Result<Session> {
        Session::start(self.quick, self.network.network(), &self.files)
    }
}

/// A running bench: how long it measures, on which network, and how it ends. Its data is removed
/// when it is dropped.
pub(crate) struct Session {
    pub(crate) quick: bool,
    pub(crate) network: Network,
    /// Set by Ctrl-C and SIGTERM.
    pub(crate) stop: Stop,
    directory: TempDir,
    output: OutputArguments,
}

impl Session {
    pub(crate) fn start(quick: bool, network: Network, files: &FileArguments) -> Result<Self> {
        let (stop, directory) = (stop_on_signals()?, files.directory()?);
        Ok(Self { quick, network, stop, directory, output: files.output.clone() })
    }

    /// How long each side is measured in a round.
    pub(crate) fn round_time(&self) -> Duration {
        round_time(self.quick)
    }

    /// `few` of a quick run, `many` of another one.
    pub(crate) fn few_or<T>(&self, few: T, many: T) -> T {
        if self.quick { few } else { many }
    }

    /// Below it is everything that is on a disk.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn limits(&self, duration: Duration) -> Limits<'_> {
        Limits { duration, stop: &self.stop }
    }

    /// An error once the operator has stopped the bench.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stop.is_stopped() { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// A lab on this network, with one client and no further options.
    pub(crate) fn plan(&self, size: Size, engine: Engine) -> LabPlan<'_> {
        LabPlan::new(size, engine, self.network, self.directory())
    }

    /// Prints the report and writes its files.
    pub(crate) fn finish(&self, report: Report) -> Result<()> {
        report.finish(&self.output)
    }
}

/// How long each side is measured in a round.
pub(crate) fn round_time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 500 } else { 2_000 })
}

/// Set by Ctrl-C and SIGTERM.
pub(crate) fn stop_on_signals() -> Result<Stop> {
    let stop = Stop::new();
    stop.on_signals().map_err(BenchError::system("handle signals"))?;
    Ok(stop)
}
