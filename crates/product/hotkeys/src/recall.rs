//! Recall: how many of the keys with the most requests were found (KVSwitch §5.3).

use crate::key::HotKey;
use alloc::vec::Vec;

/// How many of the `top` keys with the highest exact counts were found. Keys that tie for the last
/// place are interchangeable: any of them counts, up to the number of places left.
pub fn recall(exact: &[(HotKey, u64)], top: usize, mut is_found: impl FnMut(&HotKey) -> bool) -> usize {
    let mut counts: Vec<u64> = exact.iter().map(|(_, count)| *count).collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let Some(last) = top.min(counts.len()).checked_sub(1).map(|place| counts[place]) else { return 0 };
    let above = counts.partition_point(|count| *count > last);
    let (mut found_above, mut found_level) = (0, 0);
    for (key, count) in exact.iter().filter(|(_, count)| *count >= last) {
        if is_found(key) {
            *(if *count > last { &mut found_above } else { &mut found_level }) += 1;
        }
    }
    found_above + found_level.min(top.min(counts.len()) - above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::key;

    #[test]
    fn keys_that_tie_for_the_last_place_are_interchangeable() {
        let exact = [(key(1), 9), (key(2), 4), (key(3), 4), (key(4), 4), (key(5), 1)];
        let count = |top, numbers: &[u64]| {
            recall(&exact, top, |other| numbers.iter().any(|number| key(*number) == *other))
        };
        assert_eq!(count(2, &[1, 4]), 2);
        assert_eq!(count(2, &[2, 3, 4]), 1, "three keys tie for one place");
        assert_eq!(count(2, &[1, 5]), 1);
        assert_eq!((count(9, &[1, 5, 7]), count(0, &[1])), (2, 0));
        assert_eq!(recall(&[], 3, |_| true), 0);
    }
}
