//! Threads that put restored keys in parallel, with bounded memory.

use crate::failure::Failure;
use nicekv_proto::{Expiry, Form};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum bytes of values that are queued or being put; a single value may exceed it.
const BYTES_MAX: usize = 64 << 20;

/// A key to put.
pub(super) struct Put {
    pub(super) keyspace: u16,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) form: Form,
    pub(super) expiry: Expiry,
}

pub(super) struct Writers {
    receiver: Mutex<Receiver<Put>>,
    /// The first failure of any thread.
    failure: Mutex<Option<Failure>>,
    /// Bytes of values that are queued or being put.
    bytes: Mutex<usize>,
    is_freed: Condvar,
}

/// Queues puts for the threads, which end when the queue is dropped.
pub(super) struct Queue<'a> {
    writers: &'a Writers,
    puts: SyncSender<Put>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writers {
    /// Creates writers whose queue holds at most `waiting_max` keys.
    pub(super) fn new(waiting_max: usize) -> (Self, SyncSender<Put>) {
        let (puts, receiver) = sync_channel(waiting_max);
        let (receiver, failure) = (Mutex::new(receiver), Mutex::new(None));
        (Self { receiver, failure, bytes: Mutex::new(0), is_freed: Condvar::new() }, puts)
    }

    /// Puts queued keys until the queue is dropped. After a failure the rest is discarded.
    pub(super) fn run(&self, act: impl Fn(&Put) -> Result<(), Failure>) {
        loop {
            let next = locked(&self.receiver).recv();
            let Ok(put) = next else { return };
            if locked(&self.failure).is_none()
                && let Err(failure) = act(&put)
            {
                locked(&self.failure).get_or_insert(failure);
            }
            *locked(&self.bytes) -= put.value.len();
            self.is_freed.notify_all();
        }
    }

    pub(super) fn queue(&self, puts: SyncSender<Put>) -> Queue<'_> {
        Queue { writers: self, puts }
    }

    /// The first failure of any thread, if there was one.
    pub(super) fn into_failure(self) -> Option<Failure> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue<'_> {
    /// Queues a put, after waiting for room. Returns false after a failure.
    pub(super) fn push(&self, put: Put) -> bool {
        let Writers { bytes, is_freed, failure, .. } = self.writers;
        let has_no_room = |bytes: &mut usize| *bytes > 0 && *bytes + put.value.len() > BYTES_MAX;
        let waited = is_freed.wait_while(locked(bytes), has_no_room);
        *waited.unwrap_or_else(PoisonError::into_inner) += put.value.len();
        locked(failure).is_none() && self.puts.send(put).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn put(number: u16) -> Put {
        Put {
            keyspace: number,
            key: vec![1],
            value: vec![0; 1 << 20],
            form: Form::Plain,
            expiry: Expiry::Never,
        }
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_put_after_a_failure() {
        for fails_at in [None, Some(50)] {
            let (writers, puts) = Writers::new(200);
            let (count, held_max) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let act = |put: &Put| {
                count.fetch_add(1, Ordering::Relaxed);
                held_max.fetch_max(*locked(&writers.bytes), Ordering::Relaxed);
                if Some(put.keyspace) == fails_at { Err(Failure::Operation("full".into())) } else { Ok(()) }
            };
            let given = std::thread::scope(|scope| {
                scope.spawn(|| writers.run(act));
                let queue = writers.queue(puts);
                (0..100).filter(|number| queue.push(put(*number))).count()
            });
            assert!(held_max.into_inner() <= BYTES_MAX);
            let (count, failure) = (count.into_inner(), writers.into_failure());
            match fails_at {
                None => assert!(given == 100 && count == 100 && failure.is_none()),
                Some(last) => assert!(count == usize::from(last) + 1 && failure.is_some(), "{count}"),
            }
        }
    }
}
