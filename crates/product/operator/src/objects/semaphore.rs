//! Who may do something now, where so many may at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module.
pub(super) struct Turns {
    left: Mutex<usize>,
    is_more: Condvar,
}

/// One of them, until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(super) fn new(count: usize) -> Self {
        Self { left: Mutex::new(count), is_more: Condvar::new() }
    }

    /// A turn, if there is one now.
    pub(super) fn try_take(&self) -> Option<Turn<'_>> {
        let mut left = self.left();
        *left = left.checked_sub(1)?;
        Some(Turn(self))
    }

    /// Waits for one. Whoever has a turn must not, as all might.
    pub(super) fn take(&self) -> Turn<'_> {
        let left = self.is_more.wait_while(self.left(), |left| *left == 0);
        *left.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.left() += 1;
        self.0.is_more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn so_many_have_a_turn_and_the_others_wait() {
        let turns = Turns::new(2);
        let (first, second) = (turns.try_take(), turns.try_take());
        assert!(first.is_some() && second.is_some() && turns.try_take().is_none());
        drop(first);
        assert!(turns.try_take().is_some(), "and that is free again at once");
        drop(second);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = turns.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
        assert_eq!(*turns.left(), 2);
    }
}
