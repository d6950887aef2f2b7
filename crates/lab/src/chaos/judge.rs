//! What a phase has shown.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use nicekv_history::{Action, Call, Verdict, check};
use nicekv_wire::Status;

use super::schedule::Deed;
use super::workload::KeyCall;
use crate::error::{LabError, Result};

/// Of one phase, or of several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    operations: usize,
    unknown: usize,
    faults: Vec<Deed>,
    /// For which no update succeeded.
    longest_gap: Duration,
    /// From the last fault to the last replica in its place.
    whole_after: Duration,
    keys: usize,
    /// Keys that could not be read at the end.
    unreadable: usize,
    /// Keys whose history has no order.
    violations: usize,
    /// Keys whose history was too long to be judged.
    undecided: usize,
    phases: usize,
}

impl Report {
    pub(crate) fn is_failure(&self) -> bool {
        self.unreadable + self.violations + self.undecided > 0
    }

    /// Adds a phase to a sum.
    pub(crate) fn add(&mut self, phase: &Self) {
        self.operations += phase.operations;
        self.unknown += phase.unknown;
        self.faults.extend(&phase.faults);
        self.longest_gap = self.longest_gap.max(phase.longest_gap);
        self.whole_after = self.whole_after.max(phase.whole_after);
        self.keys += phase.keys;
        self.unreadable += phase.unreadable;
        self.violations += phase.violations;
        self.undecided += phase.undecided;
        self.phases += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, unknown, faults, longest_gap, whole_after, keys, .. } = self;
        write!(formatter, "{operations} operations, {unknown} unknown outcomes, {} faults", faults.len())?;
        if self.phases == 0 {
            let names: Vec<String> = faults.iter().map(Deed::to_string).collect();
            write!(formatter, " ({})", names.join(", "))?;
        } else {
            write!(formatter, " in {} phases", self.phases)?;
        }
        let (gap_ms, whole_ms) = (longest_gap.as_millis(), whole_after.as_millis());
        write!(formatter, ", longest gap {gap_ms} ms, whole after {whole_ms} ms, {keys} keys: ")?;
        match (self.violations, self.unreadable, self.undecided) {
            (0, 0, 0) => formatter.write_str("linearizable, all read back"),
            (violations, unreadable, undecided) => write!(
                formatter,
                "{violations} NOT LINEARIZABLE, {unreadable} not readable, {undecided} too long to be judged"
            ),
        }
    }
}

/// Judges the calls of a phase and the reads after it. `name`: of the key with an index.
pub(crate) fn judge(
    faults: Vec<Deed>,
    calls: Vec<KeyCall>,
    read_back: Vec<KeyCall>,
    whole_after: Duration,
    name: impl Fn(usize) -> String,
) -> Result<Report> {
    let unknown = |(_, call): &&KeyCall| call.action != Action::Get && call.answered.is_none();
    let mut report = Report {
        operations: calls.len(),
        unknown: calls.iter().filter(unknown).count(),
        faults,
        longest_gap: longest_gap(&calls),
        whole_after,
        keys: read_back.len(),
        unreadable: read_back.iter().filter(|(_, call)| call.answered.is_none()).count(),
        ..Report::default()
    };
    let mut by_key: BTreeMap<usize, Vec<Call>> = BTreeMap::new();
    for (index, call) in calls.into_iter().chain(read_back) {
        by_key.entry(index).or_default().push(call);
    }
    for (index, calls) in by_key {
        match check(&calls) {
            Verdict::Linearizable => continue,
            Verdict::Violation => report.violations += 1,
            Verdict::TooLarge => report.undecided += 1,
        }
        let path = write_down(&name(index), calls)?;
        eprintln!("nicekv: the history of {} is in {}", name(index), path.display());
    }
    Ok(report)
}

/// The longest time without an update that succeeded.
fn longest_gap(calls: &[KeyCall]) -> Duration {
    let mut successes_ns: Vec<u64> = calls
        .iter()
        .filter(|(_, call)| call.action != Action::Get)
        .filter_map(|(_, call)| call.answered.as_ref())
        .filter_map(|(at_ns, answer)| (answer.status == Status::Ok).then_some(*at_ns))
        .collect();
    successes_ns.sort_unstable();
    let gaps = successes_ns.windows(2).map(|pair| pair[1] - pair[0]);
    Duration::from_nanos(gaps.max().unwrap_or(0))
}

/// One call a line, in the order in which they were made.
fn write_down(key: &str, mut calls: Vec<Call>) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("nicekv-{key}.txt"));
    calls.sort_by_key(|call| call.called);
    let write = || {
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
        for Call { action, called, answered } in &calls {
            match answered {
                Some((at, answer)) => writeln!(file, "{called} {at} {action:?} => {answer:?}")?,
                None => writeln!(file, "{called} - {action:?} => unknown")?,
            }
        }
        file.flush()
    };
    write().map_err(LabError::io("write", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use nicekv_history::Answer;
    use nicekv_history::model::{Change, When};
    use nicekv_wire::OpId;

    use super::*;

    fn told(value: Option<&str>) -> Answer {
        let status = if value.is_some() { Status::Ok } else { Status::NotFound };
        let value = value.map(|value| value.as_bytes().to_vec());
        Answer { status, version: Answer::VERSION_NOT_TOLD, integer: 0, value }
    }

    fn set(value: &str, called: u64, answered: u64) -> Call {
        let change = Change::Set(value.into());
        let action = Action::Update { op: OpId::NONE, condition: When::Always, return_old: false, change };
        Call { action, called, answered: Some((answered, Answer { status: Status::Ok, ..told(None) })) }
    }

    fn get(value: Option<&str>, called: u64) -> Call {
        Call { action: Action::Get, called, answered: Some((called + 1, told(value))) }
    }

    #[test]
    fn a_lost_update_and_a_key_that_cannot_be_read_are_failures() {
        let calls = || vec![(0, set("a", 1, 2)), (1, set("b", 3, 5_000_003))];
        let judged = |read_back| {
            judge(Vec::new(), calls(), read_back, Duration::ZERO, |index| {
                format!("judge-test-{}-{index}", std::process::id())
            })
            .unwrap()
        };
        let good = judged(vec![(0, get(Some("a"), 9_000_000)), (1, get(Some("b"), 9_000_000))]);
        assert!(!good.is_failure());
        assert_eq!(good.longest_gap, Duration::from_nanos(5_000_001));
        let lost = judged(vec![(0, get(None, 9_000_000)), (1, get(Some("b"), 9_000_000))]);
        assert_eq!((lost.violations, lost.unreadable), (1, 0));
        assert!(lost.to_string().contains("1 NOT LINEARIZABLE"), "{lost}");
        let path = std::env::temp_dir().join(format!("nicekv-judge-test-{}-0.txt", std::process::id()));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        std::fs::remove_file(path).unwrap();
        let silent = Call { answered: None, ..get(None, 9_000_000) };
        let unread = judged(vec![(0, silent), (1, get(Some("b"), 9_000_000))]);
        assert_eq!((unread.violations, unread.unreadable), (0, 1));
    }
}
