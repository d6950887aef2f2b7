//! The verdict on a phase: whether the history of every key is linearizable, and the figures of the
//! phase.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use nicekv_history::{Action, Call, Verdict, check};
use nicekv_proto::Status;
use nicekv_proto::placement::KeyspaceSpec;

use super::node_changes::Operations;
use super::objects::Objects;
use super::schedule::{FaultEvent, Injected};
use super::transfers::Transfers;
use super::workload::{Key, KeyCall, Keys};
use crate::error::{LabError, Result};

/// Before a gap longer than this, the faults that may have caused it are printed.
const LONG_GAP: Duration = Duration::from_secs(2);
/// Faults that began at most this long before a gap may have caused it.
const BEFORE_GAP: Duration = Duration::from_secs(3);

/// The figures of one keyspace.
#[derive(Clone, Debug, Default)]
struct Tally {
    operations: usize,
    unknown: usize,
    /// The longest time without a successful update, on the boot-time clock.
    longest_gap_ns: Range<u64>,
    keys: usize,
    /// Keys that could not be read at the end.
    unreadable: usize,
    /// Keys whose history is not linearizable.
    violations: usize,
    /// Keys whose history is too long to be checked.
    undecided: usize,
}

impl Tally {
    fn of(calls: &[&Call], read_back: &[&Call]) -> Self {
        let unknown = |call: &&&Call| call.action != Action::Get && call.answered.is_none();
        Self {
            operations: calls.len(),
            unknown: calls.iter().filter(unknown).count(),
            longest_gap_ns: longest_gap(calls),
            keys: read_back.len(),
            unreadable: read_back.iter().filter(|call| call.answered.is_none()).count(),
            ..Self::default()
        }
    }

    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.unknown += other.unknown;
        if other.longest_gap() > self.longest_gap() {
            self.longest_gap_ns = other.longest_gap_ns.clone();
        }
        self.keys += other.keys;
        self.unreadable += other.unreadable;
        self.violations += other.violations;
        self.undecided += other.undecided;
    }

    fn longest_gap(&self) -> Duration {
        Duration::from_nanos(self.longest_gap_ns.end - self.longest_gap_ns.start)
    }

    fn is_failure(&self) -> bool {
        self.unreadable + self.violations + self.undecided > 0
    }

    fn calls(&self) -> String {
        format!("{} operations, {} unknown outcomes", self.operations, self.unknown)
    }

    fn verdict(&self) -> String {
        match (self.violations, self.unreadable, self.undecided) {
            (0, 0, 0) => "linearizable, all read back".into(),
            (violations, unreadable, undecided) => format!(
                "{violations} NOT LINEARIZABLE, {unreadable} not readable, {undecided} too long to check"
            ),
        }
    }
}

/// The figures of one phase, or of several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// The figures of each keyspace, with its name.
    tallies: Vec<(String, Tally)>,
    injected: Vec<Injected>,
    /// Changes by the operators.
    pub(crate) operations: Operations,
    pub(crate) objects: Option<Objects>,
    pub(crate) transfers: Transfers,
    /// Time from the end of the last fault until every partition had all its replicas.
    whole_after: Duration,
    phases: usize,
}

impl Report {
    pub(crate) fn is_failure(&self) -> bool {
        self.tallies.iter().any(|(_, tally)| tally.is_failure())
            || self.objects.as_ref().is_some_and(Objects::is_failure)
            || self.transfers.is_failure()
    }

    /// Adds a phase to the totals.
    pub(crate) fn add(&mut self, phase: &Self) {
        match self.tallies.is_empty() {
            true => self.tallies.clone_from(&phase.tallies),
            false => {
                let pairs = self.tallies.iter_mut().zip(&phase.tallies);
                pairs.for_each(|((_, sum), (_, tally))| sum.add(tally));
            }
        }
        self.transfers.add(&phase.transfers);
        if let Some(objects) = &phase.objects {
            self.objects.get_or_insert_default().add(objects);
        }
        self.injected.extend(&phase.injected);
        self.operations.node_changes += phase.operations.node_changes;
        self.operations.refused += phase.operations.refused;
        self.operations.partition_changes += phase.operations.partition_changes;
        self.whole_after = self.whole_after.max(phase.whole_after);
        self.phases += 1;
    }

    fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.tallies.iter().for_each(|(_, tally)| total.add(tally));
        total
    }

    fn faults(&self) -> Vec<FaultEvent> {
        self.injected.iter().map(|injected| injected.event).filter(|event| event.is_start()).collect()
    }

    /// A line for each keyspace with a long gap: the faults, and how long after the beginning of
    /// the gap they were injected.
    pub(crate) fn long_gaps(&self) -> impl Iterator<Item = String> {
        let long = self.tallies.iter().filter(|(_, tally)| tally.longest_gap() > LONG_GAP);
        long.map(|(name, tally)| {
            let Range { start, end } = tally.longest_gap_ns;
            let is_near = |injected: &&Injected| {
                injected.at_ns + BEFORE_GAP.as_nanos() as u64 >= start && injected.at_ns <= end
            };
            let line = |injected: &Injected| {
                let after_ms = (injected.at_ns as i64 - start as i64) / 1_000_000;
                format!("{after_ms} ms {}", injected.event)
            };
            let near: Vec<String> = self.injected.iter().filter(is_near).map(line).collect();
            let gap_ms = tally.longest_gap().as_millis();
            format!("keyspace {name} had no update for {gap_ms} ms: {}", near.join(", "))
        })
    }

    /// A line for each keyspace.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = String> {
        self.tallies.iter().map(|(name, tally)| {
            let gap_ms = tally.longest_gap().as_millis();
            let (calls, keys, verdict) = (tally.calls(), tally.keys, tally.verdict());
            format!("keyspace {name}: {calls}, longest gap {gap_ms} ms, {keys} keys: {verdict}")
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, faults) = (self.total(), self.faults());
        write!(formatter, "{}, {} faults", total.calls(), faults.len())?;
        if self.phases == 0 {
            let names: Vec<String> = faults.iter().map(FaultEvent::to_string).collect();
            write!(formatter, " ({})", names.join(", "))?;
        } else {
            write!(formatter, " in {} phases", self.phases)?;
        }
        let Operations { node_changes, refused, partition_changes } = self.operations;
        write!(formatter, ", {node_changes} node changes, {refused} refused")?;
        write!(formatter, ", {partition_changes} splits and merges")?;
        let (gap_ms, whole_ms) = (total.longest_gap().as_millis(), self.whole_after.as_millis());
        write!(formatter, ", longest gap {gap_ms} ms, recovered after {whole_ms} ms, ")?;
        write!(formatter, "{} keys: {}", total.keys, total.verdict())?;
        write!(formatter, "; {}", self.transfers)?;
        self.objects.as_ref().map_or(Ok(()), |objects| write!(formatter, "; {objects}"))
    }
}

/// Checks the calls of a phase and the reads after it.
pub(crate) fn judge(
    injected: Vec<Injected>,
    calls: Vec<KeyCall>,
    read_back: Vec<KeyCall>,
    whole_after: Duration,
    keys: Keys<'_>,
) -> Result<Report> {
    let tally = |(keyspace, spec): (usize, &KeyspaceSpec)| {
        (spec.name.clone(), Tally::of(&of_keyspace(&calls, keyspace), &of_keyspace(&read_back, keyspace)))
    };
    let mut tallies: Vec<_> = keys.keyspaces.iter().enumerate().map(tally).collect();
    let mut by_key: BTreeMap<Key, Vec<Call>> = BTreeMap::new();
    for (key, call) in calls.into_iter().chain(read_back) {
        by_key.entry(key).or_default().push(call);
    }
    for (key, calls) in by_key {
        let (_, tally) = &mut tallies[key.keyspace];
        match check(&calls) {
            Verdict::Linearizable => continue,
            Verdict::Violation => tally.violations += 1,
            Verdict::TooLarge => tally.undecided += 1,
        }
        let path = write_history(&keys.full_name(key), calls)?;
        eprintln!("nicekv: the history of {} is in {}", keys.full_name(key), path.display());
    }
    Ok(Report { tallies, injected, whole_after, ..Report::default() })
}

fn of_keyspace(calls: &[KeyCall], keyspace: usize) -> Vec<&Call> {
    calls.iter().filter(|(key, _)| key.keyspace == keyspace).map(|(_, call)| call).collect()
}

/// The longest time without a successful update.
fn longest_gap(calls: &[&Call]) -> Range<u64> {
    let mut successes_ns: Vec<u64> = calls
        .iter()
        .filter(|call| call.action != Action::Get)
        .filter_map(|call| call.answered.as_ref())
        .filter_map(|(at_ns, answer)| (answer.status == Status::Ok).then_some(*at_ns))
        .collect();
    successes_ns.sort_unstable();
    let gaps = successes_ns.windows(2).map(|pair| pair[0]..pair[1]);
    gaps.max_by_key(|gap| gap.end - gap.start).unwrap_or_default()
}

/// One call per line, in call order.
fn write_history(key: &str, mut calls: Vec<Call>) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("nicekv-{key}.txt"));
    calls.sort_by_key(|call| call.called);
    let write = || {
        let new = nicekv_runtime::NewFile::create_private(&path)?;
        let mut file = std::io::BufWriter::new(new.file());
        for Call { action, called, answered } in &calls {
            match answered {
                Some((at, answer)) => writeln!(file, "{called} {at} {action:?} => {answer:?}")?,
                None => writeln!(file, "{called} - {action:?} => unknown")?,
            }
        }
        file.flush()?;
        drop(file);
        new.finish()
    };
    write().map_err(LabError::io("write", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use nicekv_history::Answer;
    use nicekv_history::model::{Change, When};
    use nicekv_proto::placement::{KeyspaceDefaults, RingsBase};
    use nicekv_proto::{KeyspaceId, OpId};

    use crate::topology::Host;

    use super::*;

    fn answer(value: Option<&str>) -> Answer {
        let status = if value.is_some() { Status::Ok } else { Status::NotFound };
        let value = value.map(|value| value.as_bytes().to_vec());
        Answer {
            status,
            version: Answer::VERSION_NOT_TOLD,
            integer: 0,
            value,
            form: nicekv_proto::Form::Plain,
        }
    }

    fn set(value: &str, called: u64, answered: u64) -> Call {
        let change = Change::Set(value.into());
        let action = Action::Update { op: OpId::NONE, condition: When::Always, return_old: false, change };
        Call { action, called, answered: Some((answered, Answer { status: Status::Ok, ..answer(None) })) }
    }

    fn get(value: Option<&str>, called: u64) -> Call {
        Call { action: Action::Get, called, answered: Some((called + 1, answer(value))) }
    }

    fn keyspaces() -> Vec<KeyspaceSpec> {
        let rings = RingsBase::Network;
        let of = |id| KeyspaceDefaults { id: KeyspaceId(id), replicas: 3, partitions: 8, rings };
        let quorum = KeyspaceSpec::parse("quorum=replication=quorum,write-set=2", &of(1)).unwrap();
        vec![KeyspaceSpec::of(&of(0)), quorum]
    }

    const FIRST: Key = Key { keyspace: 0, index: 0 };
    const SECOND: Key = Key { keyspace: 1, index: 0 };

    #[test]
    fn lost_updates_and_unreadable_keys_are_failures() {
        let keyspaces = keyspaces();
        let keys = Keys { seed: std::process::id().into(), phase: 0, keyspaces: &keyspaces };
        let calls = || {
            vec![(FIRST, set("a", 1, 2)), (SECOND, set("b", 3, 5_000_003)), (FIRST, set("a", 4_000, 5_002))]
        };
        let judged = |read_back| judge(Vec::new(), calls(), read_back, Duration::ZERO, keys).unwrap();
        let good = judged(vec![(FIRST, get(Some("a"), 9_000_000)), (SECOND, get(Some("b"), 9_000_000))]);
        assert!(!good.is_failure());
        assert_eq!(
            good.total().longest_gap(),
            Duration::from_nanos(5_000),
            "keyspaces are judged separately"
        );
        assert_eq!(good.total().operations, 3);
        let lost = judged(vec![(FIRST, get(None, 9_000_000)), (SECOND, get(Some("b"), 9_000_000))]);
        assert_eq!((lost.total().violations, lost.total().unreadable), (1, 0));
        assert!(lost.to_string().contains("1 NOT LINEARIZABLE"), "{lost}");
        let lines: Vec<String> = lost.keyspaces().collect();
        assert!(lines[0].starts_with("keyspace default: 2 operations"), "{lines:?}");
        assert!(lines[0].contains("1 NOT LINEARIZABLE"), "{lines:?}");
        assert!(lines[1].starts_with("keyspace quorum: 1 operations"), "{lines:?}");
        assert!(lines[1].ends_with("1 keys: linearizable, all read back"), "{lines:?}");
        let path = std::env::temp_dir().join(format!("nicekv-{}.txt", keys.full_name(FIRST)));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        std::fs::remove_file(path).unwrap();
        let silent = Call { answered: None, ..get(None, 9_000_000) };
        let unread = judged(vec![(FIRST, silent), (SECOND, get(Some("b"), 9_000_000))]);
        assert_eq!((unread.total().violations, unread.total().unreadable), (0, 1));
        assert_eq!(good.long_gaps().count(), 0);
        let host = Host::Node(1);
        let events = [
            (1, FaultEvent::Kill(host)),
            (4_000_000_000, FaultEvent::Cut(host, true, true)),
            (4_500_000_000, FaultEvent::Heal(host)),
        ];
        let injected = events.map(|(at_ns, event)| Injected { at_ns, event }).to_vec();
        let calls = vec![(FIRST, set("a", 1, 4_100_000_000)), (FIRST, set("b", 2, 7_000_000_000))];
        let slow = judge(injected, calls, Vec::new(), Duration::ZERO, keys).unwrap();
        let lines: Vec<String> = slow.long_gaps().collect();
        assert_eq!(
            lines,
            ["keyspace default had no update for 2900 ms: -100 ms cut node-1, 400 ms heal node-1"]
        );
        assert_eq!(slow.faults().len(), 2, "the end of a fault is not a fault");
        let mut sum = Report::default();
        sum.add(&good);
        sum.add(&unread);
        assert!(sum.is_failure() && sum.total().keys == 4, "{sum}");
    }
}
