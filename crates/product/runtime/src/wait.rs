//! Sleeping until there is something to do.

use crate::clock::now;
use nicekv_proto::{Duration, Now};
use rustix::event::{PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;

/// A file descriptor with what is awaited of it.
pub use rustix::event::PollFd;

/// Awaits input.
pub fn readable(descriptor: &impl AsFd) -> PollFd<'_> {
    PollFd::new(descriptor, PollFlags::IN)
}

/// Awaits what a stream needs now: input unless its reader holds back, room for output if there is some left.
pub fn interest(descriptor: &impl AsFd, input: bool, output: bool) -> PollFd<'_> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, input);
    flags.set(PollFlags::OUT, output);
    PollFd::new(descriptor, flags)
}

/// Whether this one ended the wait (errors and hang-ups count: reading tells which).
pub fn is_ready(descriptor: &PollFd<'_>) -> bool {
    !descriptor.revents().is_empty()
}

/// Sleeps until one of `descriptors` is ready or the boot-time clock reads `deadline_ns`. A signal may end it early.
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

/// How a role waits that has just had something to do: it expects more soon, so for a while it lets others run and looks again instead of
/// sleeping. To be woken takes longer than what it is then woken for.
///
/// After batches it does so as long as that pays: while of the last things to do a fourth or more came within the time that it lingers. Where
/// batches come at longer intervals, as from a gateway with many callers, every lingering would end in a sleep all the same, and until then take a
/// processor from those who prepare the next batch: to let others run does not help them if they belong to another session or control group,
/// to which the scheduler gives a share of its own. A single request is waited for always: its caller is short of time, not of processors.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    length: Duration,
    until_ns: u64,
    /// What came within the time counts for it, batches that came later against it.
    credit: u32,
    pays: bool,
}

/// Something came within the time that one lingers.
const CREDIT_EARNED: u32 = 3;
/// A batch did not.
const CREDIT_SPENT: u32 = 1;
const CREDIT_MAX: u32 = 32;
/// With less, one does not linger after a batch.
const CREDIT_MIN: u32 = CREDIT_MAX / 2;

impl Linger {
    /// Unless configured otherwise: about the time from a client's request over the replicas' answers to its next request.
    pub const DEFAULT: Duration = Duration::from_micros(60);

    /// For so long after there was something to do.
    pub fn new(length: Duration) -> Self {
        Self { length, until_ns: 0, credit: CREDIT_MAX, pays: true }
    }

    /// There was something to do.
    pub fn begin(&mut self, now: Now) {
        if now.boot_ns <= self.until_ns {
            self.credit = (self.credit + CREDIT_EARNED).min(CREDIT_MAX);
        }
        self.pays = true;
        self.until_ns = now.after(self.length);
    }

    /// There was a batch of things to do, from many callers.
    pub fn begin_after_batch(&mut self, now: Now) {
        if now.boot_ns > self.until_ns {
            self.credit = self.credit.saturating_sub(CREDIT_SPENT);
        }
        self.begin(now);
        self.pays = self.credit >= CREDIT_MIN;
    }

    /// Until when it is too early to sleep.
    fn sleeps_at_ns(&self) -> u64 {
        if self.pays { self.until_ns } else { 0 }
    }

    /// Looks, and looks again after others have run, until there is something or it is time to sleep or for what the boot-time clock
    /// reads `deadline_ns` for; at least once. Whether there was something.
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

    /// Whether it is too early to sleep.
    pub fn is_on(&self) -> bool {
        now().boot_ns < self.sleeps_at_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_lingers_looks_at_least_once_and_ends_at_what_it_finds_or_in_time() {
        let mut linger = Linger::new(Duration::from_millis(20));
        let look_for = |linger: &Linger, looks: u32, deadline_ns| {
            let mut looked = 0;
            let found = linger.look(deadline_ns, || {
                looked += 1;
                Ok(looked == looks)
            });
            (found.unwrap(), looked)
        };
        assert_eq!(look_for(&linger, 2, None), (false, 1), "it has nothing to expect");
        let begun = now();
        linger.begin(begun);
        assert_eq!(look_for(&linger, 3, None), (true, 3));
        assert_eq!(look_for(&linger, 2, Some(begun.boot_ns)), (false, 1), "the deadline has passed");
        assert!(!look_for(&linger, u32::MAX, None).0);
        assert!(now().boot_ns >= begun.after(Duration::from_millis(20)));
    }

    #[test]
    fn who_lingers_in_vain_after_batches_sleeps_at_once_until_they_come_faster_again() {
        let length = Duration::from_secs(10);
        let mut linger = Linger::new(length);
        let mut at_ns = now().boot_ns;
        let mut lingers_after = |gaps: &[u64]| {
            for gap in gaps {
                at_ns += gap * length.as_nanos() as u64 / 2;
                linger.begin_after_batch(Now { boot_ns: at_ns, unix_ms: 0 });
            }
            linger.is_on()
        };
        // In halves of its length: a fourth of what there is to do comes soon, then less, then all of it.
        assert!(lingers_after(&[3, 3, 3, 1].repeat(50)));
        assert!(!lingers_after(&[3, 3, 3, 3, 1].repeat(50)));
        assert!(lingers_after(&[1; 8]));
        assert!(!lingers_after(&[3; 32]));
        // A single caller is waited for.
        linger.begin(now());
        assert!(linger.is_on());
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
    fn what_is_awaited_is_what_ends_the_wait() {
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
