//! One connection: commands in, replies out, in order.
//!
//! ```text
//!  socket ─▶ input ─▶ Parser ─▶ issue ─▶ requests          pending (oldest first)
//!                       │ blocked?  └──────────────▶ [SET k1 …][GET k2 ✓][MGET k3 … k9 …]
//!                       ▼                                │ the front is answered
//!                    waits here, nothing is read         ▼
//!                                             output ─▶ socket
//! ```
//!
//! Commands are issued in their order and run at the same time, unless they have a key in common: then the later one waits for the
//! earlier one, and what comes behind it waits too. Replies leave in the order of the commands.
//!
//! Invariant: a complete command stays in the parser until it is issued, and no byte is read meanwhile. What a silent or greedy peer
//! costs is therefore bounded by `limits`.

use crate::command::Command;
use crate::error::CommandError;
use crate::limits::{OUTPUT_BYTES_MAX, PIPELINE_MAX, READ_BYTES};
use crate::parser::Parser;
use crate::plan::{Call, Context, Finish, Gathering, Plan, Session};
use crate::reply::{Protocol, ReplyWriter};
use crate::requests::{Origin, Requests};
use nicekv_client::{Answer, OperationError};
use std::collections::{HashSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Kept by an idle connection for the next command.
const IDLE_BYTES: usize = 4 << 10;

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for its peer, or for its own requests.
    Waiting,
    /// It waits for room in the client's window.
    WindowFull,
}

#[derive(Debug)]
enum State {
    One(Finish),
    Many(Gathering),
    Ready(Vec<u8>),
}

/// A command that is not answered yet.
#[derive(Debug)]
struct Pending {
    /// Hashes of its keys, on which later commands wait.
    first_key: Option<u64>,
    other_keys: Vec<u64>,
    state: State,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) stream: TcpStream,
    /// It is in the event loop's list of connections to look at.
    pub(crate) queued: bool,
    parser: Parser,
    input: Vec<u8>,
    output: Vec<u8>,
    pending: VecDeque<Pending>,
    /// Number of the command at the front of `pending`.
    first: u64,
    keys_in_use: HashSet<u64>,
    /// Bytes of replies that wait behind an unfinished command.
    ready_bytes: usize,
    /// The socket may have bytes to read, or be at its end.
    pub(crate) readable: bool,
    /// The peer sends nothing more.
    ended: bool,
    /// Nothing more is read: the last reply was written, or bytes came that are no request.
    closing: bool,
    failed: bool,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, id: u64) -> Self {
        Self {
            session: Session { id, name: Vec::new(), protocol: Protocol::default() },
            stream,
            queued: false,
            parser: Parser::new(),
            input: Vec::new(),
            output: Vec::new(),
            pending: VecDeque::new(),
            first: 0,
            keys_in_use: HashSet::new(),
            ready_bytes: 0,
            readable: true,
            ended: false,
            closing: false,
            failed: false,
        }
    }

    /// Whether a read would bring it on.
    pub(crate) fn wants_read(&self) -> bool {
        self.readable && !self.ended && !self.closing && !self.failed && self.parser.command().is_none()
    }

    /// Whether a complete command waits.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.closing && !self.failed && self.parser.command().is_some()
    }

    /// Whether a command waits for the peer to read replies.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_blocked() && self.waiting_bytes() >= OUTPUT_BYTES_MAX
    }

    /// Whether it is to be closed.
    pub(crate) fn is_finished(&self) -> bool {
        let answered = self.pending.is_empty() && self.output.is_empty();
        self.failed || (answered && (self.closing || (self.ended && !self.is_blocked())))
    }

    /// Reads once.
    pub(crate) fn read(&mut self, buffer: &mut [u8; READ_BYTES]) {
        match self.stream.read(buffer) {
            Ok(0) => self.ended = true,
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(_) => self.failed = true,
        }
    }

    /// Issues what can be issued. `slot` is the connection's own place in the event loop's table.
    pub(crate) fn advance(&mut self, slot: usize, requests: &mut Requests<'_>) -> Progress {
        let mut used = 0;
        let progress = loop {
            if self.closing {
                used = self.input.len();
                break Progress::Waiting;
            }
            match self.parser.parse(&self.input[used..]) {
                Ok(count) => used += count,
                Err(error) => {
                    self.closing = true;
                    self.refuse(&CommandError::text(format!("ERR {error}")));
                    continue;
                }
            }
            if self.parser.command().is_none() {
                break Progress::Waiting;
            }
            if self.pending.len() >= PIPELINE_MAX || self.waiting_bytes() >= OUTPUT_BYTES_MAX {
                break Progress::Waiting;
            }
            match self.issue(slot, requests) {
                None => {
                    requests.server.commands_total += 1;
                    self.parser.release();
                }
                Some(progress) => break progress,
            }
        };
        self.input.drain(..used);
        if self.input.is_empty() {
            self.input.shrink_to(IDLE_BYTES);
        }
        progress
    }

    /// Issues the parser's command; or says what it waits for, having done nothing.
    fn issue(&mut self, slot: usize, requests: &mut Requests<'_>) -> Option<Progress> {
        let arguments = self.parser.command().expect("complete");
        let command = match Command::resolve(arguments) {
            Ok(command) => command,
            Err(error) => {
                self.refuse(&error);
                return None;
            }
        };
        if command.alone && !self.pending.is_empty() {
            return Some(Progress::Waiting);
        }
        let mut keys =
            command.key_indexes(arguments.count()).map(|index| requests.hash(arguments.prefix(index)));
        let (first_key, other_keys) = (keys.next(), keys.collect::<Vec<_>>());
        if first_key.iter().chain(&other_keys).any(|key| self.keys_in_use.contains(key)) {
            return Some(Progress::Waiting);
        }
        let mut written = Vec::new();
        let mut reply = ReplyWriter { out: &mut written, protocol: self.session.protocol };
        let mut context = Context {
            unix_ms: requests.now.unix_ms,
            session: &mut self.session,
            server: requests.server,
            reply: &mut reply,
        };
        let planned = (command.handler)(&mut context, &Call { arguments, name: command.name });
        let origin = Origin {
            slot,
            connection: self.session.id,
            command: self.first + self.pending.len() as u64,
            part: 0,
        };
        let state = match planned {
            Ok(Plan::Replied) => State::Ready(written),
            Ok(Plan::Close) => {
                self.closing = true;
                State::Ready(written)
            }
            Ok(Plan::One(..)) if requests.room() == 0 => return Some(Progress::WindowFull),
            Ok(Plan::Many(parts, _)) if parts.len() > requests.window() => {
                State::Ready(self.error_reply(&CommandError::too_many_keys(parts.len(), requests.window())))
            }
            Ok(Plan::Many(parts, _)) if requests.room() < parts.len() => {
                return Some(Progress::WindowFull);
            }
            Ok(Plan::One(request, finish)) => match requests.submit(request, origin) {
                Ok(()) => State::One(finish),
                Err(error) => State::Ready(self.error_reply(&error.into())),
            },
            Ok(Plan::Many(parts, finish)) => {
                let gathering = Gathering::new(finish, parts.len());
                for (part, request) in (0..).zip(parts) {
                    requests.submit(request, Origin { part, ..origin }).expect("keys were checked, and room");
                }
                State::Many(gathering)
            }
            Err(error) => State::Ready(self.error_reply(&error)),
        };
        match state {
            State::Ready(reply) => self.put_ready(reply),
            state => {
                self.keys_in_use.extend(first_key.iter().chain(&other_keys));
                self.pending.push_back(Pending { first_key, other_keys, state });
            }
        }
        None
    }

    /// The answer to one request of a command.
    pub(crate) fn complete(
        &mut self,
        command: u64,
        part: usize,
        answered: Result<Answer<'_>, OperationError>,
        unix_ms: u64,
    ) {
        let index = (command - self.first) as usize;
        let pending = &mut self.pending[index];
        if let State::Many(gathering) = &mut pending.state
            && !gathering.take(part, answered)
        {
            return;
        }
        for key in pending.first_key.iter().chain(&pending.other_keys) {
            self.keys_in_use.remove(key);
        }
        // The oldest command's reply is written to its place, a later one's waits.
        let mut waiting = Vec::new();
        let out = if index == 0 { &mut self.output } else { &mut waiting };
        let mut reply = ReplyWriter { out, protocol: self.session.protocol };
        match &pending.state {
            State::One(finish) => finish.write(answered, unix_ms, &mut reply),
            State::Many(gathering) => gathering.write(&mut reply),
            State::Ready(_) => unreachable!("command {command} is answered already"),
        }
        self.ready_bytes += waiting.len();
        pending.state = State::Ready(waiting);
        while let Some(Pending { state: State::Ready(reply), .. }) = self.pending.front() {
            self.ready_bytes -= reply.len();
            self.output.extend_from_slice(reply);
            self.pending.pop_front();
            self.first += 1;
        }
    }

    fn refuse(&mut self, error: &CommandError) {
        let reply = self.error_reply(error);
        self.put_ready(reply);
    }

    fn error_reply(&self, error: &CommandError) -> Vec<u8> {
        let mut out = Vec::new();
        ReplyWriter { out: &mut out, protocol: self.session.protocol }.error(error.as_bytes());
        out
    }

    fn put_ready(&mut self, reply: Vec<u8>) {
        if self.pending.is_empty() {
            self.output.extend_from_slice(&reply);
            self.first += 1;
        } else {
            self.ready_bytes += reply.len();
            let state = State::Ready(reply);
            self.pending.push_back(Pending { first_key: None, other_keys: Vec::new(), state });
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.output.len() + self.ready_bytes
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) {
        let mut written = 0;
        while written < self.output.len() && !self.failed {
            match self.stream.write(&self.output[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(_) => self.failed = true,
            }
        }
        self.output.drain(..written);
        if self.output.is_empty() {
            self.output.shrink_to(IDLE_BYTES);
        }
    }
}
