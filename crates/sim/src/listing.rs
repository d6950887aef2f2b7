//! A history that cannot be explained, for people.

use crate::checker::{Action, Call, Verdict, check};

/// Calls of a history that a report lists.
const LISTED_MAX: usize = 40;

/// The calls up to the answer that cannot be explained, the last [`LISTED_MAX`] of them.
pub(crate) fn list(calls: &[Call]) -> String {
    let mut answers: Vec<u64> = calls.iter().filter_map(|call| Some(call.answered.as_ref()?.0)).collect();
    answers.sort_unstable();
    let first = answers.partition_point(|end| check(&until(calls, *end)) == Verdict::Linearizable);
    let end = answers.get(first).copied().unwrap_or(u64::MAX);
    let mut calls = until(calls, end);
    calls.sort_by_key(|call| call.called);
    let skipped = calls.len().saturating_sub(LISTED_MAX);
    calls[skipped..].iter().map(|call| format!("\n  {}", line(call))).collect()
}

/// What was known at `end`.
fn until(calls: &[Call], end: u64) -> Vec<Call> {
    let mut calls: Vec<Call> = calls.iter().filter(|call| call.called <= end).cloned().collect();
    for call in &mut calls {
        call.answered.take_if(|(at, _)| *at > end);
    }
    calls
}

fn line(call: &Call) -> String {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let action = match &call.action {
        Action::Get => "get".into(),
        Action::Update { op, condition, return_old, change } => {
            let old = if *return_old { ", returning the old" } else { "" };
            format!("{op}: {condition:?} {change:?}{old}")
        }
    };
    let Some((at, answer)) = &call.answered else { return format!("{:6}         {action}: ?", call.called) };
    let (status, version, integer) = (answer.status, answer.version, answer.integer);
    let value = answer.value.as_deref().map(text);
    format!("{:6} {at:6}  {action}: {status:?} {version} {integer} {value:?}", call.called)
}
