//! What targets hold, for people.

use nicekv_metadata::{ChunksStatus, TargetReport, TargetStatus};
use std::fmt::Write;

/// What targets hold, in one line.
pub fn describe_chunks(status: &ChunksStatus) -> String {
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

/// Whether it has deleted what no name needed in that round.
fn is_done(target: &TargetStatus, round: u64) -> bool {
    target.report.is_some_and(|report| report.swept >= round)
}

/// What two rounds have taken away, in one line.
pub(super) fn removed(before: &ChunksStatus, after: &ChunksStatus) -> String {
    let ((chunks, bytes), (chunks_left, bytes_left)) = (before.held(), after.held());
    match (chunks.saturating_sub(chunks_left), bytes.saturating_sub(bytes_left)) {
        (0, 0) => {
            "nothing was removed: some object needs all of what is stored, or it was put a moment ago\n"
                .into()
        }
        (chunks, bytes) => format!("removed {chunks} chunks, {bytes} bytes, copies counted\n"),
    }
}

/// A line for the cluster, and one for each target.
pub(super) fn standing(status: &ChunksStatus) -> String {
    let ((chunks, bytes), round) = (status.held(), status.round);
    let (targets, pending) =
        (status.targets.len(), status.targets.iter().filter(|target| !is_done(target, round)));
    let stage = match pending.count() {
        0 if status.is_adopted => format!("is done at all {targets} targets"),
        0 => "waits for partitions of names that do not go by it yet".to_owned(),
        pending => format!("is pending at {pending} of {targets} targets"),
    };
    let mut text = format!(
        "round {round} of garbage collection {stage}; {chunks} chunks, {bytes} bytes are stored, copies counted, by reports a second old\n"
    );
    for target in &status.targets {
        let told = match (target.live, target.report) {
            (false, _) => "is not there: it comes to it when it is back".into(),
            (true, None) => "has reported nothing to this leader yet".into(),
            (true, Some(report)) => {
                let TargetReport { chunks, bytes, swept, .. } = report;
                let stage = match is_done(target, round) {
                    true => "done".to_owned(),
                    false => format!("round {swept} is done, {round} is pending"),
                };
                format!("{chunks} chunks, {bytes} bytes, {stage}")
            }
        };
        writeln!(text, "  {} (group {}): {told}", target.name, target.group).expect("a string has room");
    }
    text
}
