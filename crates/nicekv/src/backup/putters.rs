//! Those who put what is restored, several keys at once, as long as their values do not take too much memory.

use crate::clients::failed;
use crate::failure::Failure;
use futures_executor::block_on;
use nicekv_client::facade::Client;
use nicekv_wire::Expiry;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most bytes of values that are handed over and not put; a single one may be longer.
const BYTES_MAX: usize = 64 << 20;

/// One key.
pub(super) struct Put {
    pub(super) keyspace: u16,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Putters {
    pub(super) fn new(receiver: Receiver<Put>) -> Self {
        let (receiver, failure) = (Mutex::new(receiver), Mutex::new(None));
        Self { receiver, failure, bytes: Mutex::new(0), is_less: Condvar::new() }
    }

    /// Puts what is handed over, until nobody will hand over more.
    pub(super) fn run(&self, clients: &BTreeMap<u16, Client>) {
        loop {
            let next = locked(&self.receiver).recv();
            let Ok(Put { keyspace, key, value, expiry }) = next else { return };
            // Verified: it is one of the header's.
            if let Some(client) = clients.get(&keyspace)
                && let Err(error) = block_on(client.put(&key, &value, expiry))
            {
                locked(&self.failure).get_or_insert(failed(error));
            }
            *locked(&self.bytes) -= value.len();
            self.is_less.notify_all();
        }
    }

    /// Hands a put over when there is room for it. False: one has failed, and there need be no more.
    pub(super) fn give(&self, puts: &SyncSender<Put>, put: Put) -> bool {
        let has_no_room = |bytes: &mut usize| *bytes > 0 && *bytes + put.value.len() > BYTES_MAX;
        let waited = self.is_less.wait_while(locked(&self.bytes), has_no_room);
        *waited.unwrap_or_else(PoisonError::into_inner) += put.value.len();
        locked(&self.failure).is_none() && puts.send(put).is_ok()
    }

    /// Why not all is put.
    pub(super) fn into_failure(self) -> Option<Failure> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
