//! Sleeping and busy-polling until there is work.

use crate::clock::now;
use nicekv_proto::{Duration, Now};
use rustix::event::{PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// A file descriptor with the events to wait for.
pub use rustix::event::PollFd;

/// Polls a descriptor for input.
pub fn readable(descriptor: &impl AsFd) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::IN)
}

/// Polls a stream's descriptor for input, for room for output, or for both.
pub fn interest(descriptor: &impl AsFd, input: bool, output: bool) -> PollFd<'_> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, input);
    flags.set(PollFlags::OUT, output);
    PollFd::new(descriptor, flags)
}

/// Whether the descriptor is ready. Errors and hang-ups count: the next read returns them.
pub fn is_ready(descriptor: &PollFd<'_>) -> bool {
    !descriptor.revents().is_empty()
}

/// Sleeps until a descriptor is ready or the boot-time clock reads `deadline_ns`. A signal may end
/// it early.
pub fn wait(descriptors: &mut [PollFd<'_>], deadline_ns: Option<u64>) -> io::Result<()> {
    let timeout = deadline_ns.map(|deadline_ns| {
        let left_ns = deadline_ns.saturating_sub(now().boot_ns);
        Timespec { tv_sec: (left_ns / 1_000_000_000) as i64, tv_nsec: (left_ns % 1_000_000_000) as i64 }
    });
    match poll(descriptors, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Busy-polling: a role that has just had work expects more soon, so for a while it polls and
/// yields the processor instead of sleeping. Waking up takes longer than the work that follows.
///
/// After batches, it polls only as long as that pays: while at least a quarter of the recent work
/// came within the polling time. If batches come at longer intervals, as from a gateway with many
/// callers, every polling would end in a sleep anyway, and take processor time from the threads
/// that prepare the next batch. (Yielding does not help threads of another session or control
/// group, which the scheduler gives a share of its own.) After a single request it always polls:
/// with one caller, latency matters and processors are free.
#[derive(Clone, Copy, Debug)]
pub struct BusyPoll {
    length: Duration,
    until_ns: u64,
    /// Raised by work within the polling time, lowered by later batches.
    credit: u32,
    pays: bool,
}

/// Credit for work that came within the polling time.
const CREDIT_EARNED: u32 = 3;
/// Credit lost by a batch that came later.
const CREDIT_SPENT: u32 = 1;
const CREDIT_MAX: u32 = 32;
/// With less credit, there is no polling after a batch.
const CREDIT_MIN: u32 = CREDIT_MAX / 2;

impl BusyPoll {
    /// Default: about the time from a client's request through the replicas' answers to its next
    /// request.
    pub const DEFAULT: Duration = Duration::from_micros(60);

    /// Polls for `length` after work.
    pub fn new(length: Duration) -> Self {
        Self { length, until_ns: 0, credit: CREDIT_MAX, pays: true }
    }

    /// Starts the polling time after work.
    pub fn begin(&mut self, now: Now) {
        if now.boot_ns <= self.until_ns {
            self.credit = (self.credit + CREDIT_EARNED).min(CREDIT_MAX);
        }
        self.pays = true;
        self.until_ns = now.after(self.length);
    }

    /// Starts the polling time if it pays: there was a batch of work from many callers.
    pub fn begin_after_batch(&mut self, now: Now) {
        if now.boot_ns > self.until_ns {
            self.credit = self.credit.saturating_sub(CREDIT_SPENT);
        }
        self.begin(now);
        self.pays = self.credit >= CREDIT_MIN;
    }

    /// When polling ends.
    fn sleeps_at_ns(&self) -> u64 {
        if self.pays { self.until_ns } else { 0 }
    }

    /// Calls `look` at least once, yielding in between, until it finds work, the polling time is
    /// over, or the boot-time clock reads `deadline_ns`. Returns whether there was work.
    pub fn look(
        &self,
        deadline_ns: Option<u64>,
        mut look: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let until_ns = deadline_ns.unwrap_or(u64::MAX).min(self.sleeps_at_ns());
        loop {
            if look()? {
                return Ok(true);
            }
            if now().boot_ns >= until_ns {
                return Ok(false);
            }
            std::thread::yield_now();
        }
    }

    /// Whether the polling time is still running.
    pub fn is_on(&self) -> bool {
        now().boot_ns < self.sleeps_at_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_poll_checks_at_least_once_and_ends_at_work_or_deadline() {
        let mut busy_poll = BusyPoll::new(Duration::from_millis(20));
        let look_for = |busy_poll: &BusyPoll, looks: u32, deadline_ns| {
            let mut looked = 0;
            let found = busy_poll.look(deadline_ns, || {
                looked += 1;
                Ok(looked == looks)
            });
            (found.unwrap(), looked)
        };
        assert_eq!(look_for(&busy_poll, 2, None), (false, 1), "no work has come yet");
        let begun = now();
        busy_poll.begin(begun);
        assert_eq!(look_for(&busy_poll, 3, None), (true, 3));
        assert_eq!(look_for(&busy_poll, 2, Some(begun.boot_ns)), (false, 1), "the deadline has passed");
        assert!(!look_for(&busy_poll, u32::MAX, None).0);
        assert!(now().boot_ns >= begun.after(Duration::from_millis(20)));
    }

    #[test]
    fn busy_poll_stops_while_batches_are_rare() {
        let length = Duration::from_secs(10);
        let mut busy_poll = BusyPoll::new(length);
        let mut at_ns = now().boot_ns;
        let mut busy_polls_after = |gaps: &[u64]| {
            for gap in gaps {
                at_ns += gap * length.as_nanos() as u64 / 2;
                busy_poll.begin_after_batch(Now { boot_ns: at_ns, unix_ms: 0 });
            }
            busy_poll.is_on()
        };
        // Gaps are in halves of the polling time: 1 is within it, 3 is not.
        assert!(busy_polls_after(&[3, 3, 3, 1].repeat(50)));
        assert!(!busy_polls_after(&[3, 3, 3, 3, 1].repeat(50)));
        assert!(busy_polls_after(&[1; 8]));
        assert!(!busy_polls_after(&[3; 32]));
        // Polls after a single caller's request.
        busy_poll.begin(now());
        assert!(busy_poll.is_on());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        for ms in [0, 3, 30, 1_020] {
            let deadline_ns = now().boot_ns + ms * 1_000_000;
            wait(&mut [], Some(deadline_ns)).unwrap();
            assert!(now().boot_ns >= deadline_ns, "{ms} ms");
        }
        wait(&mut [], Some(0)).unwrap();
    }

    #[test]
    fn wait_ends_at_the_awaited_event() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        for (input, output, is_ended) in [(true, false, false), (false, true, true), (false, false, false)] {
            let mut descriptors = [interest(&one, input, output)];
            wait(&mut descriptors, Some(now().boot_ns + 1_000_000)).unwrap();
            assert_eq!(is_ready(&descriptors[0]), is_ended, "input {input}, output {output}");
        }
        std::io::Write::write_all(&mut &other, b"x").unwrap();
        let mut descriptors = [readable(&one), readable(&other)];
        wait(&mut descriptors, None).unwrap();
        assert_eq!(descriptors.each_ref().map(is_ready), [true, false]);
    }
}
