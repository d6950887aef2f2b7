//! A store that several instances share, and the election among them. It has its own thread, since
//! a store may block.
//!
//! ```text
//!   service's thread                      store's thread
//!   Metadata ──Persist──▶ commands ─────▶ Election ──▶ etcd
//!            ◀── events, lease, outage ◀──         ◀──
//! ```
//!
//! The end of the lease is read together with the events. Otherwise, a leader that was deposed but
//! has not processed that event yet could take the lease of its next election for its current one.

use super::etcd::{Etcd, EtcdError};
use super::keeper::{Keeper, KeeperError};
use crate::{Waker, now};
use nicekv_metadata::{Election, ElectionEvent, LeaseTiming};
use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between compactions of etcd's history, which no one reads.
const HISTORY: Duration = Duration::from_secs(300);

enum Command {
    /// A step of the leader that won this instance's election number `reign`.
    Persist { reign: u64, version: u64, bytes: Vec<u8> },
}

#[derive(Default)]
struct Board {
    events: VecDeque<ElectionEvent>,
    exclusive_until_ns: u64,
    outage: Option<(u64, String)>,
    failure: Option<EtcdError>,
    waker: Option<Waker>,
}

/// The service's side of the store.
pub struct SharedStore {
    board: Arc<Mutex<Board>>,
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    exclusive_until_ns: u64,
    reign: u64,
}

impl SharedStore {
    /// Starts as a standby. `instance` must be random, to distinguish the instances.
    pub fn start(etcd: Etcd, timing: LeaseTiming, instance: u64) -> std::io::Result<Self> {
        let (commands, received) = mpsc::channel();
        let board = Arc::new(Mutex::new(Board::default()));
        let worker = Worker {
            etcd,
            election: Election::new(timing, instance),
            board: board.clone(),
            commands: received,
            reign: 0,
            compact: (now().after(HISTORY), 0),
        };
        let thread = std::thread::Builder::new().name("metadata-store".into()).spawn(|| worker.run())?;
        Ok(Self { board, commands: Some(commands), thread: Some(thread), exclusive_until_ns: 0, reign: 0 })
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }
}

/// Ignores lock poisoning: the board is consistent even after a panic.
fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper for SharedStore {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn register(&mut self, waker: &Waker) {
        self.board().waker = Some(waker.clone());
        waker.wake();
    }

    fn persist(&mut self, version: u64, bytes: Vec<u8>) -> Result<(), KeeperError> {
        let command = Command::Persist { reign: self.reign, version, bytes };
        // If the thread has stopped, the next poll returns its error.
        let _ = self.commands.as_ref().expect("it runs").send(command);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<ElectionEvent>, KeeperError> {
        let mut board = lock(&self.board);
        if let Some(event) = board.events.pop_front() {
            self.reign += u64::from(matches!(event, ElectionEvent::Elected { .. }));
            return Ok(Some(event));
        }
        self.exclusive_until_ns = board.exclusive_until_ns;
        if let Some(failure) = board.failure.take() {
            return Err(failure.into());
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err("the thread of the metadata service's store has ended".into());
        }
        Ok(None)
    }

    fn exclusive_until_ns(&self) -> u64 {
        self.exclusive_until_ns
    }

    fn outage(&self) -> Option<(u64, String)> {
        self.board().outage.clone()
    }
}

impl Drop for SharedStore {
    /// Releases a leader's lease, so that the other instances need not wait until it expires.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The store thread's side.
struct Worker {
    etcd: Etcd,
    election: Election,
    board: Arc<Mutex<Board>>,
    commands: Receiver<Command>,
    reign: u64,
    /// When the leader compacts etcd's history next, and up to which revision.
    compact: (u64, u64),
}

impl Worker {
    fn run(mut self) {
        loop {
            while let Some(request) = self.election.poll_request(now()) {
                match self.etcd.execute(&request) {
                    Ok((answer, reason)) => {
                        self.election.handle_answer(now(), answer);
                        self.publish(reason);
                    }
                    Err(failure) => return self.fail(failure),
                }
                if let Err(RecvTimeoutError::Disconnected) = self.take(Duration::ZERO) {
                    return self.resign();
                }
            }
            self.compact();
            let deadline_ns = self.election.next_deadline().expect("no request is under way");
            let pause = Duration::from_nanos(deadline_ns.saturating_sub(now().boot_ns));
            if let Err(RecvTimeoutError::Disconnected) = self.take(pause) {
                return self.resign();
            }
        }
    }

    fn take(&mut self, pause: Duration) -> Result<(), RecvTimeoutError> {
        let Command::Persist { reign, version, bytes } = self.commands.recv_timeout(pause)?;
        if reign == self.reign {
            self.election.persist(version, bytes);
        }
        Ok(())
    }

    fn publish(&mut self, reason: Option<String>) {
        let mut board = lock(&self.board);
        while let Some(event) = self.election.poll_event() {
            self.reign += u64::from(matches!(event, ElectionEvent::Elected { .. }));
            board.events.push_back(event);
        }
        board.exclusive_until_ns = self.election.exclusive_until_ns();
        let since_ns = board.outage.as_ref().map_or(now().boot_ns, |(since_ns, _)| *since_ns);
        board.outage = reason.map(|reason| (since_ns, reason));
        if let Some(waker) = &board.waker {
            waker.wake();
        }
    }

    fn fail(self, failure: EtcdError) {
        let mut board = lock(&self.board);
        (board.failure, board.exclusive_until_ns) = (Some(failure), 0);
        if let Some(waker) = &board.waker {
            waker.wake();
        }
    }

    /// Releases the lease, because the service has stopped.
    fn resign(mut self) {
        if let Some(request) = self.election.resign() {
            // If etcd does not answer, the others wait until the lease expires.
            let _ = self.etcd.execute(&request);
        }
    }

    /// Compacts etcd's history if it is due: every renewal adds a revision, which etcd keeps until
    /// it is compacted.
    fn compact(&mut self) {
        let (due_ns, revision) = self.compact;
        if now().boot_ns < due_ns || !self.election.is_leader() {
            return;
        }
        if revision > 0 {
            let _ = self.etcd.compact(revision);
        }
        self.compact = (now().after(HISTORY), self.etcd.revision());
    }
}
