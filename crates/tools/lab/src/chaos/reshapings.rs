//! Partitions that are split and merged while faults go on (`nicekv partition split | merge`, R17), by an operator who asks until he is heard.
//!
//! Where a keyspace has more partitions than in the beginning two adjacent ones are merged, elsewhere one is split: so there are always some of other
//! shapes, and never many.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nicekv_proto::placement::{KeyspaceSpec, Protocol};
use nicekv_testkit::Random;
use serde_json::Value;

use super::changes::{PAUSE, TIMEOUT, nicekv};
use super::sleep_until;
use crate::error::Result;
use crate::own::OwnLab;
use crate::patience::Patience;

/// In a phase.
const RESHAPINGS: usize = 3;

/// A partition as `nicekv partition list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    id: u64,
    keyspace: String,
    /// Its first vnode, and its last one.
    vnodes: (u64, u64),
    /// Whether it is to be split or merged already.
    is_taken: bool,
}

/// When the operator asks, and what he draws by.
#[derive(Clone, Debug)]
pub(crate) struct Reshapings {
    at: Vec<Duration>,
    random: Random,
}

impl Reshapings {
    /// In a phase of so many milliseconds.
    pub(crate) fn draw(random: &mut Random, span_ms: u64) -> Self {
        let mut at: Vec<_> =
            (0..RESHAPINGS).map(|_| Duration::from_millis(random.between(0, span_ms))).collect();
        at.sort_unstable();
        Self { at, random: Random::new(random.bits()) }
    }

    /// Asks when it is time, and again until it is heard. How often it was.
    pub(crate) fn make(mut self, lab: &OwnLab, begun: Instant, interrupted: &AtomicBool) -> Result<usize> {
        let is_reshaped = |spec: &&KeyspaceSpec| !matches!(spec.protocol, Protocol::Quorum { .. });
        let keyspaces: Vec<_> = lab.keyspaces.iter().filter(is_reshaped).collect();
        if keyspaces.is_empty() {
            return Ok(0);
        }
        for at in &self.at {
            sleep_until(begun + *at, interrupted)?;
            let keyspace = keyspaces[self.random.below(keyspaces.len() as u64) as usize];
            let patience = Patience::from(Instant::now(), TIMEOUT, PAUSE);
            patience.retry(interrupted, || ask(lab, keyspace, &mut self.random))?;
        }
        Ok(self.at.len())
    }
}

/// Otherwise it is to be asked again, perhaps for something else.
fn ask(
    lab: &OwnLab,
    keyspace: &KeyspaceSpec,
    random: &mut Random,
) -> Result<std::result::Result<(), String>> {
    let mut partitions = match shown(lab)? {
        Ok(partitions) => partitions,
        Err(said) => return Ok(Err(said)),
    };
    partitions.retain(|partition| partition.keyspace == keyspace.name);
    let Some(words) = words(&partitions, keyspace.partitions as usize, random) else {
        return Ok(Err("all partitions are to be split or merged already".into()));
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (succeeded, said) = nicekv(lab, &words)?;
    Ok(if succeeded { Ok(()) } else { Err(said) })
}

/// What to ask for, of a keyspace that began with so many partitions; these are in the order of their vnodes.
fn words(partitions: &[Shown], usual: usize, random: &mut Random) -> Option<Vec<String>> {
    let mut words = match partitions.len() > usual {
        true => {
            let pairs = partitions.windows(2);
            let free: Vec<_> =
                pairs.filter(|pair| pair.iter().all(|partition| !partition.is_taken)).collect();
            let pair = free.get(random.below(free.len().max(1) as u64) as usize)?;
            vec!["merge".into(), pair[0].id.to_string(), pair[1].id.to_string()]
        }
        false => {
            let may_be_split =
                |partition: &&Shown| !partition.is_taken && partition.vnodes.0 < partition.vnodes.1;
            let free: Vec<_> = partitions.iter().filter(may_be_split).collect();
            let Shown { id, vnodes: (first, last), .. } =
                free.get(random.below(free.len().max(1) as u64) as usize)?;
            let at = random.between(first + 1, *last);
            vec!["split".into(), id.to_string(), "--at".into(), format!("{at:04x}")]
        }
    };
    words.insert(0, "partition".into());
    words.push("--no-wait".into());
    Some(words)
}

/// All partitions; otherwise why they cannot be shown now.
fn shown(lab: &OwnLab) -> Result<std::result::Result<Vec<Shown>, String>> {
    let (succeeded, said) = nicekv(lab, &["partition", "list", "--json"])?;
    if !succeeded {
        return Ok(Err(said));
    }
    let listed: Vec<Value> = serde_json::from_str(&said).unwrap_or_default();
    let shown = |partition: &Value| {
        let vnode = |name: &str| u64::from_str_radix(partition[name].as_str()?, 16).ok();
        Some(Shown {
            id: partition["id"].as_u64()?,
            keyspace: partition["keyspace"].as_str()?.into(),
            vnodes: (vnode("first_vnode")?, vnode("last_vnode")?),
            is_taken: !partition["reshaping"].is_null(),
        })
    };
    let partitions: Option<Vec<_>> = listed.iter().map(shown).collect();
    Ok(partitions.filter(|all| !all.is_empty()).ok_or(said))
}

/// Waits until nothing is to be split or merged any more.
pub(crate) fn wait_until_done(lab: &OwnLab, interrupted: &AtomicBool) -> Result<()> {
    Patience::from(Instant::now(), TIMEOUT, PAUSE).retry(interrupted, || {
        let taken = shown(lab)?.map(|all| all.iter().filter(|partition| partition.is_taken).count());
        Ok(match taken {
            Ok(0) => Ok(()),
            Ok(taken) => Err(format!("{taken} partitions are still to be split or merged")),
            Err(said) => Err(said),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(id: u64, vnodes: (u64, u64), is_taken: bool) -> Shown {
        Shown { id, keyspace: "default".into(), vnodes, is_taken }
    }

    #[test]
    fn what_is_more_than_usual_is_merged_and_else_something_is_split() {
        let partitions = [
            partition(7, (0, 0x0fff), true),
            partition(9, (0x1000, 0x1000), false),
            partition(8, (0x1001, 0xffff), false),
        ];
        let mut random = Random::new(1);
        assert_eq!(
            words(&partitions, 2, &mut random).unwrap(),
            ["partition", "merge", "9", "8", "--no-wait"]
        );
        for _ in 0..100 {
            let split = words(&partitions, 3, &mut random).unwrap();
            assert_eq!(split[..4], ["partition", "split", "8", "--at"], "one vnode is not split");
            let at = u64::from_str_radix(&split[4], 16).unwrap();
            assert!((0x1002..=0xffff).contains(&at), "{at:x}");
        }
        assert_eq!(words(&partitions[..1], 1, &mut random), None);
        assert_eq!(words(&partitions[..2], 1, &mut random), None);
    }
}
