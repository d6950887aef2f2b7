//! Checks that transactions, and calls on one of their keys, are strictly serializable.

use super::Report;
use super::explanation::{self, LISTED_MAX};
use crate::checker::Verdict;
use crate::checker::together::{Step, Together, Told, check_together};
use crate::client::transactions::together;
use crate::cluster::Cluster;

/// Judges the calls on co-located keys and the clients' transactions.
pub(crate) fn judge(cluster: &Cluster, report: &mut Report) {
    let keys = together(&cluster.scenario().workload.keys);
    if keys == 0 {
        return;
    }
    let mut calls: Vec<Together> = Vec::new();
    for client in cluster.clients() {
        let singles = client.history().filter(|call| call.key < keys);
        calls.extend(singles.map(|call| Together::of_one(call.key, &call.call)));
        calls.extend(client.transacting.calls().cloned());
    }
    report.calls += calls.len();
    report.unknown += calls.iter().filter(|call| call.answered.is_none()).count();
    match check_together(&calls, keys) {
        Verdict::Linearizable => {}
        Verdict::Violation => {
            let listed = list(&calls, keys);
            report.violations.push(format!("the history of {keys} keys is not linearizable (L): {listed}"));
        }
        Verdict::TooLarge => report.too_large += 1,
    }
}

/// The last calls up to the answer that no order explains.
fn list(calls: &[Together], keys: usize) -> String {
    let mut answers: Vec<u64> = calls.iter().filter_map(|call| Some(call.answered.as_ref()?.0)).collect();
    answers.sort_unstable();
    let explained = |end: &u64| check_together(&until(calls, *end), keys) == Verdict::Linearizable;
    let end = answers.get(answers.partition_point(explained)).copied().unwrap_or(u64::MAX);
    let mut calls = until(calls, end);
    calls.sort_by_key(|call| call.called);
    let skipped = calls.len().saturating_sub(LISTED_MAX);
    calls[skipped..].iter().map(|call| format!("\n  {}", line(call))).collect()
}

/// The history as it was known at time `end`.
fn until(calls: &[Together], end: u64) -> Vec<Together> {
    let mut calls: Vec<Together> = calls.iter().filter(|call| call.called <= end).cloned().collect();
    for call in &mut calls {
        call.answered.take_if(|(at, _)| *at > end);
    }
    calls
}

fn line(call: &Together) -> String {
    let mut line = format!("{:6} ", call.called);
    let mut answers = match &call.answered {
        Some((at, Told::Taken(answers))) => {
            line += &format!("{at:6} ");
            answers.iter()
        }
        Some((at, Told::Ended)) => {
            line += &format!("{at:6} ended");
            [].iter()
        }
        None => {
            line += "     ?";
            [].iter()
        }
    };
    for step in &call.steps {
        match step {
            Step::Require { key, condition } => line += &format!(" | key {key} {condition:?}"),
            Step::Run { program, keys: (from, to), unix_ms, .. } => {
                let answer = answers.next().and_then(|answer| answer.value.as_deref()).unwrap_or_default();
                let answer = answer.escape_ascii();
                line += &format!(" | {program:?} of keys {from} and {to} at {unix_ms}: {answer}");
            }
            Step::Take { key, action } => {
                let answer = answers.next().map(explanation::answer).unwrap_or_default();
                line += &format!(" | key {key} {}{answer}", explanation::action(action));
            }
        }
    }
    line
}
