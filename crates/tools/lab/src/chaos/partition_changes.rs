//! An operator who splits and merges partitions during faults (`nicekv partition split | merge`,
//! R17). Commands are retried until they succeed.
//!
//! If a keyspace has more partitions than at the beginning, two adjacent ones are merged; otherwise
//! one is split. So their number stays about the same.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_proto::placement::{KeyspaceSpec, Protocol};
use nicekv_testkit::Random;
use serde_json::Value;

use super::node_changes::{PAUSE, TIMEOUT};
use crate::error::Result;
use crate::test_lab::TestLab;
use crate::wait::{Retry, sleep_until};

/// Splits and merges in a phase.
const CHANGES: usize = 3;

/// A partition as `nicekv partition list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListedPartition {
    id: u64,
    keyspace: String,
    /// Its first and its last vnode.
    vnodes: (u64, u64),
    /// Whether it is being split or merged.
    is_changing: bool,
}

/// The times of the changes of a phase.
#[derive(Clone, Debug)]
pub(crate) struct PartitionChanges {
    at: Vec<Duration>,
    random: Random,
}

impl PartitionChanges {
    /// Draws the times for a phase of `span_ms`.
    pub(crate) fn draw(random: &mut Random, span_ms: u64) -> Self {
        let mut at: Vec<_> =
            (0..CHANGES).map(|_| Duration::from_millis(random.between(0, span_ms))).collect();
        at.sort_unstable();
        Self { at, random: Random::new(random.bits()) }
    }

    /// Makes the changes at their times. Returns how many were made.
    pub(crate) fn run(mut self, lab: &TestLab, begun: Instant, interrupted: &AtomicBool) -> Result<usize> {
        let can_change = |spec: &&KeyspaceSpec| !matches!(spec.protocol, Protocol::Quorum { .. });
        let keyspaces: Vec<_> = lab.keyspaces.iter().filter(can_change).collect();
        if keyspaces.is_empty() {
            return Ok(0);
        }
        for at in &self.at {
            sleep_until(begun + *at, interrupted)?;
            let keyspace = keyspaces[self.random.below(keyspaces.len() as u64) as usize];
            let retry = Retry::from(Instant::now(), TIMEOUT, PAUSE);
            retry.run(interrupted, || change(lab, keyspace, &mut self.random))?;
        }
        Ok(self.at.len())
    }
}

/// Splits or merges partitions. Each attempt draws other ones.
fn change(
    lab: &TestLab,
    keyspace: &KeyspaceSpec,
    random: &mut Random,
) -> Result<std::result::Result<(), String>> {
    let mut partitions = match list(lab)? {
        Ok(partitions) => partitions,
        Err(output) => return Ok(Err(output)),
    };
    partitions.retain(|partition| partition.keyspace == keyspace.name);
    let Some(words) = draw_command(&partitions, keyspace.partitions as usize, random) else {
        return Ok(Err("all partitions are being split or merged".into()));
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (succeeded, output) = lab.nicekv(&words)?;
    Ok(if succeeded { Ok(()) } else { Err(output) })
}

/// The command for a keyspace that had `usual` partitions at the beginning; `partitions` are in the
/// order of their vnodes.
fn draw_command(partitions: &[ListedPartition], usual: usize, random: &mut Random) -> Option<Vec<String>> {
    let mut words = match partitions.len() > usual {
        true => {
            let pairs = partitions.windows(2);
            let free: Vec<_> =
                pairs.filter(|pair| pair.iter().all(|partition| !partition.is_changing)).collect();
            let pair = free.get(random.below(free.len().max(1) as u64) as usize)?;
            vec!["merge".into(), pair[0].id.to_string(), pair[1].id.to_string()]
        }
        false => {
            let may_be_split = |partition: &&ListedPartition| {
                !partition.is_changing && partition.vnodes.0 < partition.vnodes.1
            };
            let free: Vec<_> = partitions.iter().filter(may_be_split).collect();
            let ListedPartition { id, vnodes: (first, last), .. } =
                free.get(random.below(free.len().max(1) as u64) as usize)?;
            let at = random.between(first + 1, *last);
            vec!["split".into(), id.to_string(), "--at".into(), format!("{at:04x}")]
        }
    };
    words.insert(0, "partition".into());
    words.push("--no-wait".into());
    Some(words)
}

/// All partitions, or the reason why they cannot be listed now.
fn list(lab: &TestLab) -> Result<std::result::Result<Vec<ListedPartition>, String>> {
    let (succeeded, output) = lab.nicekv(&["partition", "list", "--json"])?;
    if !succeeded {
        return Ok(Err(output));
    }
    let listed: Vec<Value> = serde_json::from_str(&output).unwrap_or_default();
    let read = |partition: &Value| {
        let vnode = |name: &str| u64::from_str_radix(partition[name].as_str()?, 16).ok();
        Some(ListedPartition {
            id: partition["id"].as_u64()?,
            keyspace: partition["keyspace"].as_str()?.into(),
            vnodes: (vnode("first_vnode")?, vnode("last_vnode")?),
            is_changing: !partition["reshaping"].is_null(),
        })
    };
    let partitions: Option<Vec<_>> = listed.iter().map(read).collect();
    Ok(partitions.filter(|all| !all.is_empty()).ok_or(output))
}

/// Waits until no partition is being split or merged.
pub(crate) fn wait_until_done(lab: &TestLab, interrupted: &AtomicBool) -> Result<()> {
    Retry::from(Instant::now(), TIMEOUT, PAUSE).run(interrupted, || {
        let changing = list(lab)?.map(|all| all.iter().filter(|partition| partition.is_changing).count());
        Ok(match changing {
            Ok(0) => Ok(()),
            Ok(changing) => Err(format!("{changing} partitions are still being split or merged")),
            Err(output) => Err(output),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(id: u64, vnodes: (u64, u64), is_changing: bool) -> ListedPartition {
        ListedPartition { id, keyspace: "default".into(), vnodes, is_changing }
    }

    #[test]
    fn surplus_partitions_are_merged_and_others_split() {
        let partitions = [
            partition(7, (0, 0x0fff), true),
            partition(9, (0x1000, 0x1000), false),
            partition(8, (0x1001, 0xffff), false),
        ];
        let mut random = Random::new(1);
        assert_eq!(
            draw_command(&partitions, 2, &mut random).unwrap(),
            ["partition", "merge", "9", "8", "--no-wait"]
        );
        for _ in 0..100 {
            let split = draw_command(&partitions, 3, &mut random).unwrap();
            assert_eq!(split[..4], ["partition", "split", "8", "--at"], "a single vnode cannot be split");
            let at = u64::from_str_radix(&split[4], 16).unwrap();
            assert!((0x1002..=0xffff).contains(&at), "{at:x}");
        }
        assert_eq!(draw_command(&partitions[..1], 1, &mut random), None);
        assert_eq!(draw_command(&partitions[..2], 1, &mut random), None);
    }
}
