//! Where chunks go: as the paper's tool draws it, or by a hash of theirs.

use super::setup::{GROUPS, REPLICAS, TARGETS};
use crate::workload::Random;

/// Of each target, on the ring.
const POINTS: usize = 128;
/// Of the ring's points, which are the same in all runs.
const RING_SEED: u64 = 0x7265_706c_6963_6173;

/// What the paper calls consistent hashing is a random choice that never falls on the same targets twice in a row.
pub(crate) enum Places {
    Random,
    /// A chunk's hash is a point of the ring; its targets are the next ones on it.
    Ring(Vec<(u64, u16)>),
}

impl Places {
    pub(crate) fn new(is_hashed: bool) -> Self {
        if !is_hashed {
            return Self::Random;
        }
        let mut random = Random(RING_SEED);
        let mut points: Vec<(u64, u16)> =
            (0..TARGETS).flat_map(|target| [target; POINTS]).map(|target| (random.next(), target)).collect();
        points.sort_unstable();
        Self::Ring(points)
    }

    /// The targets of a chunk of an initiator whose last one has gone to those.
    pub(crate) fn targets(&self, random: &mut Random, last: &[u16]) -> [u16; REPLICAS] {
        let mut chosen = [TARGETS; REPLICAS];
        let mut count = 0;
        let mut take = |target: u16| {
            if count < REPLICAS && !chosen.contains(&target) {
                chosen[count] = target;
                count += 1;
            }
            count == REPLICAS
        };
        match self {
            Self::Random => loop {
                let target = random.below(TARGETS.into()) as u16;
                if !last.contains(&target) && take(target) {
                    break;
                }
            },
            Self::Ring(points) => {
                let hash = random.next();
                let first = points.partition_point(|(point, _)| *point < hash);
                points[first..].iter().chain(points).any(|(_, target)| take(*target));
            }
        }
        chosen
    }

    /// The negotiating group of a chunk, likewise.
    pub(crate) fn group(&self, random: &mut Random, last: Option<u16>) -> u16 {
        let mut draw = || random.below(GROUPS.into()) as u16;
        let group = draw();
        match (self, last) {
            (Self::Random, Some(last)) if group == last => {
                let again = draw();
                if again == last { (last + 1) % GROUPS } else { again }
            }
            _ => group,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(places: &Places) -> (Vec<u32>, u32) {
        let (mut random, mut counts, mut repeated) = (Random(1), vec![0; TARGETS.into()], 0);
        let mut last = [TARGETS; REPLICAS];
        for _ in 0..30_000 {
            let chosen = places.targets(&mut random, &last);
            assert!(chosen[0] != chosen[1] && chosen[0] != chosen[2] && chosen[1] != chosen[2]);
            repeated += chosen.iter().filter(|target| last.contains(target)).count() as u32;
            chosen.iter().for_each(|target| counts[usize::from(*target)] += 1);
            last = chosen;
        }
        (counts, repeated)
    }

    #[test]
    fn random_targets_are_even_and_never_those_of_before_and_hashed_ones_are_neither() {
        let (even, repeated) = shares(&Places::new(false));
        assert!(even.iter().all(|count| (850..1_150).contains(count)) && repeated == 0, "{even:?}");
        let (uneven, repeated) = shares(&Places::new(true));
        assert!(uneven.iter().all(|count| (600..1_500).contains(count)), "{uneven:?}");
        assert!(uneven.iter().any(|count| *count > 1_150) && repeated > 0);
    }

    #[test]
    fn a_group_follows_another_one_unless_hashes_say_so() {
        let repeated = |places: &Places| {
            let (mut random, mut last, mut repeated) = (Random(1), None, 0);
            for _ in 0..10_000 {
                let group = places.group(&mut random, last);
                repeated += u32::from(last == Some(group));
                last = Some(group);
            }
            repeated
        };
        assert_eq!(repeated(&Places::new(false)), 0);
        assert!((900..1_100).contains(&repeated(&Places::new(true))));
    }
}
