//! What several benches take on their command line.

use crate::error::{BenchError, Result};
use crate::lab::Network;
use crate::plot::{self, Panel};
use crate::statistics::ROUNDS_MIN;
use nicekv_lab::{Fabric, Hook};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// How long a round is.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LengthArguments {
    /// Measure for half a second instead of two in each round
    #[arg(long)]
    pub(crate) quick: bool,
}

impl LengthArguments {
    pub(crate) fn round_time(self) -> Duration {
        Duration::from_millis(if self.quick { 500 } else { 2_000 })
    }
}

/// How many rounds there are.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct RoundsArguments {
    /// Rounds of each comparison: in each, both sides one after the other
    #[arg(long, default_value_t = ROUNDS_MIN, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(ROUNDS_MIN)..))]
    pub(crate) rounds: u32,
}

/// What is between the hosts of a lab.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct NetworkArguments {
    /// Where the lab's switch works on frames: xdp, tc or auto, which in a lab means tc
    #[arg(long, value_name = "HOOK", env = "NICEKV_LAB_SWITCH", default_value_t)]
    switch: Hook,
    /// What is in the middle of the lab: the switch, or a plain network, on which each host runs the pipeline for what it sends
    #[arg(long, value_enum, env = "NICEKV_LAB_FABRIC", default_value_t)]
    fabric: Fabric,
}

impl NetworkArguments {
    pub(crate) fn network(self) -> Network {
        match self.fabric {
            Fabric::Switch => Network::Switch(self.switch),
            Fabric::Plain => Network::Plain,
        }
    }
}

/// Where figures go besides the terminal.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutputArguments {
    /// Also write one JSON object per line and figure to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures, as NAME.svg in this directory, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// Where things are kept.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FileArguments {
    #[command(flatten)]
    output: OutputArguments,
    /// Keep data of durable nodes and servers below this directory, which must be on a disk
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    data_dir: PathBuf,
}

impl FileArguments {
    /// A directory for durable data: a file system in memory would make a durable write cost nothing.
    pub(crate) fn directory(&self) -> Result<TempDir> {
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

    /// Writes the lines of JSON, and draws the panels of the bench of this name, where they are wanted, replacing what was there.
    pub(crate) fn write(&self, name: &str, lines: &str, panels: &[Panel]) -> Result<()> {
        self.write_image(name, lines, &plot::svg(panels))
    }

    /// The same of another image.
    pub(crate) fn write_image(&self, name: &str, lines: &str, image: &str) -> Result<()> {
        self.output.write_image(name, lines, image)
    }

    /// Draws one more image.
    pub(crate) fn draw(&self, name: &str, image: &str) -> Result<()> {
        self.output.draw(name, image)
    }
}

impl OutputArguments {
    /// As [`FileArguments::write_image`].
    pub(crate) fn write_image(&self, name: &str, lines: &str, image: &str) -> Result<()> {
        if let Some(path) = &self.json {
            write(path, lines)?;
        }
        self.draw(name, image)
    }

    fn draw(&self, name: &str, image: &str) -> Result<()> {
        let Some(directory) = &self.plot else { return Ok(()) };
        let made = std::fs::create_dir_all(directory);
        made.map_err(BenchError::system(format!("make {}", directory.display())))?;
        write(&directory.join(name).with_extension("svg"), image)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    nicekv_runtime::write_whole(path, text.as_bytes())
        .map_err(BenchError::system(format!("write {}", path.display())))
}
