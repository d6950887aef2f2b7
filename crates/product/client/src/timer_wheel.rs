//! A timing wheel: one timer for each request in flight, set and cleared in constant time.
//!
//! ```text
//!   current tick ─┐
//!   buckets  [..][ ][a─c][ ][b][ ] …   512 ticks of 262 µs: one turn takes 134 ms
//!   occupied  0   0   1   0  1   0     one bit per bucket finds the next one
//! ```
//!
//! A timer fires at most one tick late and never early, with one exception: a timer more than one turn away fires at the
//! end of the turn, and its owner sets it again.

use alloc::vec;
use alloc::vec::Vec;

const TICK_SHIFT: u32 = 18;
const BUCKETS: usize = 512;
const WORDS: usize = BUCKETS / 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    /// The bucket that the timer is in; [`NONE`] if it is not set.
    bucket: u32,
}

/// At most one timer for each of the indexes `0..capacity`.
#[derive(Clone, Debug)]
pub(crate) struct TimerWheel {
    /// Every bucket up to this tick is empty.
    current: u64,
    heads: [u32; BUCKETS],
    occupied: [u64; WORDS],
    links: Vec<Link>,
    count: usize,
}

impl TimerWheel {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            current: 0,
            heads: [NONE; BUCKETS],
            occupied: [0; WORDS],
            links: vec![Link { previous: NONE, next: NONE, bucket: NONE }; capacity],
            count: 0,
        }
    }

    /// Sets the timer `index`, which must not be set, to fire at `due_ns`.
    pub(crate) fn set(&mut self, index: u32, now_ns: u64, due_ns: u64) {
        assert_eq!(self.links[index as usize].bucket, NONE);
        if self.count == 0 {
            self.current = now_ns >> TICK_SHIFT;
        }
        let tick = due_ns.saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT;
        let tick = tick.clamp(self.current + 1, self.current + BUCKETS as u64 - 1);
        let bucket = tick as usize % BUCKETS;
        let next = self.heads[bucket];
        if next != NONE {
            self.links[next as usize].previous = index;
        }
        self.links[index as usize] = Link { previous: NONE, next, bucket: bucket as u32 };
        self.heads[bucket] = index;
        self.occupied[bucket / 64] |= 1 << (bucket % 64);
        self.count += 1;
    }

    /// Takes the timer `index` out, if it is set.
    pub(crate) fn clear(&mut self, index: u32) {
        let Link { previous, next, bucket } = self.links[index as usize];
        if bucket == NONE {
            return;
        }
        let bucket = bucket as usize;
        match previous {
            NONE => self.heads[bucket] = next,
            previous => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if self.heads[bucket] == NONE {
            self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        }
        self.links[index as usize].bucket = NONE;
        self.count -= 1;
    }

    /// Takes out one timer that is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<u32> {
        let now_tick = now_ns >> TICK_SHIFT;
        let Some(tick) = self.next_tick().filter(|tick| *tick <= now_tick) else {
            self.current = self.current.max(now_tick);
            return None;
        };
        // `current` stays one tick before the bucket while it contains timers, so that they are
        // found again.
        self.current = tick - 1;
        let index = self.heads[tick as usize % BUCKETS];
        self.clear(index);
        Some(index)
    }

    /// When the next timer is due, in nanoseconds.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.next_tick().map(|tick| tick << TICK_SHIFT)
    }

    fn next_tick(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let first = (self.current + 1) as usize % BUCKETS;
        // The word of the first bucket is searched twice: its upper bits first, its lower bits after a full turn.
        for step in 0..=WORDS {
            let word = (first / 64 + step) % WORDS;
            let mask = match step {
                0 => !0 << (first % 64),
                WORDS => !(!0 << (first % 64)),
                _ => !0,
            };
            let bits = self.occupied[word] & mask;
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                let distance = (bucket + BUCKETS - first) % BUCKETS;
                return Some(self.current + 1 + distance as u64);
            }
        }
        unreachable!("{} timers are set and no bucket is occupied", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TICK_NS: u64 = 1 << TICK_SHIFT;
    const ROUND_NS: u64 = TICK_NS * (BUCKETS as u64 - 1);

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Clear(u32),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u32..16, 0..2 * ROUND_NS).prop_map(|(index, delay)| Step::Set(index, delay)),
            (0u32..16).prop_map(Step::Clear),
            (0..ROUND_NS / 3).prop_map(Step::Advance),
        ]
    }

    #[test]
    fn timer_fires_in_its_tick() {
        let now = 7 * ROUND_NS + 5;
        let mut wheel = TimerWheel::new(4);
        let tick = |ns: u64| ns.div_ceil(TICK_NS) * TICK_NS;
        for delay in [1, TICK_NS - 5, TICK_NS, 63 * TICK_NS, 64 * TICK_NS, 200 * TICK_NS, ROUND_NS - TICK_NS]
        {
            wheel.set(2, now, now + delay);
            let due = tick(now + delay);
            assert_eq!(wheel.next_due_ns(), Some(due), "{delay}");
            assert_eq!(wheel.pop_due(due - 1), None);
            assert_eq!((wheel.pop_due(due), wheel.next_due_ns()), (Some(2), None));
        }
        // One timer is more than a turn away: it fires at the end of the turn. One is in the past:
        // it fires in the next tick.
        wheel.set(1, now, now + 3 * ROUND_NS);
        assert_eq!(wheel.next_due_ns(), Some((now / TICK_NS + BUCKETS as u64 - 1) * TICK_NS));
        wheel.clear(1);
        wheel.set(1, now, 0);
        assert_eq!(wheel.next_due_ns(), Some((now / TICK_NS + 1) * TICK_NS));
        wheel.clear(1);
        wheel.clear(1);
        assert_eq!((wheel.count, wheel.occupied), (0, [0; WORDS]));
    }

    #[test]
    fn timers_of_one_tick_can_be_cleared_in_any_order() {
        for cleared in 0..3 {
            let mut wheel = TimerWheel::new(3);
            (0..3).for_each(|index| wheel.set(index, 0, TICK_NS));
            wheel.clear(cleared);
            let mut fired: Vec<_> = std::iter::from_fn(|| wheel.pop_due(TICK_NS)).collect();
            fired.sort_unstable();
            assert_eq!(fired, (0..3).filter(|index| *index != cleared).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn timers_fire_when_due(steps in prop::collection::vec(step(), 1..200)) {
            let mut wheel = TimerWheel::new(16);
            let mut expected: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            let mut now = 5_000_000_000;
            for step in steps {
                match step {
                    Step::Set(index, delay) => {
                        wheel.clear(index);
                        wheel.set(index, now, now + delay);
                        expected.insert(index, (now, now + delay));
                    }
                    Step::Clear(index) => {
                        wheel.clear(index);
                        expected.remove(&index);
                    }
                    Step::Advance(by) => {
                        now += by;
                        while let Some(index) = wheel.pop_due(now) {
                            let (set, due) = expected.remove(&index).expect("set and not fired");
                            prop_assert!(due <= now || now - set >= ROUND_NS - 2 * TICK_NS, "early");
                        }
                        let late = expected.values().find(|(_, due)| due + 2 * TICK_NS <= now);
                        prop_assert_eq!(late, None);
                    }
                }
                let next = wheel.next_due_ns();
                let earliest = expected.values().map(|(_, due)| *due).min();
                prop_assert_eq!(next.is_some(), earliest.is_some());
                if let (Some(next), Some(earliest)) = (next, earliest) {
                    prop_assert!(next <= earliest.max(now) + 2 * TICK_NS, "{next} {earliest}");
                }
            }
        }
    }
}
