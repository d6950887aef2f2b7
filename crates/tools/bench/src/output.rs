//! The files that figures are written to, besides the terminal.

use crate::error::{BenchError, Result};
use std::path::{Path, PathBuf};

/// The files that a bench writes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OutputArguments {
    /// Also write one JSON object per line and figure to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the figures, as NAME.svg in this directory, which is created if it is missing
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

impl OutputArguments {
    /// Replaces the file of JSON, if one was asked for.
    pub(crate) fn write_json(&self, lines: &str) -> Result<()> {
        self.json.as_ref().map_or(Ok(()), |path| write(path, lines))
    }

    /// Draws NAME.svg, if drawings were asked for.
    pub(crate) fn draw(&self, name: &str, image: impl FnOnce() -> String) -> Result<()> {
        let Some(directory) = &self.plot else { return Ok(()) };
        let created = std::fs::create_dir_all(directory);
        created.map_err(BenchError::system(format!("create {}", directory.display())))?;
        write(&directory.join(name).with_extension("svg"), &image())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    nicekv_runtime::write_whole(path, text.as_bytes())
        .map_err(BenchError::system(format!("write {}", path.display())))
}
