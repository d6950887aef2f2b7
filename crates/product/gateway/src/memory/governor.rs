//! The memory governor of a gateway: it counts what connections hold, and grants memory for large
//! values.
//!
//! ```text
//!   SET key <64 MiB>   header ──────▶ grant ─▶ argument is read ─▶ client ─▶ replicas have it ─▶ freed
//!   GET key            reference ───▶ grant ─▶ chunks are read ──▶ reply ──▶ the peer has it ──▶ freed
//! ```
//!
//! A large value is held only with a [`Grant`], which is returned when it is dropped. The bytes and
//! their grant are kept together, so neither can outlive the other.
//!
//! All threads share one queue. Its lock is held for a few instructions, and taken only for
//! arguments and values of more than 4 KiB.

use super::admission::{AdmissionQueue, Granted, Outcome, Position};
use nicekv_redis::resp::BufferGrant;
use nicekv_runtime::Waker;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct MemoryGovernor {
    /// Maximum bytes of commands and replies, without large values.
    short_bytes_max: usize,
    /// Bytes held by the connections of each thread. Only that thread writes its entry.
    short_bytes: Vec<AtomicUsize>,
    queue: Mutex<AdmissionQueue>,
    wakers: Vec<Waker>,
    /// Copies of the queue's state, which can be read without its lock.
    large_bytes: AtomicUsize,
    queued: AtomicUsize,
    large_bytes_max: usize,
    grant_max: usize,
}

/// The result of a request for memory.
#[derive(Debug)]
pub(crate) enum Admission {
    Granted(Grant),
    /// The number identifies the queued request.
    Queued(u64),
    TooLarge,
}

impl MemoryGovernor {
    /// `wakers`: wake the threads, in their order. `large_bytes_max`: maximum bytes of large
    /// values.
    pub(crate) fn new(short_bytes_max: usize, large_bytes_max: usize, wakers: Vec<Waker>) -> Self {
        let queue = AdmissionQueue::new(large_bytes_max, wakers.len());
        Self {
            short_bytes_max,
            short_bytes: wakers.iter().map(|_| AtomicUsize::default()).collect(),
            large_bytes_max,
            grant_max: queue.grant_max(),
            queue: Mutex::new(queue),
            wakers,
            ..Self::default()
        }
    }

    pub(crate) fn short_bytes_max(&self) -> usize {
        self.short_bytes_max
    }

    /// Bytes of commands and replies of all connections.
    pub(crate) fn short_bytes(&self) -> usize {
        self.short_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Called by the thread itself.
    pub(crate) fn set_short_bytes(&self, thread: usize, bytes: usize) {
        self.short_bytes[thread].store(bytes, Ordering::Relaxed);
    }

    /// The thread whose connections hold the most.
    pub(crate) fn largest_thread(&self) -> usize {
        let threads = self.short_bytes.iter().enumerate();
        let largest = threads.max_by_key(|(_, bytes)| bytes.load(Ordering::Relaxed));
        largest.expect("a gateway has threads").0
    }

    pub(crate) fn large_bytes_max(&self) -> usize {
        self.large_bytes_max
    }

    /// Maximum bytes of large values of one command or reply.
    pub(crate) fn grant_max(&self) -> usize {
        self.grant_max
    }

    /// Bytes granted for large values.
    pub(crate) fn large_bytes(&self) -> usize {
        self.large_bytes.load(Ordering::Relaxed)
    }

    /// Queued requests.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    fn with<T>(&self, act: impl FnOnce(&mut AdmissionQueue) -> T) -> T {
        // No operation on the queue panics halfway, so a poisoned lock is safe to use.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut queue);
        self.large_bytes.store(queue.held(), Ordering::Relaxed);
        self.queued.store(queue.waiting(), Ordering::Relaxed);
        queue.granted_to().for_each(|thread| self.wakers[thread].wake());
        result
    }

    fn grant(self: &Arc<Self>, bytes: usize, dependent: usize) -> Grant {
        Grant { governor: self.clone(), bytes, dependent }
    }

    /// Requests a plain grant (see `admission`). If the request is queued, `thread` is woken when
    /// it is granted.
    pub(crate) fn request(self: &Arc<Self>, bytes: usize, position: Position, thread: usize) -> Admission {
        match self.with(|queue| queue.request(bytes, position, thread)) {
            Outcome::Granted => Admission::Granted(self.grant(bytes, 0)),
            Outcome::Queued(number) => Admission::Queued(number),
            Outcome::TooLarge => Admission::TooLarge,
        }
    }

    /// A plain grant, if there is room now; nothing is queued.
    pub(crate) fn try_grant(self: &Arc<Self>, bytes: usize) -> Option<Grant> {
        self.with(|queue| queue.try_grant(bytes)).then(|| self.grant(bytes, 0))
    }

    /// A dependent grant, if there is room now; nothing is queued.
    pub(crate) fn try_grant_dependent(self: &Arc<Self>, bytes: usize) -> Option<Grant> {
        self.with(|queue| queue.try_grant_dependent(bytes)).then(|| self.grant(bytes, bytes))
    }

    /// Cancels a queued request.
    pub(crate) fn cancel(&self, number: u64) {
        self.with(|queue| queue.cancel(number));
    }

    /// Takes the grants of this thread's queued requests, with the requests' numbers.
    pub(crate) fn take_granted(self: &Arc<Self>, thread: usize) -> Vec<(u64, Grant)> {
        let granted = self.with(|queue| queue.take_granted(thread));
        granted.into_iter().map(|Granted { number, bytes }| (number, self.grant(bytes, 0))).collect()
    }
}

/// Permission to hold this many bytes of large values.
#[derive(Debug)]
pub(crate) struct Grant {
    governor: Arc<MemoryGovernor>,
    bytes: usize,
    /// How many of the `bytes` count against the limit of dependent grants (module `admission`).
    dependent: usize,
}

impl BufferGrant for Grant {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn split(&mut self, bytes: usize) -> Self {
        assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        let dependent = self.dependent.min(bytes);
        (self.bytes, self.dependent) = (self.bytes - bytes, self.dependent - dependent);
        self.governor.grant(bytes, dependent)
    }

    fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.dependent += std::mem::take(&mut other.dependent);
    }

    fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let kept = self.split(bytes);
            *self = kept;
        }
    }

    fn make_dependent(&mut self) -> bool {
        let plain = self.bytes - self.dependent;
        let is_made = self.governor.with(|queue| queue.make_dependent(plain));
        self.dependent += if is_made { plain } else { 0 };
        is_made
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.governor.with(|queue| queue.release(self.bytes, self.dependent));
        }
    }
}

/// A large value with the grant that covers it. When it is dropped, the bytes are freed before the
/// grant is returned.
#[derive(Debug)]
pub(crate) struct GrantedValue {
    bytes: Vec<u8>,
    /// Returned when the bytes are freed.
    _grant: Grant,
}

impl GrantedValue {
    pub(crate) fn new(bytes: Vec<u8>, grant: Grant) -> Self {
        Self { bytes, _grant: grant }
    }
}

impl AsRef<[u8]> for GrantedValue {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn governor() -> Arc<MemoryGovernor> {
        let wakers = vec![Waker::new().unwrap(), Waker::new().unwrap()];
        Arc::new(MemoryGovernor::new(0, 100, wakers))
    }

    #[test]
    fn a_grant_is_returned_however_it_was_divided() {
        let governor = governor();
        let mut grant = governor.try_grant(50).unwrap();
        let part = grant.split(20);
        assert_eq!((grant.bytes(), part.bytes(), governor.large_bytes()), (30, 20, 50));
        grant.shrink_to(10);
        grant.shrink_to(40);
        assert_eq!((grant.bytes(), governor.large_bytes()), (10, 30));
        grant.join(part);
        assert_eq!((grant.bytes(), governor.large_bytes()), (30, 30));
        assert!(grant.make_dependent());
        grant.shrink_to(29);
        assert!(governor.try_grant_dependent(22).is_none(), "29 and 22 are more than 50");
        let other = governor.try_grant_dependent(21).unwrap();
        drop((grant, other));
        assert!(governor.try_grant_dependent(50).is_some());
        assert_eq!(governor.large_bytes(), 0);
    }

    #[test]
    fn a_queued_request_wakes_its_thread_when_it_is_granted() {
        let governor = governor();
        let held = (governor.try_grant(50), governor.try_grant(50));
        let Admission::Queued(number) = governor.request(40, Position::Back, 1) else {
            panic!("there is no room")
        };
        assert_eq!((governor.queued(), governor.wakers[1].is_raised()), (1, false));
        drop(held.0);
        assert!(governor.wakers[1].is_raised() && !governor.wakers[0].is_raised());
        let granted = governor.take_granted(1);
        assert_eq!((granted[0].0, granted[0].1.bytes(), governor.large_bytes()), (number, 40, 90));
        assert!(matches!(governor.request(51, Position::Back, 0), Admission::TooLarge));
        drop((granted, held.1));
        assert_eq!(governor.large_bytes(), 0);
    }
}
