//! Wakes a role that sleeps in [`wait`](crate::wait) from another thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An event counter of the kernel, shared by its clones. Waking an awake role costs no system call.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    event: OwnedFd,
    /// Whether the counter has been raised since it was cleared.
    raised: AtomicBool,
}

impl Waker {
    /// A new one, not raised.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { shared: Arc::new(Shared { event, raised: AtomicBool::new(false) }) })
    }

    /// Ends the current sleep, or the next one.
    pub fn wake(&self) {
        if !self.shared.raised.swap(true, Ordering::AcqRel) {
            // It cannot fail: the counter is far from its limit.
            let _ = write(&self.shared.event, &1u64.to_ne_bytes());
        }
    }

    /// Whether it has been woken since it was cleared. Costs no system call.
    pub fn is_raised(&self) -> bool {
        self.shared.raised.load(Ordering::Acquire)
    }

    /// To be called before checking what the wakers have left: later wake-ups raise it again.
    pub fn clear(&self) {
        if !self.shared.raised.load(Ordering::SeqCst) {
            return;
        }
        // The counter first: a wake-up between the two lines writes nothing, and what it announces
        // is seen after them. A counter that is still zero belongs to a waker between its own two
        // lines; it stays raised, or its late write would never be read.
        if read(&self.shared.event, &mut [0u8; 8]).is_ok() {
            self.shared.raised.store(false, Ordering::Release);
        }
        // A full fence: what the waker has published before its swap must be seen by the following
        // check.
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
        // A waker stopped between its two lines.
        waker.shared.raised.store(true, Ordering::SeqCst);
        waker.clear();
        write(&waker.shared.event, &1u64.to_ne_bytes()).unwrap();
        waker.clear();
        let mut descriptors = [readable(&waker)];
        wait(&mut descriptors, Some(0)).unwrap();
        assert!(!crate::is_ready(&descriptors[0]), "a sleeper would not sleep any more");
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
