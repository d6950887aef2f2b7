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
//! Commands are issued in order and run at the same time, unless one has to wait for another
//! (`unanswered`): then later ones wait, too. Replies leave in the order of the commands.
//!
//! Invariant: a complete command stays in the parser until all of it is issued, and no byte is read
//! meanwhile. So the cost of a silent or greedy peer is bounded by `limits`, and that of all by `memory`.

mod access;
mod accounting;
mod io;
mod issue;
mod large_values;
mod subscribing;

pub(crate) use large_values::too_slow;

use crate::clients::ClientEntry;
use crate::limits::{OUTPUT_BYTES_MAX, PIPELINE_MAX};
use crate::memory::{Grant, LargeReads, PeerProgress};
use crate::requests::Requests;
use crate::stream::Stream;
use crate::unanswered::{Output, Unanswered};
use nicekv_redis::answered::Answered;
use nicekv_redis::command::Command;
use nicekv_redis::continuation::Effect;
use nicekv_redis::error::CommandError;
use nicekv_redis::resp::{Parser, Protocol, ReplyBuffer, ReplyWriter};
use nicekv_redis::session::Session;
use nicekv_redis::subscription::SubscriptionChange;
use std::sync::Arc;

/// Capacity that the buffers of a busy connection keep for the next command.
const SPARE_BYTES: usize = 4 << 10;

/// Why a connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for bytes from its peer, or for answers to its requests.
    Waiting,
    /// It waits until the client's window has room for another request.
    WindowFull,
}

/// A command whose requests are only partly sent. It is the newest unanswered command.
#[derive(Clone, Copy, Debug)]
struct Issuing {
    called: &'static Command,
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) session: Session,
    /// The connection's entry in CLIENT LIST, which other threads read.
    pub(crate) client: Arc<ClientEntry>,
    pub(crate) stream: Stream,
    /// An error to send once the TLS handshake is done; the connection is closed after it.
    pub(crate) refusal: Option<CommandError>,
    /// The connection is in the event loop's queue.
    pub(crate) queued: bool,
    /// The connection was served since the event loop last looked for idle ones.
    pub(crate) active: bool,
    /// The connection is in the event loop's list of delayed replies.
    pub(crate) delayed: bool,
    /// Its memory as last counted by its thread, in bytes.
    pub(crate) counted_bytes: usize,
    parser: Parser<Grant>,
    last_command: Option<&'static Command>,
    input: Vec<u8>,
    output: ReplyBuffer,
    unanswered: Unanswered,
    issuing: Option<Issuing>,
    pub(crate) reads: LargeReads,
    /// Number of the queued memory request for the argument that is being read.
    queued_argument: Option<u64>,
    progress: PeerProgress,
    /// Bytes read and written so far.
    moved: u64,
    /// The socket may have bytes to read, or the end of the stream.
    pub(crate) readable: bool,
    /// The kernel has reported the end of the stream, which is not read yet.
    pub(crate) hung_up: bool,
    /// The peer has closed its sending side.
    ended: bool,
    /// Nothing more is read, because the last reply was written or the peer violated the protocol.
    closing: bool,
    failed: bool,
    /// No commands are taken until then (boot-time clock), after a failed login or during CLIENT
    /// PAUSE.
    held_until_ns: Option<u64>,
    /// The connection is in the event loop's list of held connections.
    pub(crate) is_listed: bool,
}

impl Connection {
    /// `value_bytes_max`: longer arguments are discarded while they arrive.
    pub(crate) fn new(stream: Stream, id: u64, since_unix_ms: u64, value_bytes_max: usize) -> Self {
        // A peer that has disconnected has no address.
        let socket = stream.socket();
        let addresses = socket.peer_addr().and_then(|peer| Ok((peer, socket.local_addr()?))).ok();
        let client = Arc::new(ClientEntry::new(id, addresses, since_unix_ms));
        Self {
            session: Session { id, ..Session::default() },
            client,
            stream,
            refusal: None,
            queued: false,
            active: true,
            delayed: false,
            counted_bytes: 0,
            parser: Parser::new(value_bytes_max),
            last_command: None,
            input: Vec::new(),
            output: ReplyBuffer::default(),
            unanswered: Unanswered::default(),
            issuing: None,
            reads: LargeReads::default(),
            queued_argument: None,
            progress: PeerProgress::default(),
            moved: 0,
            readable: true,
            hung_up: false,
            ended: false,
            closing: false,
            failed: false,
            held_until_ns: None,
            is_listed: false,
        }
    }

    /// Whether the connection is ready to read more bytes.
    pub(crate) fn wants_read(&self) -> bool {
        let has_room = self.parser.command().is_none() && self.parser.wants().is_none();
        let has_room = has_room && self.held_until_ns.is_none();
        self.readable && !self.ended && !self.closing && !self.failed && has_room
    }

    /// Whether a complete command is ready, but has to wait.
    pub(crate) fn is_blocked(&self) -> bool {
        let waits = self.parser.command().is_some() || self.held_until_ns.is_some();
        !self.closing && !self.failed && waits
    }

    /// Whether a command waits for the peer to read replies.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_blocked() && self.waiting_bytes() >= OUTPUT_BYTES_MAX
    }

    /// Whether the event loop should close it now.
    pub(crate) fn is_finished(&self) -> bool {
        let answered = self.unanswered.is_empty() && self.output.is_empty() && !self.stream.has_unsent();
        self.failed || (answered && (self.closing || (self.ended && !self.is_blocked())))
    }

    /// Bytes of memory that the connection occupies.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.session.name.capacity()
            + self.session.multi.memory()
            + self.session.subscriptions.memory()
            + self.input.capacity()
            + self.output.memory()
            + self.stream.memory()
            + self.parser.memory()
            + self.reads.memory()
            + self.unanswered.memory()
    }

    /// Frees unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.input.shrink_to_fit();
        self.output.shrink_to(0);
        self.parser.shrink();
        self.unanswered.shrink();
    }

    /// Issues the commands that have arrived, until one has to wait. `slot`: index of the
    /// connection in the event loop's table.
    pub(crate) fn advance(&mut self, slot: usize, requests: &mut Requests<'_>) -> Progress {
        let mut used = 0;
        let progress = loop {
            if self.closing {
                used = self.input.len();
                break Progress::Waiting;
            }
            if self.is_held(requests.now) {
                break Progress::Waiting;
            }
            self.parser.set_unauthenticated(self.session.login.user().is_none());
            match self.parser.parse(&self.input[used..]) {
                Ok(count) => used += count,
                Err(error) => {
                    self.closing = true;
                    self.refuse(&CommandError::text(format!("ERR {error}")));
                    continue;
                }
            }
            if let Some(wants) = self.parser.wants() {
                if self.request_argument_memory(slot, wants, requests) {
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
            self.session.reply_mode.next_command();
            self.parser.release();
            self.hold_after_failed_login(requests.now);
        };
        self.input.drain(..used);
        if self.input.is_empty() {
            self.input.shrink_to(SPARE_BYTES);
        }
        progress
    }

    /// Processes the answer to one request of a command. If the command has finished and changed
    /// subscriptions, these are updated.
    pub(crate) fn complete(
        &mut self,
        command: u64,
        part: usize,
        answered: Answered<'_>,
        unix_ms: u64,
    ) -> Option<SubscriptionChange> {
        let output = Output { bytes: &mut self.output, protocol: self.session.protocol, unix_ms };
        let effect = self.unanswered.complete(command, part as u32, answered, output)?;
        self.apply(effect)
    }

    fn apply(&mut self, effect: Effect) -> Option<SubscriptionChange> {
        match effect {
            Effect::None => None,
            Effect::Watched(versions) => {
                self.session.multi.set_watched(versions);
                None
            }
            Effect::Subscribed(change) => Some(change),
        }
    }

    fn refuse(&mut self, error: &CommandError) {
        let reply = self.error_reply(error);
        self.unanswered.push_ready(reply, &mut self.output);
    }

    fn error_reply(&self, error: &CommandError) -> ReplyBuffer {
        error_reply(error, self.session.protocol)
    }

    fn waiting_bytes(&self) -> usize {
        self.output.len() + self.unanswered.ready_bytes()
    }
}

fn error_reply(error: &CommandError, protocol: Protocol) -> ReplyBuffer {
    let mut out = ReplyBuffer::default();
    ReplyWriter { out: &mut out, protocol }.error(error.as_bytes());
    out
}
