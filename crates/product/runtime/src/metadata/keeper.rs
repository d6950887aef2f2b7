//! Keepers persist the state and decide who leads: a store of a single instance ([`Alone`]), or one
//! that several instances share ([`super::SharedStore`]).

use super::state_file::StateFileError;
use crate::Waker;
use crate::clock::now;
use nicekv_metadata::{ElectionEvent, StateStore};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause between attempts to persist a step on a full disk.
const SPACE_RETRY: Duration = Duration::from_millis(100);

/// If the store fails: since when, by the boot-time clock, and why.
type Outage = Mutex<Option<(u64, String)>>;

/// Any error of a store.
pub type KeeperError = Box<dyn std::error::Error + Send + Sync>;

/// Persists the state and decides whether this instance leads. Its events make the service a leader
/// or a standby.
pub trait Keeper {
    /// Name of the kind of store, for operators.
    fn name(&self) -> &'static str;

    /// Sets the waker that is woken when there are events.
    fn register(&mut self, waker: &Waker);

    /// Starts to persist the leader's next step, one at a time. [`ElectionEvent::Persisted`] or
    /// [`ElectionEvent::Deposed`] follows.
    fn persist(&mut self, version: u64, bytes: Vec<u8>) -> Result<(), KeeperError>;

    /// The next event, if any.
    fn poll(&mut self) -> Result<Option<ElectionEvent>, KeeperError>;

    /// Time until which no other instance can lead: the argument of
    /// [`nicekv_metadata::Metadata::handle_leadership`], as of the last [`Self::poll`] that
    /// returned no event.
    fn exclusive_until_ns(&self) -> u64;

    /// If the store does not respond: since when, by the boot-time clock, and why.
    fn outage(&self) -> Option<(u64, String)>;
}

/// A store of one instance, which leads from the start. It has its own thread, since a busy disk
/// can block for tens of milliseconds.
pub struct Alone {
    steps: Option<Sender<(u64, Vec<u8>)>>,
    stored: Receiver<Result<Stored, KeeperError>>,
    thread: Option<JoinHandle<()>>,
    waker: Arc<OnceLock<Waker>>,
    outage: Arc<Outage>,
    exclusive_until_ns: u64,
}

/// Reports that a step was persisted.
struct Stored {
    version: u64,
    exclusive_until_ns: u64,
}

impl Alone {
    /// Starts the thread. The leader's core was created from the state in `store`.
    pub(super) fn start<S>(store: S) -> io::Result<Self>
    where
        S: StateStore<Error: Into<KeeperError>> + Send + 'static,
    {
        let (steps, received) = mpsc::channel();
        let (reports, stored) = mpsc::channel();
        let waker = Arc::new(OnceLock::new());
        let outage = Arc::new(Outage::default());
        let (exclusive_until_ns, whom) = (store.exclusive_until_ns(), waker.clone());
        let shown = outage.clone();
        let run = move || keep(store, &received, &reports, &whom, &shown);
        let thread = std::thread::Builder::new().name("metadata-store".into()).spawn(run)?;
        Ok(Self { steps: Some(steps), stored, thread: Some(thread), waker, outage, exclusive_until_ns })
    }
}

/// Persists steps until the service ends or a step fails.
fn keep(
    mut store: impl StateStore<Error: Into<KeeperError>>,
    steps: &Receiver<(u64, Vec<u8>)>,
    reports: &Sender<Result<Stored, KeeperError>>,
    waker: &OnceLock<Waker>,
    outage: &Outage,
) {
    let outage = || outage.lock().unwrap_or_else(PoisonError::into_inner);
    for (version, bytes) in steps {
        let stored = loop {
            let stored = store.compare_and_swap(version - 1, &bytes).map_err(Into::into);
            let is_for_space = |error: &KeeperError| {
                error.downcast_ref::<StateFileError>().is_some_and(StateFileError::is_for_space)
            };
            let has_ended = || matches!(steps.try_recv(), Err(TryRecvError::Disconnected));
            match &stored {
                // The disk is full: the step is retried, and the service makes no decisions
                // meanwhile.
                Err(error) if is_for_space(error) && !has_ended() => {
                    let mut outage = outage();
                    let since_ns = outage.as_ref().map_or(now().boot_ns, |(since_ns, _)| *since_ns);
                    *outage = Some((since_ns, error.to_string()));
                    drop(outage);
                    std::thread::sleep(SPACE_RETRY);
                }
                _ => break stored,
            }
        };
        *outage() = None;
        let stored = stored.map(|()| Stored { version, exclusive_until_ns: store.exclusive_until_ns() });
        let is_last = stored.is_err();
        // The service may have stopped; then no one reads events.
        let _ = reports.send(stored);
        if let Some(waker) = waker.get() {
            waker.wake();
        }
        if is_last {
            return;
        }
    }
}

impl Keeper for Alone {
    fn name(&self) -> &'static str {
        "file"
    }

    fn register(&mut self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
        waker.wake();
    }

    fn persist(&mut self, version: u64, bytes: Vec<u8>) -> Result<(), KeeperError> {
        // If the thread has stopped, the next poll returns its error.
        let _ = self.steps.as_ref().expect("it runs").send((version, bytes));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ElectionEvent>, KeeperError> {
        match self.stored.try_recv() {
            Ok(stored) => {
                let Stored { version, exclusive_until_ns } = stored?;
                self.exclusive_until_ns = exclusive_until_ns;
                Ok(Some(ElectionEvent::Persisted { version }))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                Err("the thread of the metadata service's store has ended".into())
            }
        }
    }

    fn exclusive_until_ns(&self) -> u64 {
        self.exclusive_until_ns
    }

    fn outage(&self) -> Option<(u64, String)> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Alone {
    /// Waits until a running step is finished, so that the next process to open the state finds it
    /// complete.
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
