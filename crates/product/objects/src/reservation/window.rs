//! Windows of time: by a clock, or as offsets from the receipt of a request.

/// A time window for sending data, by its owner's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When the first bit may be sent.
    pub left_ns: u64,
    /// When the last bit must have been sent.
    pub right_ns: u64,
}

impl Window {
    /// Its length.
    pub fn width_ns(&self) -> u64 {
        self.right_ns.saturating_sub(self.left_ns)
    }

    /// Whether another window is within this one, and not empty.
    pub fn contains(&self, other: &Self) -> bool {
        self.left_ns <= other.left_ns && other.left_ns < other.right_ns && other.right_ns <= self.right_ns
    }

    /// Whether two windows do not overlap.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.right_ns <= other.left_ns || other.right_ns <= self.left_ns
    }
}

/// A window in a message: offsets from the time when the target received the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// When the first bit may be sent.
    pub left_ns: u64,
    /// When the last bit must have been sent.
    pub right_ns: u64,
}

/// When a target received a request, by the local clock: a range between two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    earliest_ns: u64,
    latest_ns: u64,
}

impl Receipt {
    /// An exactly known time: for the target itself, or if both hosts have the same clock.
    pub fn at(now_ns: u64) -> Self {
        Self { earliest_ns: now_ns, latest_ns: now_ns }
    }

    /// Some time between the departure of the request and the arrival of the bid: all that an initiator knows.
    pub fn between(sent_ns: u64, answered_ns: u64) -> Self {
        Self { earliest_ns: sent_ns, latest_ns: answered_ns.max(sent_ns) }
    }

    /// The window that is within the offsets for every possible receipt: shorter by a round trip. `None` if it is empty.
    pub fn window(self, offsets: Offsets) -> Option<Window> {
        let left_ns = self.latest_ns.checked_add(offsets.left_ns)?;
        let right_ns = self.earliest_ns.checked_add(offsets.right_ns)?;
        (left_ns < right_ns).then_some(Window { left_ns, right_ns })
    }

    /// Offsets that contain the window for every possible receipt. They are within the offsets in which the window was found.
    /// `None` if it may begin before the receipt.
    pub fn offsets(self, window: Window) -> Option<Offsets> {
        let left_ns = window.left_ns.checked_sub(self.latest_ns)?;
        let right_ns = window.right_ns.checked_sub(self.earliest_ns)?;
        Some(Offsets { left_ns, right_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn adjacent_windows_do_not_overlap() {
        let window = |left_ns, right_ns| Window { left_ns, right_ns };
        assert!(window(1, 5).is_apart_from(&window(5, 9)) && window(5, 9).is_apart_from(&window(1, 5)));
        assert!(!window(1, 6).is_apart_from(&window(5, 9)));
        assert!(window(1, 6).contains(&window(1, 6)) && window(1, 6).contains(&window(2, 5)));
        assert!(!window(1, 6).contains(&window(3, 3)), "an empty window");
        assert!(!window(1, 6).contains(&window(0, 6)) && !window(1, 6).contains(&window(1, 7)));
    }

    #[test]
    fn impossible_windows_are_none() {
        let receipt = Receipt::between(100, 110);
        assert_eq!(receipt.window(Offsets { left_ns: 5, right_ns: 15 }), None, "a round trip is longer");
        assert_eq!(receipt.window(Offsets { left_ns: u64::MAX, right_ns: u64::MAX }), None);
        assert_eq!(
            receipt.offsets(Window { left_ns: 105, right_ns: 200 }),
            None,
            "the window may begin before the receipt"
        );
        assert_eq!(Receipt::between(7, 3), Receipt::at(7), "a clock that went back counts as standing still");
    }

    proptest! {
        /// Whatever the difference of the two clocks: by the target's clock, the window that the
        /// initiator derives is within the bid, and so are the offsets that it sends.
        #[test]
        fn initiator_stays_within_the_promise(
            (sent, there, back) in (0_u64..1_000, 0_u64..1_000, 0_u64..1_000),
            (left, width) in (0_u64..5_000, 1_u64..5_000),
            (cut_left, cut_right) in (0_u64..2_500, 0_u64..2_500),
        ) {
            let promised = Offsets { left_ns: left, right_ns: left + width };
            let receipt = Receipt::between(sent, sent + there + back);
            let found = receipt.window(promised);
            prop_assert_eq!(found.is_some(), width > there + back);
            if let Some(found) = found {
                let received = sent + there;
                prop_assert!(found.left_ns >= received + promised.left_ns);
                prop_assert!(found.right_ns <= received + promised.right_ns);
                let used = Window { left_ns: found.left_ns + cut_left, right_ns: found.right_ns.saturating_sub(cut_right) };
                if let (true, Some(told)) = (found.contains(&used), receipt.offsets(used)) {
                    prop_assert!(told.left_ns >= promised.left_ns && told.right_ns <= promised.right_ns);
                    prop_assert!(received + told.left_ns <= used.left_ns && used.right_ns <= received + told.right_ns);
                }
            }
        }
    }
}
