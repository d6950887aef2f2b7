//! Group commit: one thread, one fdatasync for all waiting requests.
//!
//! ```text
//!   request(7) ─┐            request(8), request(9) ─┐
//!               ▼ fdatasync ───────────────▶ notify(7) ▼ fdatasync ──▶ notify(9)
//! ```
//!
//! Requests that arrive during a sync are served together by the next one, because the running one
//! may have begun before their bytes were written.

use super::{LogPosition, LogSync};
use crate::Result;
use std::{
    sync::{Arc, Condvar, Mutex},
    thread::{Builder, JoinHandle},
};

/// Called after every sync with the position that is durable now, or with the log's failure. Runs
/// on the sync thread.
pub type SyncNotifier = Box<dyn Fn(Result<LogPosition>) + Send>;

/// The sync thread. Dropping it waits for a running sync and drops pending requests.
pub struct GroupCommit {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

struct Queue {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    /// Highest position requested since the last sync began. A single number: requests need no
    /// queue.
    position: Option<LogPosition>,
    closed: bool,
}

impl GroupCommit {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(sync: LogSync, notify: SyncNotifier) -> std::io::Result<Self> {
        let queue = Arc::new(Queue { wanted: Mutex::default(), changed: Condvar::new() });
        let for_thread = queue.clone();
        let run = move || {
            while for_thread.next().is_some() {
                notify(sync.sync());
            }
        };
        let thread = Builder::new().name("log-sync".into()).spawn(run)?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Requests that `position` becomes durable, which [`super::Log::write`] must have handed over
    /// before. Every request is followed by a notification of at least `position`, or of an error.
    pub fn request(&self, position: LogPosition) {
        let mut wanted = self.queue.wanted.lock().expect("no holder of this lock panics");
        wanted.position = wanted.position.max(Some(position));
        self.queue.changed.notify_one();
    }
}

impl Queue {
    fn next(&self) -> Option<LogPosition> {
        let wanted = self.wanted.lock().expect("no holder of this lock panics");
        let idle = |wanted: &mut Wanted| wanted.position.is_none() && !wanted.closed;
        let mut wanted = self.changed.wait_while(wanted, idle).expect("no holder of this lock panics");
        if wanted.closed { None } else { wanted.position.take() }
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        self.queue.wanted.lock().expect("no holder of this lock panics").closed = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of the notifier has been reported on its own thread
        }
    }
}
