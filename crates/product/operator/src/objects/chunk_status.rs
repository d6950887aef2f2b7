//! Describes stored chunks and garbage collection in words.

use nicekv_metadata::{ChunksStatus, TargetReport, TargetStatus};
use std::fmt::Write;

/// Stored chunks in one line.
pub fn describe_chunks(status: &ChunksStatus) -> String {
    let ((chunks, bytes), targets) = (status.held(), status.targets.len());
    let moving = if status.is_moving { ", some are moving to other groups" } else { "" };
    let scarce = status.under_replicated;
    // After a restart, a target counts its chunks as unsettled until it has checked them.
    let unknown = match status.unsettled {
        0 => String::new(),
        unsettled => format!(", {unsettled} copies not checked yet"),
    };
    format!(
        "objects {chunks} chunks on {targets} targets, {} with copies; {scarce} with too few copies{unknown}{moving}",
        nicekv_fields::bytes(bytes)
    )
}

/// Whether the target has deleted the garbage of that round.
fn is_done(target: &TargetStatus, round: u64) -> bool {
    target.report.is_some_and(|report| report.swept >= round)
}

/// Chunks that garbage collection has removed, in one line.
pub(super) fn removed(before: &ChunksStatus, after: &ChunksStatus) -> String {
    let ((chunks, bytes), (chunks_left, bytes_left)) = (before.held(), after.held());
    match (chunks.saturating_sub(chunks_left), bytes.saturating_sub(bytes_left)) {
        (0, 0) => "nothing removed: every chunk is referenced or was stored just now\n".into(),
        (chunks, bytes) => format!("removed {chunks} chunks, {bytes} bytes, including copies\n"),
    }
}

/// One line for the cluster and one for each target.
pub(super) fn describe_round(status: &ChunksStatus) -> String {
    let ((chunks, bytes), round) = (status.held(), status.round);
    let (targets, pending) =
        (status.targets.len(), status.targets.iter().filter(|target| !is_done(target, round)));
    let stage = match pending.count() {
        0 if status.is_adopted => format!("is done on all {targets} targets"),
        0 => "waits for partitions that have not adopted it".to_owned(),
        pending => format!("is pending on {pending} of {targets} targets"),
    };
    let mut text = format!(
        "garbage collection round {round} {stage}; {chunks} chunks, {bytes} bytes stored, including copies\n"
    );
    for target in &status.targets {
        let state = match (target.live, target.report) {
            (false, _) => "down: collects when it is back".into(),
            (true, None) => "no report to this leader yet".into(),
            (true, Some(report)) => {
                let TargetReport { chunks, bytes, swept, .. } = report;
                let stage = match is_done(target, round) {
                    true => "done".to_owned(),
                    false => format!("round {swept} done, {round} pending"),
                };
                format!("{chunks} chunks, {bytes} bytes, {stage}")
            }
        };
        writeln!(text, "  {} (group {}): {state}", target.name, target.group)
            .expect("writing to a string cannot fail");
    }
    text
}
