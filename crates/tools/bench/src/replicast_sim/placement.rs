//! The targets of chunks: drawn at random as by the paper's tool, or by a hash of the chunk.

use super::setup::{GROUPS, REPLICAS, TARGETS};
use crate::splitmix::Random;

/// Points of each target on the ring.
const POINTS: usize = 128;
/// Seed of the ring's points, which are the same in all runs.
const RING_SEED: u64 = 0x7265_706c_6963_6173;

/// What the paper calls consistent hashing is a random choice that never repeats the last targets.
pub(crate) enum Placement {
    Random,
    /// A chunk's hash is a point on the ring; its targets are the next ones.
    Ring(Vec<(u64, u16)>),
}

impl Placement {
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

    /// Draws the targets of an initiator's next chunk; `last` are those of its last one.
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

    /// Draws the negotiating group of an initiator's next chunk; `last` is that of its last one.
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

    fn shares(placement: &Placement) -> (Vec<u32>, u32) {
        let (mut random, mut counts, mut repeated) = (Random(1), vec![0; TARGETS.into()], 0);
        let mut last = [TARGETS; REPLICAS];
        for _ in 0..30_000 {
            let chosen = placement.targets(&mut random, &last);
            assert!(chosen[0] != chosen[1] && chosen[0] != chosen[2] && chosen[1] != chosen[2]);
            repeated += chosen.iter().filter(|target| last.contains(target)).count() as u32;
            chosen.iter().for_each(|target| counts[usize::from(*target)] += 1);
            last = chosen;
        }
        (counts, repeated)
    }

    #[test]
    fn random_targets_are_even_and_never_repeat_unlike_hashed_ones() {
        let (even, repeated) = shares(&Placement::new(false));
        assert!(even.iter().all(|count| (850..1_150).contains(count)) && repeated == 0, "{even:?}");
        let (uneven, repeated) = shares(&Placement::new(true));
        assert!(uneven.iter().all(|count| (600..1_500).contains(count)), "{uneven:?}");
        assert!(uneven.iter().any(|count| *count > 1_150) && repeated > 0);
    }

    #[test]
    fn random_groups_never_repeat_unlike_hashed_ones() {
        let repeated = |placement: &Placement| {
            let (mut random, mut last, mut repeated) = (Random(1), None, 0);
            for _ in 0..10_000 {
                let group = placement.group(&mut random, last);
                repeated += u32::from(last == Some(group));
                last = Some(group);
            }
            repeated
        };
        assert_eq!(repeated(&Placement::new(false)), 0);
        assert!((900..1_100).contains(&repeated(&Placement::new(true))));
    }
}
