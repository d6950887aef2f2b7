//! A counting semaphore.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Semaphore {
    left: Mutex<usize>,
    is_freed: Condvar,
}

/// A permit, returned on drop.
pub(super) struct Permit<'a>(&'a Semaphore);

impl Semaphore {
    pub(super) fn new(count: usize) -> Self {
        Self { left: Mutex::new(count), is_freed: Condvar::new() }
    }

    /// Takes a permit if one is free.
    pub(super) fn try_acquire(&self) -> Option<Permit<'_>> {
        let mut left = self.left();
        *left = left.checked_sub(1)?;
        Some(Permit(self))
    }

    /// Waits for a permit. A thread that already holds one must not wait for another: if all did,
    /// none would continue.
    pub(super) fn acquire(&self) -> Permit<'_> {
        let left = self.is_freed.wait_while(self.left(), |left| *left == 0);
        *left.unwrap_or_else(PoisonError::into_inner) -= 1;
        Permit(self)
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left() += 1;
        self.0.is_freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn at_most_count_permits_are_held_and_others_wait() {
        let permits = Semaphore::new(2);
        let (first, second) = (permits.try_acquire(), permits.try_acquire());
        assert!(first.is_some() && second.is_some() && permits.try_acquire().is_none());
        drop(first);
        assert!(permits.try_acquire().is_some(), "a dropped permit is free at once");
        drop(second);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _permit = permits.acquire();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
        assert_eq!(*permits.left(), 2);
    }
}
