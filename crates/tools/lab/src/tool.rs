//! Runs `ip`, `ethtool` and the like, with a timeout, and explains their errors.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{LabError, Result};
use crate::lock::Lock;
use crate::process::wait_exit;

/// Maximum duration of a command.
const TOOL_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a command line. Its words are separated by spaces, and there is no quoting.
pub(crate) fn run(lock: &Lock, command: &str) -> Result<()> {
    let mut words = command.split_ascii_whitespace();
    let tool = words.next().expect("a command line is not empty");
    let failed = |reason: String| LabError::Tool { command: command.into(), reason };
    let mut process = Command::new(tool);
    process.args(words).stdin(lock.share()?).stdout(Stdio::null()).stderr(Stdio::piped());
    // In its own process group, so Ctrl-C does not kill it: the lab command ends between two tools.
    process.process_group(0);
    let mut child = process.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LabError::ToolMissing { tool: tool.into() },
        _ => failed(error.to_string()),
    })?;
    if !ends(child.id()).map_err(|error| failed(error.to_string()))? {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed(format!("it took longer than {} s", TOOL_TIMEOUT.as_secs())));
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.split_whitespace().collect();
    Err(failed(if said.is_empty() { output.status.to_string() } else { said.join(" ") }))
}

fn ends(pid: u32) -> io::Result<bool> {
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    wait_exit(&pidfd_open(pid, PidfdFlags::empty())?, TOOL_TIMEOUT)
}
