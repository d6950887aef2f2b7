//! Those who put what is restored, several keys at once, as long as their values do not take too much memory.

use crate::failure::Failure;
use nicekv_proto::{Expiry, Form};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most bytes of values that are handed over and not put; a single one may be longer.
const BYTES_MAX: usize = 64 << 20;

/// One key.
pub(super) struct Put {
    pub(super) keyspace: u16,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// What the value is.
    pub(super) form: Form,
    pub(super) expiry: Expiry,
}

/// See the module.
pub(super) struct Putters {
    receiver: Mutex<Receiver<Put>>,
    /// What the first of them met that could not.
    failure: Mutex<Option<Failure>>,
    /// Bytes of values that are handed over and not put.
    bytes: Mutex<usize>,
    is_less: Condvar,
}

/// Who hands puts over to them. They end with it.
pub(super) struct Giver<'a> {
    putters: &'a Putters,
    puts: SyncSender<Put>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Putters {
    /// So many keys may wait for them.
    pub(super) fn new(waiting_max: usize) -> (Self, SyncSender<Put>) {
        let (puts, receiver) = sync_channel(waiting_max);
        let (receiver, failure) = (Mutex::new(receiver), Mutex::new(None));
        (Self { receiver, failure, bytes: Mutex::new(0), is_less: Condvar::new() }, puts)
    }

    /// Puts what is handed over, until nobody will hand over more. After a failure nothing is put any more.
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
            self.is_less.notify_all();
        }
    }

    /// By whom puts are handed over.
    pub(super) fn giver(&self, puts: SyncSender<Put>) -> Giver<'_> {
        Giver { putters: self, puts }
    }

    /// Why not all is put.
    pub(super) fn into_failure(self) -> Option<Failure> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Giver<'_> {
    /// Hands a put over when there is room for it. False: one has failed, and there need be no more.
    pub(super) fn give(&self, put: Put) -> bool {
        let Putters { bytes, is_less, failure, .. } = self.putters;
        let has_no_room = |bytes: &mut usize| *bytes > 0 && *bytes + put.value.len() > BYTES_MAX;
        let waited = is_less.wait_while(locked(bytes), has_no_room);
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
    fn all_is_put_in_bounded_memory_and_nothing_after_a_failure() {
        for fails_at in [None, Some(50)] {
            let (putters, puts) = Putters::new(200);
            let (count, held_max) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let act = |put: &Put| {
                count.fetch_add(1, Ordering::Relaxed);
                held_max.fetch_max(*locked(&putters.bytes), Ordering::Relaxed);
                if Some(put.keyspace) == fails_at { Err(Failure::Operation("full".into())) } else { Ok(()) }
            };
            let given = std::thread::scope(|scope| {
                scope.spawn(|| putters.run(act));
                let giver = putters.giver(puts);
                (0..100).filter(|number| giver.give(put(*number))).count()
            });
            assert!(held_max.into_inner() <= BYTES_MAX);
            let (count, failure) = (count.into_inner(), putters.into_failure());
            match fails_at {
                None => assert!(given == 100 && count == 100 && failure.is_none()),
                Some(last) => assert!(count == usize::from(last) + 1 && failure.is_some(), "{count}"),
            }
        }
    }
}
