//! Number of subscribers of each channel and pattern, over all threads, for PUBSUB.

use nicekv_client::Topic;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct SubscriberCounts(Mutex<BTreeMap<Topic, usize>>);

impl SubscriberCounts {
    /// No operation panics halfway, so a poisoned lock is safe to use.
    pub(crate) fn counts(&self) -> MutexGuard<'_, BTreeMap<Topic, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, name: Topic) {
        *self.counts().entry(name).or_default() += 1;
    }

    pub(crate) fn remove(&self, name: &Topic) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(name);
            }
        }
    }
}
