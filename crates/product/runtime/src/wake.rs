//! Wakes a role that sleeps in [`wait`](crate::wait) from another thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An eventfd, shared by the clones. Waking a role that is already awake costs no system call.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    event: OwnedFd,
    /// Whether the eventfd was raised since it was cleared.
    raised: AtomicBool,
}

impl Waker {
    /// A waker that is not raised.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { shared: Arc::new(Shared { event, raised: AtomicBool::new(false) }) })
    }

    /// Ends the current sleep, or the next one.
    pub fn wake(&self) {
        if !self.shared.raised.swap(true, Ordering::AcqRel) {
            // The write cannot fail: the counter is far from its limit.
            let _ = write(&self.shared.event, &1u64.to_ne_bytes());
        }
    }

    /// Whether [`Self::wake`] was called since the last [`Self::clear`]. Costs no system call.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::Acquire)
    }

    /// Resets the waker. Call it before checking for new work: later wake-ups raise it again.
    pub fn clear(&self) {
        if !self.shared.raised.load(Ordering::SeqCst) {
            return;
        }
        // The counter is read before the flag is reset. A waker that comes in between writes
        // nothing, but what it announces is seen by the check that follows. If the counter is still
        // zero, a waker has set the flag but not written yet: the flag stays set, or that late
        // write would never be read.
        if read(&self.shared.event, &mut [0u8; 8]).is_ok() {
            self.shared.raised.store(false, Ordering::Release);
        }
        // A full fence: the following check must see everything that a waker published before it
        // set the flag.
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{readable, wait};

    #[test]
    fn late_wake_is_cleared_by_the_next_clear() {
        let waker = Waker::new().unwrap();
        // A waker has set the flag, but not written to the eventfd yet.
        waker.shared.raised.store(true, Ordering::SeqCst);
        waker.clear();
        write(&waker.shared.event, &1u64.to_ne_bytes()).unwrap();
        waker.clear();
        let mut descriptors = [readable(&waker)];
        wait(&mut descriptors, Some(0)).unwrap();
        assert!(!crate::is_ready(&descriptors[0]), "the waker stays readable");
    }

    #[test]
    fn no_wake_is_lost() {
        let (waker, done) = (Waker::new().unwrap(), Arc::new(std::sync::atomic::AtomicU32::new(0)));
        let other = {
            let (waker, done) = (waker.clone(), done.clone());
            std::thread::spawn(move || {
                for count in 1..=10_000 {
                    done.store(count, Ordering::Release);
                    waker.wake();
                }
            })
        };
        while done.load(Ordering::Acquire) < 10_000 {
            // No deadline: a lost wake-up would hang the test.
            wait(&mut [readable(&waker)], None).unwrap();
            waker.clear();
        }
        other.join().unwrap();
    }
}
