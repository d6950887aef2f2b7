//! Windows of time, by a clock or as offsets.

/// From when the first bit may be sent until when the last one must have been, by the clock of whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first bit, at the earliest.
    pub left_ns: u64,
    /// The last bit, at the latest.
    pub right_ns: u64,
}

impl Window {
    /// How long it is.
    pub fn width_ns(&self) -> u64 {
        self.right_ns.saturating_sub(self.left_ns)
    }

    /// Whether all of the other one is in this one.
    pub fn contains(&self, other: &Self) -> bool {
        self.left_ns <= other.left_ns && other.left_ns < other.right_ns && other.right_ns <= self.right_ns
    }

    /// Whether they have no time in common.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.right_ns <= other.left_ns || other.right_ns <= self.left_ns
    }
}

/// A window as it travels: from the receipt of the request by the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The first bit, at the earliest.
    pub left_ns: u64,
    /// The last bit, at the latest.
    pub right_ns: u64,
}

/// When a target has received a request, as far as is known by one's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    earliest_ns: u64,
    latest_ns: u64,
}

impl Receipt {
    /// Known: the target's own, or of two with one clock.
    pub fn at(now_ns: u64) -> Self {
        Self { earliest_ns: now_ns, latest_ns: now_ns }
    }

    /// Some time between the request was sent and its bid arrived: all that an initiator knows.
    pub fn between(sent_ns: u64, answered_ns: u64) -> Self {
        Self { earliest_ns: sent_ns, latest_ns: answered_ns.max(sent_ns) }
    }

    /// What is surely within the offsets, whenever the receipt was: narrower than they are by a round trip. None if that is nothing.
    pub fn window(self, offsets: Offsets) -> Option<Window> {
        let left_ns = self.latest_ns.checked_add(offsets.left_ns)?;
        let right_ns = self.earliest_ns.checked_add(offsets.right_ns)?;
        (left_ns < right_ns).then_some(Window { left_ns, right_ns })
    }

    /// Offsets that surely have the window within them, for the target: within the offsets that the window was found in. None if it may begin before the receipt.
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
    fn windows_touch_without_overlap() {
        let window = |left_ns, right_ns| Window { left_ns, right_ns };
        assert!(window(1, 5).is_apart_from(&window(5, 9)) && window(5, 9).is_apart_from(&window(1, 5)));
        assert!(!window(1, 6).is_apart_from(&window(5, 9)));
        assert!(window(1, 6).contains(&window(1, 6)) && window(1, 6).contains(&window(2, 5)));
        assert!(!window(1, 6).contains(&window(3, 3)), "nothing can be sent in it");
        assert!(!window(1, 6).contains(&window(0, 6)) && !window(1, 6).contains(&window(1, 7)));
    }

    #[test]
    fn what_cannot_be_is_none() {
        let receipt = Receipt::between(100, 110);
        assert_eq!(receipt.window(Offsets { left_ns: 5, right_ns: 15 }), None, "a round trip is longer");
        assert_eq!(receipt.window(Offsets { left_ns: u64::MAX, right_ns: u64::MAX }), None);
        assert_eq!(receipt.offsets(Window { left_ns: 105, right_ns: 200 }), None, "before it may have come");
        assert_eq!(Receipt::between(7, 3), Receipt::at(7), "a clock that went back");
    }

    proptest! {
        /// Two clocks that differ by anything: what the initiator finds in a bid is in it by the target's clock, and so is what it then tells.
        #[test]
        fn an_initiator_stays_within_what_was_promised(
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
