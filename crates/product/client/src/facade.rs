//! The asynchronous handle: a cloneable [`Client`] for any executor.
//!
//! ```text
//!  any task: Client::put().await        the client's own thread
//!      │  command ──▶ bounded queue ──▶ CommandQueue::turn ──▶ ClientCore ──▶ socket
//!      │              wake() if idle         │
//!      ◀──────────── oneshot ◀───────────────┘ completions
//! ```
//!
//! [`Client`] is cheap to clone, works under any executor and does no I/O. The thread that owns the [`ClientCore`] and its
//! socket calls [`CommandQueue::turn`] whenever it was woken or has handled input.

mod scanning;

use crate::{Answer, ClientCore, Completion, OperationError, Outcome, Request, SubmitError};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use futures_channel::oneshot;
use nicekv_numbers::Arithmetic;
use nicekv_proto::chunk::Round;
use nicekv_proto::number::LongDouble;
use nicekv_proto::{Condition, Duration, ExpireCondition, Expiry, Form, KeyspaceId, Now, OpId, Operation};
use scanning::Asked;
pub use scanning::{Listed, Pieces};
use std::sync::mpsc;
use thiserror::Error;

/// Commands that wait for the client's thread. More are refused with [`ClientError::QueueFull`].
pub const COMMANDS_MAX: usize = 65_536;

/// Why a call of [`Client`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The request was not sent.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// The request failed, or its outcome is unknown.
    #[error(transparent)]
    Failed(#[from] OperationError),
    /// The request was not sent: too many are waiting.
    #[error("queue full: {limit} requests are waiting for the client's thread")]
    QueueFull {
        /// [`COMMANDS_MAX`].
        limit: usize,
    },
    /// The client's thread has ended. Unanswered updates may have taken effect.
    #[error("the client has been stopped; the outcome of unanswered updates is unknown")]
    Stopped,
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its version, for [`Client::put_if_version`].
    pub version: OpId,
    /// When it expires, in milliseconds of the Unix epoch; `None`: never.
    pub expires_at_ms: Option<u64>,
}

/// An [`Answer`] that owns its value.
#[derive(Clone, Debug)]
struct OwnedAnswer {
    outcome: Outcome,
    version: OpId,
    expiry_ms: u64,
    integer: i64,
    value: Option<Vec<u8>>,
}

impl OwnedAnswer {
    /// An answer whose value must be plain.
    fn plain(answer: Answer<'_>) -> Result<Self, OperationError> {
        let Answer { outcome, version, expiry_ms, integer, value, form } = answer;
        match form {
            Form::Hash => Err(OperationError::WrongType),
            Form::Plain | Form::Long | Form::Large => {
                Ok(Self { outcome, version, expiry_ms, integer, value: value.map(<[u8]>::to_vec) })
            }
        }
    }
}

type Finished = Result<OwnedAnswer, ClientError>;

struct Command {
    keyspace: KeyspaceId,
    key: Vec<u8>,
    /// The value of a set or an append; that in `kind` is empty.
    value: Vec<u8>,
    kind: Kind,
    timeout: Duration,
    finished: oneshot::Sender<Finished>,
}

#[derive(Clone, Copy)]
enum Kind {
    Get,
    Length,
    Publish,
    Scan(Asked),
    Update { condition: Condition, return_old: bool, operation: Operation<'static> },
}

impl Command {
    fn request(&self) -> Request<'_> {
        let key = &self.key;
        match self.kind {
            Kind::Get => Request::Get { key },
            Kind::Length => Request::Length { key },
            Kind::Publish => Request::Publish { channel: key, message: &self.value },
            Kind::Scan(asked) => asked.after(key),
            Kind::Update { condition, return_old, operation } => {
                let operation = match operation {
                    Operation::Set { expiry, .. } => Operation::Set { value: &self.value, expiry },
                    Operation::SetHash { expiry, .. } => Operation::SetHash { fields: &self.value, expiry },
                    Operation::Append(_) => Operation::Append(&self.value),
                    other => other,
                };
                Request::Update { key, condition, return_old, operation }
            }
        }
    }
}

struct Waker {
    /// The thread was woken and has not looked at the queue since.
    woken: AtomicBool,
    wake: Arc<dyn Fn() + Send + Sync>,
    /// Commands in the queue, at most [`COMMANDS_MAX`]. (A bounded channel would allocate all of them at once, 11 MiB.)
    queued: AtomicUsize,
}

/// Connects handles to the thread that runs the core. `wake` must make that thread call [`CommandQueue::turn`] soon. It is
/// called from any thread, at most once per turn, and when the last handle is dropped.
pub fn channel(wake: Arc<dyn Fn() + Send + Sync>) -> (Client, CommandQueue) {
    let (sender, receiver) = mpsc::channel();
    let waker = Arc::new(Waker { woken: AtomicBool::new(false), wake, queued: AtomicUsize::new(0) });
    let shared = Arc::new(Shared { sender: Some(sender), waker: waker.clone() });
    let client = Client { shared, keyspace: KeyspaceId::DEFAULT, timeout: crate::OPERATION_TIMEOUT };
    (client, CommandQueue { receiver, waker, held: None, waiting: Vec::new(), stopped: false })
}

/// The queue's end in the client's thread.
pub struct CommandQueue {
    receiver: mpsc::Receiver<Command>,
    waker: Arc<Waker>,
    /// A command that was taken from the queue when the window had no room.
    held: Option<Command>,
    /// The caller of each request in flight, by the index of its ticket.
    waiting: Vec<Option<oneshot::Sender<Finished>>>,
    stopped: bool,
}

impl CommandQueue {
    /// Passes completions to their callers, then submits waiting commands as long as the core has room.
    pub fn turn(&mut self, now: Now, core: &mut ClientCore) {
        self.waker.woken.store(false, Ordering::SeqCst);
        while let Some(Completion { ticket, result, .. }) = core.poll_event() {
            let finished = self.waiting[ticket.index()].take().expect("submitted by this queue");
            // The caller may have dropped its future.
            let _ = finished.send(result.and_then(OwnedAnswer::plain).map_err(ClientError::from));
        }
        while core.room() > 0 {
            let Some(command) = self.next_command() else { return };
            let deadline_ns = now.after(command.timeout);
            match core.submit(now, command.keyspace, command.request(), deadline_ns) {
                Ok(ticket) => {
                    let index = ticket.index();
                    if self.waiting.len() <= index {
                        self.waiting.resize_with(index + 1, || None);
                    }
                    self.waiting[index] = Some(command.finished);
                }
                Err(error) => {
                    let _ = command.finished.send(Err(error.into()));
                }
            }
        }
        // If nothing were held back, callers would wake a thread that can take no command.
        self.held = self.held.take().or_else(|| self.next_command());
    }

    /// Whether every [`Client`] is gone and nothing is in flight: the thread may end.
    pub fn is_finished(&self, core: &ClientCore) -> bool {
        self.stopped && self.held.is_none() && core.in_flight() == 0
    }

    fn next_command(&mut self) -> Option<Command> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        let received = self.receiver.try_recv();
        self.waker.queued.fetch_sub(usize::from(received.is_ok()), Ordering::Relaxed);
        self.stopped |= matches!(received, Err(mpsc::TryRecvError::Disconnected));
        received.ok()
    }
}

/// A handle on a client. Its calls run concurrently; concurrent calls on one key take effect in any order.
///
/// ```no_run
/// use nicekv_client::facade::{Client, ClientError};
/// use nicekv_proto::Expiry;
///
/// async fn example(client: Client) -> Result<(), ClientError> {
///     client.put(b"color", b"blue", Expiry::Never).await?;
///     let read = client.get(b"color").await?.expect("just put");
///     // Only if nobody has changed it since:
///     let stored = client.put_if_version(b"color", b"green", Expiry::Never, read.version).await?;
///     println!("{} visits, stored: {}", client.increment(b"visits", 1).await?, stored.is_some());
///     Ok(())
/// }
/// ```
///
/// # Errors
/// A call that changes something and gets no answer in time fails with [`OperationError::OutcomeUnknown`]: it may have
/// taken effect. A call that reads fails with [`OperationError::TimedOut`] then.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    keyspace: KeyspaceId,
    timeout: Duration,
}

struct Shared {
    /// `None` only while it is dropped.
    sender: Option<mpsc::Sender<Command>>,
    waker: Arc<Waker>,
}

impl Drop for Shared {
    /// Wakes the thread, which notices that the last handle is gone.
    fn drop(&mut self) {
        self.sender = None;
        (self.waker.wake)();
    }
}

impl Client {
    /// The same client with this timeout for each request, instead of [`OPERATION_TIMEOUT`](crate::OPERATION_TIMEOUT).
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same client for another keyspace than the default one.
    pub fn with_keyspace(&self, keyspace: KeyspaceId) -> Self {
        Self { keyspace, ..self.clone() }
    }

    /// Reads a key; `None` if it has no value.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        let answer = self.run(key, &[], Kind::Get).await?;
        Ok(answer.value.map(|bytes| Value {
            bytes,
            version: answer.version,
            expires_at_ms: (answer.expiry_ms != 0).then_some(answer.expiry_ms),
        }))
    }

    /// The length of a key's value in bytes, without reading it; `None` if it has no value.
    pub async fn length(&self, key: &[u8]) -> Result<Option<u64>, ClientError> {
        let answer = self.run(key, &[], Kind::Length).await?;
        Ok((answer.outcome == Outcome::Done).then_some(answer.integer as u64))
    }

    /// Stores a value and returns its version.
    pub async fn put(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<OpId, ClientError> {
        Ok(self.set(key, value, expiry, Condition::Always, false).await?.version)
    }

    /// Stores a hash, given as its encoded [`Field`](nicekv_proto::hash::Field)s, and returns its version.
    pub async fn put_hash(&self, key: &[u8], fields: &[u8], expiry: Expiry) -> Result<OpId, ClientError> {
        let operation = Operation::SetHash { fields: &[], expiry };
        let kind = Kind::Update { condition: Condition::Always, return_old: false, operation };
        Ok(self.run(key, fields, kind).await?.version)
    }

    /// Stores a value if the key has none. Returns its version; `None`: the key has a value.
    pub async fn put_if_absent(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<Option<OpId>, ClientError> {
        self.put_if(key, value, expiry, Condition::IfAbsent).await
    }

    /// Stores a value if the key has one already. Returns its version; `None`: the key has no value.
    pub async fn put_if_present(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<Option<OpId>, ClientError> {
        self.put_if(key, value, expiry, Condition::IfPresent).await
    }

    /// Stores a value if the key's version is `version`, or with [`OpId::NONE`] if the key has no value. Returns the new
    /// version; `None`: the key has another version.
    pub async fn put_if_version(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        version: OpId,
    ) -> Result<Option<OpId>, ClientError> {
        self.put_if(key, value, expiry, Condition::IfVersion(version)).await
    }

    /// Stores the manifest of an object whose chunks have this stamp or later ones (P9); with `version`, only if the key has
    /// that version. Returns the new version; `None`: the key has another version.
    pub async fn put_stamped(
        &self,
        key: &[u8],
        value: &[u8],
        stamp: Round,
        version: Option<OpId>,
    ) -> Result<Option<OpId>, ClientError> {
        let condition = match version {
            None => Condition::Stamped(stamp),
            Some(version) => Condition::StampedIfVersion { stamp, version },
        };
        self.put_if(key, value, Expiry::Never, condition).await
    }

    /// Stores a value and returns the previous one.
    pub async fn put_and_return_old(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(self.set(key, value, expiry, Condition::Always, true).await?.value)
    }

    /// Removes a key; returns whether it had a value.
    pub async fn delete(&self, key: &[u8]) -> Result<bool, ClientError> {
        self.applied(key, Operation::Delete).await
    }

    /// Adds `delta` to a decimal integer (a key without a value counts as 0) and returns the sum.
    pub async fn increment(&self, key: &[u8], delta: i64) -> Result<i64, ClientError> {
        Ok(self.update(key, Operation::Increment(delta)).await?.integer)
    }

    /// Adds `delta` to a decimal number (a key without a value counts as 0) and returns the stored sum. `delta` means its
    /// shortest decimal representation: 0.1 is a tenth.
    pub async fn increment_float(&self, key: &[u8], delta: f64) -> Result<Vec<u8>, ClientError> {
        let delta = LongDouble::from_f64(delta).filter(|delta| delta.is_finite());
        let delta = delta.ok_or(SubmitError::NotFinite)?;
        let answer = self.update(key, Operation::IncrementFloat(delta)).await?;
        Ok(answer.value.unwrap_or_default())
    }

    /// Appends to a value (a key without a value counts as empty) and returns the new length in bytes.
    pub async fn append(&self, key: &[u8], suffix: &[u8]) -> Result<u64, ClientError> {
        let kind = Kind::Update {
            condition: Condition::Always,
            return_old: false,
            operation: Operation::Append(&[]),
        };
        Ok(self.run(key, suffix, kind).await?.integer as u64)
    }

    /// Sets the expiry of a value to `at_ms`, in milliseconds of the Unix epoch; returns whether there is a value and
    /// `condition` holds.
    pub async fn expire(
        &self,
        key: &[u8],
        at_ms: u64,
        condition: ExpireCondition,
    ) -> Result<bool, ClientError> {
        self.applied(key, Operation::Expire { at_ms, condition }).await
    }

    /// Removes the expiry of a value; returns whether it had one.
    pub async fn persist(&self, key: &[u8]) -> Result<bool, ClientError> {
        self.applied(key, Operation::Persist).await
    }

    /// Publishes a message to the listeners of a channel, each at most once; returns their number.
    pub async fn publish(&self, channel: &[u8], message: &[u8]) -> Result<u64, ClientError> {
        Ok(self.run(channel, message, Kind::Publish).await?.integer as u64)
    }

    async fn put_if(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        condition: Condition,
    ) -> Result<Option<OpId>, ClientError> {
        let answer = self.set(key, value, expiry, condition, false).await?;
        Ok((answer.outcome == Outcome::Done).then_some(answer.version))
    }

    async fn set(
        &self,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        condition: Condition,
        return_old: bool,
    ) -> Finished {
        let operation = Operation::Set { value: &[], expiry };
        self.run(key, value, Kind::Update { condition, return_old, operation }).await
    }

    async fn applied(&self, key: &[u8], operation: Operation<'static>) -> Result<bool, ClientError> {
        Ok(self.update(key, operation).await?.outcome == Outcome::Done)
    }

    async fn update(&self, key: &[u8], operation: Operation<'static>) -> Finished {
        self.run(key, &[], Kind::Update { condition: Condition::Always, return_old: false, operation }).await
    }

    async fn run(&self, key: &[u8], value: &[u8], kind: Kind) -> Finished {
        self.begin(key, value, kind)?.await.unwrap_or(Err(ClientError::Stopped))
    }

    fn begin(
        &self,
        key: &[u8],
        value: &[u8],
        kind: Kind,
    ) -> Result<oneshot::Receiver<Finished>, ClientError> {
        let (finished, answer) = oneshot::channel();
        let Self { keyspace, timeout, .. } = *self;
        let (key, value) = (key.to_vec(), value.to_vec());
        let command = Command { keyspace, key, value, kind, timeout, finished };
        let Shared { sender, waker } = &*self.shared;
        let sender = sender.as_ref().expect("present until dropped");
        if waker.queued.fetch_add(1, Ordering::Relaxed) >= COMMANDS_MAX {
            waker.queued.fetch_sub(1, Ordering::Relaxed);
            return Err(ClientError::QueueFull { limit: COMMANDS_MAX });
        }
        sender.send(command).map_err(|_| ClientError::Stopped)?;
        if !waker.woken.swap(true, Ordering::SeqCst) {
            (waker.wake)();
        }
        Ok(answer)
    }
}
