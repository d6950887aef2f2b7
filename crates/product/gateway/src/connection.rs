//! One connection: commands in, replies out, in order.
//!
//! ```text
//!  socket ─▶ input ─▶ Parser ─▶ issue ─▶ requests          unanswered (oldest first)
//!                       │ blocked?  └──────────────▶ [SET k1 …][GET k2 ✓][MGET k3 … k9 …]
//!                       ▼                                │ the front is answered
//!                    waits here, nothing is read         ▼
//!                                             output ─▶ socket
//! ```
//!
//! Commands are issued in their order and run at the same time, unless one has to wait for another (`unanswered`): then what comes
//! behind it waits too. Replies leave in the order of the commands.
//!
//! Invariant: a complete command stays in the parser until all of it is issued, and no byte is read meanwhile. What a silent or greedy
//! peer costs is therefore bounded by `limits`, and what all of them cost by `budget`, and by `permits` what is large.

mod access;
mod bytes;
mod issue;
mod large;
mod subscribing;
mod watching;

pub(crate) use large::too_slow;

use crate::answered::Answered;
use crate::clients::Listed;
use crate::command::Command;
use crate::error::CommandError;
use crate::large_reads::LargeReads;
use crate::limits::{OUTPUT_BYTES_MAX, PIPELINE_MAX};
use crate::pace::Pace;
use crate::parser::Parser;
use crate::plan::Session;
use crate::reply::{Protocol, ReplyWriter};
use crate::requests::Requests;
use crate::rope::Rope;
use crate::stream::Stream;
use crate::unanswered::{Output, Unanswered};
use issue::{Issuing, Rest};
use std::sync::Arc;

/// Kept by a busy connection for the next command.
const SPARE_BYTES: usize = 4 << 10;

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for its peer, or for its own requests.
    Waiting,
    /// It waits for room in the client's window.
    WindowFull,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) stream: Stream,
    /// What it is told when it can hear, and then it is closed.
    pub(crate) refusal: Option<CommandError>,
    /// It is in the event loop's list of connections to look at.
    pub(crate) queued: bool,
    /// It was served since the event loop last looked for idle ones.
    pub(crate) active: bool,
    /// It is in the event loop's list of connections whose replies wait for others.
    pub(crate) delayed: bool,
    /// Bytes that the budget counts for it.
    pub(crate) counted_bytes: usize,
    parser: Parser,
    last_command: Option<&'static Command>,
    input: Vec<u8>,
    output: Rope,
    unanswered: Unanswered,
    issuing: Option<Issuing>,
    pub(crate) reads: LargeReads,
    /// By its number, the question for a large argument that waits.
    asked: Option<u64>,
    pace: Pace,
    /// Bytes so far, in both directions.
    moved: u64,
    /// The socket may have bytes to read, or be at its end.
    pub(crate) readable: bool,
    /// The end was announced: it is to be read.
    pub(crate) hung_up: bool,
    /// The peer sends nothing more.
    ended: bool,
    /// Nothing more is read: the last reply was written, or bytes came that are no request.
    closing: bool,
    failed: bool,
    /// Its last login has failed: it takes no commands until then.
    rests_until_ns: Option<u64>,
    /// It is in the event loop's list of those that rest.
    pub(crate) is_listed: bool,
}

impl Connection {
    /// `value_bytes_max`: longest argument that is kept whole.
    pub(crate) fn new(stream: Stream, id: u64, since_unix_ms: u64, value_bytes_max: usize) -> Self {
        // A peer that has gone again has no address any more.
        let socket = stream.socket();
        let addresses = socket.peer_addr().and_then(|peer| Ok((peer, socket.local_addr()?))).ok();
        let listed = Arc::new(Listed::new(id, addresses, since_unix_ms));
        Self {
            session: Session { id, listed, ..Session::default() },
            stream,
            refusal: None,
            queued: false,
            active: true,
            delayed: false,
            counted_bytes: 0,
            parser: Parser::new(value_bytes_max),
            last_command: None,
            input: Vec::new(),
            output: Rope::default(),
            unanswered: Unanswered::default(),
            issuing: None,
            reads: LargeReads::default(),
            asked: None,
            pace: Pace::default(),
            moved: 0,
            readable: true,
            hung_up: false,
            ended: false,
            closing: false,
            failed: false,
            rests_until_ns: None,
            is_listed: false,
        }
    }

    /// Whether a read would bring it on.
    pub(crate) fn wants_read(&self) -> bool {
        let has_room = self.parser.command().is_none() && self.parser.wants().is_none();
        let has_room = has_room && self.rests_until_ns.is_none();
        self.readable && !self.ended && !self.closing && !self.failed && has_room
    }

    /// Whether a complete command waits, or may.
    pub(crate) fn is_blocked(&self) -> bool {
        let waits = self.parser.command().is_some() || self.rests_until_ns.is_some();
        !self.closing && !self.failed && waits
    }

    /// Whether a command waits for the peer to read replies.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_blocked() && self.waiting_bytes() >= OUTPUT_BYTES_MAX
    }

    /// Whether it is to be closed.
    pub(crate) fn is_finished(&self) -> bool {
        let answered = self.unanswered.is_empty() && self.output.is_empty() && !self.stream.has_unsent();
        self.failed || (answered && (self.closing || (self.ended && !self.is_blocked())))
    }

    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        let issuing = match &self.issuing {
            Some(Issuing { rest: Rest::Many { many, .. }, .. }) => many.keys.capacity(),
            _ => 0,
        };
        size_of::<Self>()
            + self.session.name.capacity()
            + self.session.multi.memory()
            + self.session.subscribed.memory()
            + self.input.capacity()
            + self.output.memory()
            + self.stream.memory()
            + self.parser.memory()
            + self.reads.memory()
            + self.unanswered.memory()
            + issuing * size_of::<u32>()
    }

    /// Gives back what it does not use.
    pub(crate) fn shrink(&mut self) {
        self.input.shrink_to_fit();
        self.output.shrink_to(0);
        self.parser.shrink();
        self.unanswered.shrink();
    }

    /// Issues what can be issued. `slot` is the connection's own place in the event loop's table.
    pub(crate) fn advance(&mut self, slot: usize, requests: &mut Requests<'_>) -> Progress {
        let mut used = 0;
        let progress = loop {
            if self.closing {
                used = self.input.len();
                break Progress::Waiting;
            }
            if self.still_rests(requests.now) {
                break Progress::Waiting;
            }
            self.parser.set_strangers(self.session.standing.user().is_none());
            match self.parser.parse(&self.input[used..]) {
                Ok(count) => used += count,
                Err(error) => {
                    self.closing = true;
                    self.refuse(&CommandError::text(format!("ERR {error}")));
                    continue;
                }
            }
            if let Some(wants) = self.parser.wants() {
                if self.ask_for_argument(slot, wants, requests) {
                    continue;
                }
                break Progress::Waiting;
            }
            if self.parser.command().is_none() {
                break Progress::Waiting;
            }
            let held_back = self.unanswered.len() >= PIPELINE_MAX || self.waiting_bytes() >= OUTPUT_BYTES_MAX;
            if held_back && self.issuing.is_none() {
                break Progress::Waiting;
            }
            let issued = if self.issuing.is_none() { self.issue(slot, requests) } else { Ok(()) };
            if let Err(progress) = issued.and_then(|()| self.issue_rest(slot, requests)) {
                break progress;
            }
            requests.member.own().commands.add(1);
            self.session.quiet.go_on();
            self.parser.release();
            self.rest_after_failure(requests.now);
        };
        self.input.drain(..used);
        if self.input.is_empty() {
            self.input.shrink_to(SPARE_BYTES);
        }
        progress
    }

    /// Requests of a command that are not sent yet.
    fn unsent_of(&self, of: u64) -> usize {
        match &self.issuing {
            Some(Issuing { command, rest: Rest::Many { many, sent }, .. }) if *command == of => {
                many.keys.len() - sent
            }
            _ => 0,
        }
    }

    /// The answer to one request of a command.
    pub(crate) fn complete(&mut self, command: u64, part: usize, answered: Answered<'_>, unix_ms: u64) {
        let output = Output { bytes: &mut self.output, protocol: self.session.protocol, unix_ms };
        self.unanswered.complete(command, part, answered, output);
        self.take_watched();
    }

    /// If a WATCH has been answered, notes what it has read.
    fn take_watched(&mut self) {
        if let Some(versions) = self.unanswered.take_watched() {
            self.session.multi.watched(versions);
        }
    }

    fn refuse(&mut self, error: &CommandError) {
        let reply = self.error_reply(error);
        self.unanswered.push_ready(reply, &mut self.output);
    }

    fn error_reply(&self, error: &CommandError) -> Rope {
        error_reply(error, self.session.protocol)
    }

    fn waiting_bytes(&self) -> usize {
        self.output.len() + self.unanswered.ready_bytes()
    }
}

fn error_reply(error: &CommandError, protocol: Protocol) -> Rope {
    let mut out = Rope::default();
    ReplyWriter { out: &mut out, protocol }.error(error.as_bytes());
    out
}
