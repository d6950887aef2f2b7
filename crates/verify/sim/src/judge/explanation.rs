//! Prints the part of a history that is not linearizable.

use crate::checker::{Action, Answer, Call, Verdict, check};
use nicekv_proto::Form;

/// Maximum calls that a report lists.
pub(crate) const LISTED_MAX: usize = 40;

/// The calls up to the answer that no order explains: the last [`LISTED_MAX`] of them.
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

/// The history as it was known at time `end`.
fn until(calls: &[Call], end: u64) -> Vec<Call> {
    let mut calls: Vec<Call> = calls.iter().filter(|call| call.called <= end).cloned().collect();
    for call in &mut calls {
        call.answered.take_if(|(at, _)| *at > end);
    }
    calls
}

fn line(call: &Call) -> String {
    let action = action(&call.action);
    match &call.answered {
        None => format!("{:6}         {action}: ?", call.called),
        Some((at, told)) => format!("{:6} {at:6}  {action}{}", call.called, answer(told)),
    }
}

pub(crate) fn action(action: &Action) -> String {
    match action {
        Action::Get => "get".into(),
        Action::Update { op, condition, return_old, change } => {
            let old = if *return_old { ", returning the old" } else { "" };
            format!("{op}: {condition:?} {change:?}{old}")
        }
    }
}

pub(crate) fn answer(Answer { status, version, integer, value, form }: &Answer) -> String {
    let value = value.as_deref().map(|value| String::from_utf8_lossy(value).into_owned());
    let form = if *form == Form::Plain { String::new() } else { format!(" {form:?}") };
    format!(": {status:?} {version} {integer} {value:?}{form}")
}
