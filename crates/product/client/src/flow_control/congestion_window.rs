//! How many datagrams of one kind may be under way at once, by how long answers take (after Swift, SIGCOMM '20, section 3).
//!
//! ```text
//!   an answer takes    base ──────────── base + target / 2 ──────────── base + target ────────────────────▶
//!   the window         grows by an eighth        │      grows by one          │    shrinks in proportion,
//!                      per round trip                    per round trip            at most by half per round trip
//! ```
//!
//! Datagrams beyond what replicas serve at once would only wait in their sockets until they are lost or sent again. They
//! wait in the client instead, where that costs nothing. Queues stay shorter than [`DELAY_TARGET_NS`]: long enough for
//! replicas to work in batches, and far below what a socket buffer holds.
//!
//! The *base* is the shortest time that an answer has taken. If answers are late while the window is at its minimum, the
//! queue is not ours: the replicas have become slower or have many clients, and the base follows.

/// Delay that queues may add to an answer.
const DELAY_TARGET_NS: u64 = 5_000_000;
const WINDOW_MIN: usize = 16;
const WINDOW_INITIAL: usize = 64;
/// Fixed-point unit of the size: one datagram.
const ONE: u64 = 1 << 16;

/// The congestion window of a lane.
#[derive(Clone, Debug)]
pub(crate) struct CongestionWindow {
    /// In units of [`ONE`].
    size: u64,
    size_max: u64,
    under_way: usize,
    /// When the window last shrank. The loss of a datagram sent before that does not shrink it
    /// again.
    shrunk_ns: u64,
    base_ns: u64,
}

impl CongestionWindow {
    pub(crate) fn new(size_max: usize) -> Self {
        let size_max = size_max.max(WINDOW_INITIAL) as u64 * ONE;
        Self { size: WINDOW_INITIAL as u64 * ONE, size_max, under_way: 0, shrunk_ns: 0, base_ns: u64::MAX }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.under_way < self.size()
    }

    fn size(&self) -> usize {
        (self.size / ONE) as usize
    }

    /// The shortest time that an answer has taken.
    pub(crate) fn base_ns(&self) -> u64 {
        self.base_ns
    }

    /// This many datagrams were sent. One message may be longer than the window.
    pub(crate) fn entered(&mut self, datagrams: u16) {
        self.under_way += usize::from(datagrams);
    }

    /// This many datagrams are no longer in flight, as far as is known.
    pub(crate) fn left(&mut self, datagrams: u16) {
        self.under_way -= usize::from(datagrams);
    }

    /// A request that was sent once, at `sent_ns`, is answered; `smoothed_ns` is the mean time of
    /// answers. Called before [`Self::left`].
    pub(crate) fn answered(&mut self, now_ns: u64, sent_ns: u64, smoothed_ns: u64, datagrams: u16) {
        let took_ns = now_ns.saturating_sub(sent_ns);
        self.base_ns = self.base_ns.min(took_ns.max(1));
        // A single late answer is not a sign of a queue.
        let took_ns = took_ns.min(smoothed_ns);
        let queued_ns = took_ns.saturating_sub(self.base_ns);
        if queued_ns > DELAY_TARGET_NS {
            let excess_ns = (queued_ns - DELAY_TARGET_NS) * 4 / 5;
            if self.size() == WINDOW_MIN && sent_ns >= self.shrunk_ns {
                self.base_ns += self.base_ns / 8 + 1;
            }
            self.shrink(now_ns, sent_ns, (took_ns - excess_ns, took_ns));
        } else if self.under_way * 2 >= self.size() {
            // If the window is not full, answers tell nothing about a larger one.
            let step = if queued_ns < DELAY_TARGET_NS / 2 { ONE / 8 } else { ONE * ONE / self.size };
            self.size = (self.size + step * u64::from(datagrams)).min(self.size_max);
        }
    }

    /// A datagram that was sent at `sent_ns` is lost, while others are answered.
    pub(crate) fn lost(&mut self, now_ns: u64, sent_ns: u64) {
        self.shrink(now_ns, sent_ns, (1, 2));
    }

    fn shrink(&mut self, now_ns: u64, sent_ns: u64, (part, whole): (u64, u64)) {
        if sent_ns < self.shrunk_ns {
            return;
        }
        self.shrunk_ns = now_ns;
        let smaller = (u128::from(self.size) * u128::from(part) / u128::from(whole)) as u64;
        self.size = smaller.max(self.size / 2).max(WINDOW_MIN as u64 * ONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulates replicas that execute one op after the other, each in `service_ns`, and a client
    /// that always has more. Returns the window's size and the longest queue in the second half.
    fn saturate(window: &mut CongestionWindow, service_ns: u64, answers: u64) -> (usize, usize) {
        let (mut queue, mut now_ns, mut smoothed_ns) = (std::collections::VecDeque::new(), MS, 0);
        let mut longest = 0;
        for number in 0..answers {
            while window.has_room() {
                window.entered(1);
                queue.push_back(now_ns);
            }
            now_ns += service_ns;
            let sent_ns = queue.pop_front().expect("the window lets some through");
            let took_ns = now_ns - sent_ns;
            smoothed_ns = if number == 0 { took_ns } else { (7 * smoothed_ns + took_ns) / 8 };
            window.answered(now_ns, sent_ns, smoothed_ns, 1);
            window.left(1);
            if number > answers / 2 {
                longest = longest.max(queue.len());
            }
        }
        let size = window.size();
        queue.iter().for_each(|_| window.left(1));
        (size, longest)
    }

    #[test]
    fn queue_grows_to_the_target_and_no_further() {
        for service_ns in [5_000, 20_000, 100_000] {
            let mut window = CongestionWindow::new(16_384);
            let (_, longest) = saturate(&mut window, service_ns, 50_000);
            let delay_ns = longest as u64 * service_ns;
            assert!((DELAY_TARGET_NS / 2..DELAY_TARGET_NS * 3 / 2).contains(&delay_ns), "{delay_ns}");
        }
    }

    #[test]
    fn window_follows_replicas_that_become_slower_or_faster() {
        let mut window = CongestionWindow::new(16_384);
        let (fast, _) = saturate(&mut window, 5_000, 50_000);
        let (slow, _) = saturate(&mut window, 500_000, 5_000);
        assert!(slow < fast / 8, "{fast} {slow}");
        let (again, _) = saturate(&mut window, 5_000, 50_000);
        assert!(again > fast / 2, "{fast} {again}");
    }

    #[test]
    fn loss_halves_the_window_once_per_round_trip_down_to_its_minimum() {
        let mut window = CongestionWindow::new(16_384);
        (0..100).for_each(|_| window.lost(10 * MS, 9 * MS));
        assert_eq!(window.size(), WINDOW_INITIAL / 2);
        window.lost(11 * MS, 10 * MS);
        assert_eq!(window.size(), WINDOW_MIN);
        window.lost(12 * MS, 11 * MS);
        assert_eq!(window.size(), WINDOW_MIN);
    }

    #[test]
    fn unused_window_does_not_grow_and_one_late_answer_does_not_shrink_it() {
        let mut window = CongestionWindow::new(16_384);
        for number in 1..1_000 {
            window.entered(1);
            window.answered(number * MS, number * MS - 50_000, 50_000, 1);
            window.left(1);
        }
        assert_eq!(window.size(), WINDOW_INITIAL);
        window.answered(2_000 * MS, 1_900 * MS, 60_000, 1);
        assert_eq!(window.size(), WINDOW_INITIAL);
    }

    #[test]
    fn late_answers_at_the_minimum_size_raise_the_base() {
        let mut window = CongestionWindow::new(16_384);
        window.answered(MS, MS - 50_000, 50_000, 1);
        for number in 1..100 {
            window.answered(number * 100 * MS, number * 100 * MS - 20 * MS, 20 * MS, 1);
        }
        assert!(window.base_ns() > 15 * MS, "{}", window.base_ns());
        window.answered(20_000 * MS, 20_000 * MS - 60_000, MS, 1);
        assert_eq!(window.base_ns(), 60_000);
    }
}
