//! What targets hold, for people.

use nicekv_metadata::ChunksStatus;
use std::fmt::Write;

/// What targets hold, in one line.
pub(crate) fn describe_chunks(status: &ChunksStatus) -> String {
    let ((chunks, bytes), targets) = (status.held(), status.targets.len());
    let moving = if status.is_moving { ", some move to other groups" } else { "" };
    let scarce = status.under_replicated;
    // By each target that holds one: while they go through what they hold, all that they have not come to.
    let unknown = match status.unsettled {
        0 => String::new(),
        unsettled => format!(", of {unsettled} copies it is not known yet"),
    };
    format!(
        "chunks {chunks} at {targets} targets, {bytes} bytes, copies counted; {scarce} with too few copies{unknown}{moving}"
    )
}

/// A line for the cluster, and one for each target.
pub(super) fn standing(status: &ChunksStatus) -> String {
    let ((chunks, bytes), round) = (status.held(), status.round);
    let adopted = if status.is_adopted { "" } else { ", not adopted by all names yet" };
    let mut text = format!("round {round}{adopted}: {chunks} chunks, {bytes} bytes, copies counted\n");
    for target in &status.targets {
        let told = match (target.live, target.report) {
            (false, _) => "is not there".into(),
            (true, None) => "has said nothing yet".into(),
            (true, Some(report)) => {
                let swept = if report.swept < round { "not done" } else { "done" };
                format!("{} chunks, {} bytes, {swept}", report.chunks, report.bytes)
            }
        };
        writeln!(text, "  {} (group {}): {told}", target.name, target.group).expect("a string has room");
    }
    text
}
