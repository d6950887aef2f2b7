//! Runs scripts in a separate process.
//!
//! ```text
//!   node's thread                                     worker
//!     │── cpu bound, call, keys with states ──────────▶│ LuaScripts on LentKeys, under a timer of processor time
//!     │◀───────────────────── end, keys that it wrote ─│
//! ```
//!
//! A worker is another process of the same program; it is started for the first script, and kept. A
//! script takes one message each way, however many commands it calls. The worker runs one script at
//! a time, is confined (`confine`), and may end at any time: the interpreter crashes, the kernel
//! kills it because a script exceeds its CPU time, or somebody kills it. Then a new worker replaces
//! it. A script that exceeds its CPU time fails, and so does one that has crashed two workers.
//!
//! The node's thread waits for a script for at most [`WAIT_NS_MAX`], and for all scripts of a turn
//! for at most [`TURN_WAIT_NS_MAX`]; longer scripts continue in the background ([`ScriptEngine`]).
//!
//! The worker ends when its socket is closed, so it outlives its node by at most the time of a
//! script. (A parent-death signal would not work: it is sent at the end of the *thread* that
//! started the worker, and nodes change threads.)

mod child;
mod confine;
mod message;

pub use child::serve;

use message::Outcome;
use nicekv_replica::{ScriptCall, ScriptEnd, ScriptEngine, ScriptRun, ScriptStates};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum CPU time of a script.
pub const CPU_MS_MAX: u32 = 200;
/// The same for a script that another node may already have run and answered. It is so much longer
/// that the script exceeds it only if it would have exceeded the usual limit there, too.
const CPU_MS_MAX_RECOVERED: u32 = 3 * CPU_MS_MAX;
/// Maximum wall-clock time of a script, in case the worker is stopped or has disarmed its timer. It
/// is shorter than the timeout of clients.
const WALL_MAX: Duration = Duration::from_secs(4);
const WALL_MAX_RECOVERED: Duration = Duration::from_secs(20);
/// How long the node's thread waits for one script.
const WAIT_NS_MAX: u64 = 2_000_000;
/// How long the node's thread waits for all scripts of a turn.
const TURN_WAIT_NS_MAX: u64 = 4_000_000;
/// A script that has crashed this many workers fails.
const CRASHES_MAX: u32 = 2;
/// Name of the worker in lists of processes.
const NAME: &str = "nicekv";
const READ_BYTES: usize = 16 << 10;

/// Runs scripts in a worker process.
#[derive(Debug)]
pub struct WorkerScripts {
    program: PathBuf,
    arguments: Vec<OsString>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    worker: Option<Worker>,
    job: Option<Job>,
    waited_ns: u64,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    socket: UnixStream,
}

/// A script that is running, or whose result has not been taken yet.
#[derive(Debug)]
struct Job {
    run: ScriptRun,
    cpu_ms: u32,
    request: Vec<u8>,
    sent: usize,
    answer: Vec<u8>,
    crashes: u32,
    started: Instant,
    end: Option<End>,
}

/// How a job ended.
#[derive(Debug)]
enum End {
    /// The answer is complete.
    Answered,
    /// There will be no answer, for this reason.
    Lost(String),
}

impl WorkerScripts {
    /// Workers run `program` with these arguments; it must then call [`serve`].
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self { program, arguments, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> io::Result<Worker> {
        let (socket, other) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        let child = Command::new(&self.program)
            .arg0(NAME)
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(other)))
            .stdout(Stdio::null())
            // Another process group: Ctrl-C must reach only the node, which then ends its worker.
            .process_group(0)
            .spawn()?;
        Ok(Worker { child, socket })
    }

    /// Continues the job for at most this time, or until it ends.
    fn advance(&self, state: &mut State, wait_ns: u64) {
        let began = Instant::now();
        let State { worker, job, .. } = state;
        let Some(job) = job.as_mut().filter(|job| job.end.is_none()) else { return };
        loop {
            if worker.is_none() {
                match self.start() {
                    Ok(started) => *worker = Some(started),
                    Err(error) => return job.lose(format!("its process could not be started: {error}")),
                }
            }
            let Some(running) = worker.as_mut() else { return };
            match job.transfer(running) {
                Ok(true) => {
                    job.end = Some(End::Answered);
                    return;
                }
                Ok(false) => {
                    let wall_max = if job.run.is_recovered { WALL_MAX_RECOVERED } else { WALL_MAX };
                    if job.started.elapsed() > wall_max {
                        worker.take().map(Worker::end);
                        return job.lose(format!("its process has not answered for {wall_max:?}"));
                    }
                    let left_ns = wait_ns.saturating_sub(began.elapsed().as_nanos() as u64);
                    if left_ns == 0 {
                        return;
                    }
                    running.wait(job.sent < job.request.len(), left_ns);
                }
                Err(_) => {
                    let status = worker.take().and_then(Worker::end);
                    job.on_crash(status);
                    if job.end.is_some() {
                        return;
                    }
                }
            }
        }
    }
}

impl ScriptEngine for WorkerScripts {
    fn run(&self, run: &ScriptRun, call: &ScriptCall<'_>, keys: &mut dyn ScriptStates) -> Option<ScriptEnd> {
        let state = &mut *self.state();
        self.advance(state, 0);
        let is_of = |job: &Job| (job.run.op, job.run.step) == (run.op, run.step);
        match &state.job {
            Some(job) if job.end.is_none() => return None,
            // The other script's result is no longer needed.
            Some(job) if !is_of(job) => state.job = None,
            _ => {}
        }
        let cpu_ms = if run.is_recovered { CPU_MS_MAX_RECOVERED } else { CPU_MS_MAX };
        let request = message::job(cpu_ms, call, keys);
        if state.job.as_ref().is_none_or(|job| job.request != request) {
            state.job = Some(Job::new(*run, cpu_ms, request));
            let wait_ns = WAIT_NS_MAX.min(TURN_WAIT_NS_MAX.saturating_sub(state.waited_ns));
            let began = Instant::now();
            self.advance(state, wait_ns);
            state.waited_ns += began.elapsed().as_nanos() as u64;
        }
        let job = state.job.take_if(|job| job.end.is_some())?;
        let end = job.take_end(keys);
        if end.is_none() {
            // A healthy worker does not send an invalid answer, so it is replaced.
            state.worker.take().map(Worker::end);
        }
        Some(end.unwrap_or_else(|| lost("its process has sent an invalid answer")))
    }

    fn is_busy(&self) -> bool {
        let state = &mut *self.state();
        self.advance(state, 0);
        state.job.as_ref().is_some_and(|job| job.end.is_none())
    }

    fn end_turn(&self) {
        self.state().waited_ns = 0;
    }
}

impl Drop for WorkerScripts {
    fn drop(&mut self) {
        self.state().worker.take().map(Worker::end);
    }
}

impl Worker {
    /// Waits until the socket is readable or, if `for_writing`, writable.
    fn wait(&self, for_writing: bool, ns: u64) {
        let flags = if for_writing { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec { tv_sec: 0, tv_nsec: ns.min(999_999_999) as i64 };
        // An error of `poll` will show in the next transfer.
        let _ = poll(&mut [PollFd::new(&self.socket, flags)], Some(&timeout));
    }

    /// Kills the worker unless it has already ended, and returns its exit status.
    fn end(mut self) -> Option<ExitStatus> {
        // If the worker has closed its socket, it has exited: the signal comes too late to change
        // its exit status.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let ended = self.child.try_wait().ok().flatten();
        ended.or_else(|| {
            let _ = self.child.kill();
            self.child.wait().ok()
        })
    }
}

impl Job {
    fn new(run: ScriptRun, cpu_ms: u32, request: Vec<u8>) -> Self {
        let started = Instant::now();
        Self { run, cpu_ms, request, sent: 0, answer: Vec::new(), crashes: 0, started, end: None }
    }

    /// Sends and receives as much as possible. Returns whether the answer is complete.
    fn transfer(&mut self, worker: &mut Worker) -> io::Result<bool> {
        while self.sent < self.request.len() {
            match worker.socket.write(&self.request[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            if let Some(length) = message::length(&self.answer)? {
                match self.answer.len().cmp(&length) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Ok(true),
                    std::cmp::Ordering::Greater => return Err(ErrorKind::InvalidData.into()),
                }
            }
            match worker.socket.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn on_crash(&mut self, status: Option<ExitStatus>) {
        if status.and_then(|status| status.signal()) == Some(confine::CPU_BOUND_SIGNAL) {
            return self.lose(self.over());
        }
        self.crashes += 1;
        if self.crashes == CRASHES_MAX {
            let how = status.map_or_else(|| "unknown".into(), |status| status.to_string());
            return self.lose(format!("it has crashed its process twice ({how}); please report it"));
        }
        (self.sent, self.started) = (0, Instant::now());
        self.answer.clear();
    }

    fn over(&self) -> String {
        format!("it takes more than {} ms of processor time", self.cpu_ms)
    }

    fn lose(&mut self, reason: String) {
        self.end = Some(End::Lost(reason));
    }

    /// Takes the result, after importing the keys that the script wrote; `None` if the answer is
    /// invalid.
    fn take_end(self, keys: &mut dyn ScriptStates) -> Option<ScriptEnd> {
        match self.end? {
            End::Lost(reason) => Some(lost(&reason)),
            End::Answered => {
                let outcome = Outcome::decode(&self.answer[message::HEAD_BYTES..]).ok()?;
                keys.import(outcome.written).ok()?;
                Some(outcome.end)
            }
        }
    }
}

/// The result of a script that was not completed.
fn lost(reason: &str) -> ScriptEnd {
    let reply = format!("-ERR Script killed: {reason}\r\n").into_bytes();
    ScriptEnd { reply, has_failed: true, may_differ: true }
}
