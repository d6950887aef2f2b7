//! What keeps the state, and says who leads: a store of its own ([`Alone`]), or one that several instances share
//! ([`super::SharedStore`]).

use crate::Waker;
use nicekv_metadata::{ElectionEvent, StateStore};

/// An error of whatever kind.
pub type KeeperError = Box<dyn std::error::Error + Send + Sync>;

/// See the module. What it reports decides what the service is: nobody, or the leader.
pub trait Keeper {
    /// A name for operators.
    fn name(&self) -> &'static str;

    /// Whom to wake when there is something to poll.
    fn register(&mut self, waker: &Waker);

    /// The leader's next step. One at a time; [`ElectionEvent::Persisted`] follows, or [`ElectionEvent::Deposed`].
    fn persist(&mut self, version: u64, bytes: Vec<u8>) -> Result<(), KeeperError>;

    /// What has happened.
    fn poll(&mut self) -> Result<Option<ElectionEvent>, KeeperError>;

    /// For [`nicekv_metadata::Metadata::handle_leadership`], as of the last [`Self::poll`] that had nothing more to say.
    fn exclusive_until_ns(&self) -> u64;

    /// Since when it does not answer, by the boot-time clock, and why.
    fn outage(&self) -> Option<(u64, String)>;
}

/// A store that nobody else can use: its owner leads from the beginning.
pub struct Alone<S> {
    store: S,
    persisted: Option<u64>,
}

impl<S> Alone<S> {
    /// Of a store whose state the leader was made of.
    pub(super) fn new(store: S) -> Self {
        Self { store, persisted: None }
    }
}

impl<S: StateStore<Error: Into<KeeperError>>> Keeper for Alone<S> {
    fn name(&self) -> &'static str {
        "file"
    }

    fn register(&mut self, _: &Waker) {}

    fn persist(&mut self, version: u64, bytes: Vec<u8>) -> Result<(), KeeperError> {
        self.store.compare_and_swap(version - 1, &bytes).map_err(Into::into)?;
        self.persisted = Some(version);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ElectionEvent>, KeeperError> {
        Ok(self.persisted.take().map(|version| ElectionEvent::Persisted { version }))
    }

    fn exclusive_until_ns(&self) -> u64 {
        self.store.exclusive_until_ns()
    }

    fn outage(&self) -> Option<(u64, String)> {
        None
    }
}
