//! Sleeping until there is something to do.

use crate::clock::now;
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

#[cfg(test)]
mod tests {
    use super::*;

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
