//! Waiting for a change that the metadata service carries out.

use crate::admin::answer;
use crate::failure::Failure;
use crate::output::print;
use nicekv_metadata::Status;
use nicekv_runtime::control_plane::AdminRequest;
use std::io::{IsTerminal, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Interval between progress checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The progress of a change.
pub(crate) enum Progress {
    Left(String),
    Done(String),
    Failed(String),
}

pub(crate) fn wait(endpoint: &[SocketAddrV4], progress: impl Fn(&Status) -> Progress) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut told = String::new();
    loop {
        match progress(&answer(endpoint, &AdminRequest::Status)?) {
            Progress::Failed(line) => return Err(Failure::Operation(line)),
            Progress::Done(line) if is_terminal => return print(format!("\r\x1b[K{line}\n").as_bytes()),
            Progress::Done(line) => return print(format!("{line}\n").as_bytes()),
            Progress::Left(line) if is_terminal => {
                print(format!("\r\x1b[K{line}").as_bytes())?;
                _ = std::io::stdout().flush();
            }
            Progress::Left(line) => {
                if line != told {
                    print(format!("{line}\n").as_bytes())?;
                }
                told = line;
            }
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
