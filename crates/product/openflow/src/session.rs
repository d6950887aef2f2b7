//! The session with one switch: from the first HELLO to replies of requests, over a byte stream that
//! the driver owns.
//!
//! ```text
//!   controller                                     switch
//!       │ HELLO {1.3} ───────────────────────────▶│◀── HELLO: without 1.3 the session fails
//!       │ ROLE_REQUEST {primary, term} ──────────▶│  term older than one it has seen: ERROR, the session fails
//!       │ FEATURES, DESCRIPTION, PORTS, SET_CONFIG│
//!       │ BUNDLE open, discard ──────────────────▶│  ERROR: changes are made without bundles
//!       │ BARRIER ───────────────────────────────▶│
//!       │◀─────────────────────────────── replies │
//!       │                                   ready │
//!       │ changes, requests, BARRIER ────────────▶│
//!       │◀──────────── replies, ERROR, PACKET_IN  │
//!       │ ECHO_REQUEST when nothing arrived ─────▶│  no ECHO_REPLY: the session fails
//! ```
//!
//! Invariants:
//! - Nothing is changed in a switch that has not accepted this controller's term. The switch itself
//!   refuses a deposed leader (R13), since a role is claimed with the term as its generation.
//! - Every transaction id is used once. A reply to none that waits fails the session.
//! - A failed session sends nothing more; the driver closes the stream and begins another session.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use nicekv_proto::{Duration, Now};
use thiserror::Error;

use crate::wire::{
    self, BUNDLE_ATOMIC, BUNDLE_ORDERED, BundleControl, BundleStep, Config, DecodeError, Description,
    Features, Hello, LENGTH_WHOLE, Message, MultipartReply, MultipartRequest, PacketIn, Part, Port,
    PortChange, Role, RoleStatus, SwitchError, TooLong, VERSION,
};

/// The switch has to become ready within this time.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// An ECHO_REQUEST is sent if nothing has arrived for this time.
const IDLE_MAX: Duration = Duration::from_secs(2);
/// The session fails if nothing has arrived for this time.
const SILENCE_MAX: Duration = Duration::from_secs(6);
/// Most packets for the controller that wait for the driver; further ones are dropped and counted.
const PACKETS_MAX: usize = 256;
/// Most requests that wait for a reply.
const REQUESTS_MAX: usize = 1 << 16;
/// Most elements of one reply, over all of its messages.
const REPLY_ELEMENTS_MAX: usize = 1 << 18;
/// Most events that wait for the driver.
const EVENTS_MAX: usize = 1 << 16;
/// Most bytes that wait for the stream when the switch asks for an ECHO_REPLY.
const UNSENT_BYTES_MAX: usize = 64 << 20;

const ERROR_HELLO_FAILED: u16 = 0;
const ERROR_ROLE_FAILED: u16 = 11;
const ROLE_STALE: u16 = 0;
/// Type and code of the error for a change by a controller that is not the primary one any more.
const NOT_PRIMARY: (u16, u16) = (1, 10);
/// Id of the bundle that tests whether the switch supports bundles.
const PROBE_BUNDLE: u32 = u32::MAX;

/// A session's output for its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The switch has accepted this controller. Comes once, before all others.
    Ready(Switch),
    /// The whole reply to a request for statistics or descriptions.
    Reply {
        transaction: u32,
        part: Part,
    },
    /// Everything sent before this BARRIER is done.
    Barrier {
        transaction: u32,
    },
    /// A step of a bundle is done.
    Bundle {
        transaction: u32,
        step: BundleStep,
    },
    /// The switch refuses what was sent under this transaction.
    Refused {
        transaction: u32,
        error: SwitchError,
    },
    /// A packet for the controller.
    Packet(PacketIn),
    Port {
        change: PortChange,
        port: Port,
    },
}

/// A switch that has accepted the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    pub features: Features,
    pub description: Description,
    pub ports: Vec<Port>,
    /// Whether several changes can take effect at once.
    pub has_bundles: bool,
}

/// Why a session has failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SessionError {
    #[error(
        "the switch does not speak OpenFlow 1.3 (highest wire version {version}); enable version 1.3 in the switch"
    )]
    Version { version: u8 },
    #[error("the switch has accepted a controller of a newer term than {term}")]
    Deposed { term: u64 },
    #[error("the switch was not ready within {} s", HANDSHAKE_MAX.as_secs())]
    NotReady,
    #[error("the switch was silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    #[error("the switch refused the handshake: error type {kind}, code {code}")]
    Refused { kind: u16, code: u16 },
    #[error("malformed message from the switch: {0}")]
    Malformed(#[from] DecodeError),
    #[error("unexpected message from the switch: {0}")]
    Unexpected(&'static str),
    #[error("the switch sends more than fits: {0}")]
    TooMuch(&'static str),
}

impl SessionError {
    fn refused(error: &SwitchError) -> Self {
        Self::Refused { kind: error.kind, code: error.code }
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    #[error("the session is not ready")]
    NotReady,
    #[error("{REQUESTS_MAX} requests wait for a reply")]
    Busy,
    #[error(transparent)]
    TooLong(#[from] TooLong),
}

#[derive(Debug)]
enum State {
    /// Waiting for the switch's HELLO.
    Greeting,
    /// Waiting for the replies of the handshake.
    Handshake(Handshake),
    Ready,
    Failed(SessionError),
}

/// Replies of the handshake so far, and the transactions that wait for one.
#[derive(Debug)]
struct Handshake {
    features: Option<Features>,
    description: Option<Description>,
    ports: Option<Vec<Port>>,
    has_role: bool,
    has_bundles: bool,
    /// Transactions of the role and of the bundle's two steps: errors of them mean something.
    role: u32,
    bundle: [u32; 2],
    barrier: u32,
}

/// A reply that a transaction waits for.
#[derive(Debug)]
enum Awaited {
    Parts(Option<Part>),
    Barrier,
    Bundle(BundleStep),
}

/// A session with one switch.
#[derive(Debug)]
pub struct Session {
    term: u64,
    state: State,
    received: Vec<u8>,
    unsent: Vec<u8>,
    last_transaction: u32,
    /// The transaction of the last claim of a newer term.
    claim: Option<u32>,
    awaited: BTreeMap<u32, Awaited>,
    events: VecDeque<Event>,
    packets: usize,
    packets_dropped: u64,
    ready_until_ns: u64,
    echo_at_ns: u64,
    silent_at_ns: u64,
}

impl Session {
    /// Begins a session over a new stream. `term`: of the leader for which the switch is controlled.
    pub fn new(now: Now, term: u64) -> Self {
        let mut session = Self {
            term,
            state: State::Greeting,
            received: Vec::new(),
            unsent: Vec::new(),
            last_transaction: 0,
            claim: None,
            awaited: BTreeMap::new(),
            events: VecDeque::new(),
            packets: 0,
            packets_dropped: 0,
            ready_until_ns: now.after(HANDSHAKE_MAX),
            echo_at_ns: now.after(IDLE_MAX),
            silent_at_ns: now.after(SILENCE_MAX),
        };
        session.put(&Message::Hello(Hello { version: VERSION, versions: Some(1 << VERSION) }));
        session
    }

    /// Processes bytes from the stream.
    pub fn handle_bytes(&mut self, now: Now, bytes: &[u8]) {
        if self.error().is_some() {
            return;
        }
        (self.echo_at_ns, self.silent_at_ns) = (now.after(IDLE_MAX), now.after(SILENCE_MAX));
        self.received.extend_from_slice(bytes);
        if let Err(error) = self.receive() {
            self.fail(error);
        }
    }

    /// Processes the complete messages in `received`.
    fn receive(&mut self) -> Result<(), SessionError> {
        let received = core::mem::take(&mut self.received);
        let mut rest = &received[..];
        while let Some(bytes) = wire::message_bytes(rest)?.filter(|bytes| rest.len() >= *bytes) {
            let (message, after) = rest.split_at(bytes);
            rest = after;
            let (transaction, message) = wire::decode(message)?;
            self.handle(transaction, message)?;
        }
        self.received = rest.into();
        Ok(())
    }

    /// Sends an ECHO_REQUEST to an idle switch, and fails the session with one that does not answer.
    pub fn handle_deadline(&mut self, now: Now) {
        match self.state {
            State::Failed(_) => {}
            State::Greeting | State::Handshake(_) if now.boot_ns >= self.ready_until_ns => {
                self.fail(SessionError::NotReady);
            }
            _ if now.boot_ns >= self.silent_at_ns => self.fail(SessionError::Silent),
            State::Ready if now.boot_ns >= self.echo_at_ns => {
                self.echo_at_ns = now.after(IDLE_MAX);
                self.put(&Message::EchoRequest(Vec::new()));
            }
            _ => {}
        }
    }

    /// When to call [`Self::handle_deadline`]; `None` after a failure.
    pub fn next_deadline(&self) -> Option<u64> {
        match self.state {
            State::Failed(_) => None,
            State::Greeting | State::Handshake(_) => Some(self.ready_until_ns.min(self.silent_at_ns)),
            State::Ready => Some(self.echo_at_ns.min(self.silent_at_ns)),
        }
    }

    /// Bytes for the stream. The driver removes those that it has written.
    pub fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        self.packets -= usize::from(matches!(event, Some(Event::Packet(_))));
        event
    }

    /// Why the session has failed, if it has.
    pub fn error(&self) -> Option<&SessionError> {
        if let State::Failed(error) = &self.state { Some(error) } else { None }
    }

    /// Packets that were dropped because the driver had not taken earlier ones.
    pub fn packets_dropped(&self) -> u64 {
        self.packets_dropped
    }

    /// Claims the primary role for the leader of a newer term. What is sent after this is refused if
    /// the switch has accepted a yet newer one.
    pub fn claim(&mut self, term: u64) -> Result<(), SendError> {
        self.check_ready()?;
        self.term = term;
        let role = RoleStatus { role: Role::Primary, generation: term };
        self.claim = Some(self.transmit(&Message::RoleRequest(role))?);
        Ok(())
    }

    /// Sends a change of the switch's tables or a packet. There is no reply; a BARRIER shows that it
    /// is done, [`Event::Refused`] that it is not.
    pub fn send(&mut self, message: &Message) -> Result<u32, SendError> {
        self.check_ready()?;
        self.transmit(message)
    }

    /// Requests statistics or descriptions.
    pub fn request(&mut self, request: MultipartRequest) -> Result<u32, SendError> {
        self.await_reply(&Message::MultipartRequest(request), Awaited::Parts(None))
    }

    /// Requests a reply when everything sent before is done.
    pub fn barrier(&mut self) -> Result<u32, SendError> {
        self.await_reply(&Message::BarrierRequest, Awaited::Barrier)
    }

    /// Requests a step of a bundle that takes effect at once, in the order of its messages.
    ///
    /// # Panics
    /// If the step is a reply.
    pub fn bundle(&mut self, bundle: u32, step: BundleStep) -> Result<u32, SendError> {
        let reply = reply_of(step).expect("steps are requested");
        self.await_reply(&bundle_step(bundle, step), Awaited::Bundle(reply))
    }

    fn check_ready(&self) -> Result<(), SendError> {
        if matches!(self.state, State::Ready) { Ok(()) } else { Err(SendError::NotReady) }
    }

    fn await_reply(&mut self, message: &Message, reply: Awaited) -> Result<u32, SendError> {
        self.check_ready()?;
        if self.awaited.len() >= REQUESTS_MAX {
            return Err(SendError::Busy);
        }
        let transaction = self.transmit(message)?;
        self.awaited.insert(transaction, reply);
        Ok(transaction)
    }

    fn transmit(&mut self, message: &Message) -> Result<u32, SendError> {
        // 0 is the transaction of messages that the switch sends by itself. Ids in use are skipped
        // after a wrap.
        let mut transaction = self.last_transaction;
        loop {
            transaction = transaction.checked_add(1).unwrap_or(1);
            if !self.awaited.contains_key(&transaction) {
                break;
            }
        }
        wire::encode(transaction, message, &mut self.unsent)?;
        self.last_transaction = transaction;
        Ok(transaction)
    }

    /// Sends one of the session's own messages, all of which are short.
    fn put(&mut self, message: &Message) -> u32 {
        self.transmit(message).expect("short messages fit")
    }

    fn fail(&mut self, error: SessionError) {
        if let SessionError::Version { .. } = error {
            let data = Vec::from(&b"OpenFlow 1.3 (wire version 4) is required"[..]);
            self.put(&Message::Error(SwitchError { kind: ERROR_HELLO_FAILED, code: 0, data }));
        } else {
            self.unsent.clear();
        }
        self.awaited.clear();
        self.received = Vec::new();
        self.state = State::Failed(error);
    }

    fn handle(&mut self, transaction: u32, message: Message) -> Result<(), SessionError> {
        if let Message::EchoRequest(data) = message {
            if self.unsent.len() > UNSENT_BYTES_MAX {
                return Err(SessionError::TooMuch("echo requests, whose replies it does not read"));
            }
            // As long as the request, so it fits.
            let _ = wire::encode(transaction, &Message::EchoReply(data), &mut self.unsent);
            return Ok(());
        }
        match &mut self.state {
            State::Failed(_) => Ok(()),
            State::Greeting => self.greet(message),
            State::Handshake(handshake) => {
                if let Some(switch) = handshake.handle(transaction, message, &mut self.awaited, self.term)? {
                    self.state = State::Ready;
                    self.events.push_back(Event::Ready(switch));
                }
                Ok(())
            }
            State::Ready => self.serve(transaction, message),
        }
    }

    /// The switch's HELLO must be its first message.
    fn greet(&mut self, message: Message) -> Result<(), SessionError> {
        let hello = match message {
            Message::Hello(hello) => hello,
            Message::Error(error) => return Err(SessionError::refused(&error)),
            _ => return Err(SessionError::Unexpected("the first message is no HELLO")),
        };
        if !hello.speaks(VERSION) {
            return Err(SessionError::Version { version: hello.version });
        }
        let role = self.put(&Message::RoleRequest(RoleStatus { role: Role::Primary, generation: self.term }));
        self.put(&Message::FeaturesRequest);
        // Whole packets come to the controller, and IP fragments are treated as any packet.
        self.put(&Message::SetConfig(Config { fragments: 0, miss_length_max: LENGTH_WHOLE }));
        for request in [MultipartRequest::Description, MultipartRequest::Ports] {
            let transaction = self.put(&Message::MultipartRequest(request));
            self.awaited.insert(transaction, Awaited::Parts(None));
        }
        let bundle = [BundleStep::OpenRequest, BundleStep::DiscardRequest]
            .map(|step| self.put(&bundle_step(PROBE_BUNDLE, step)));
        let barrier = self.put(&Message::BarrierRequest);
        self.state = State::Handshake(Handshake {
            features: None,
            description: None,
            ports: None,
            has_role: false,
            has_bundles: true,
            role,
            bundle,
            barrier,
        });
        Ok(())
    }

    fn serve(&mut self, transaction: u32, message: Message) -> Result<(), SessionError> {
        let event = match message {
            Message::MultipartReply(reply) => match collect(&mut self.awaited, transaction, reply)? {
                Some(part) => Event::Reply { transaction, part },
                None => return Ok(()),
            },
            Message::BarrierReply => match self.awaited.remove(&transaction) {
                Some(Awaited::Barrier) => Event::Barrier { transaction },
                _ => return Err(SessionError::Unexpected("a BARRIER's reply to no request")),
            },
            Message::Bundle(control) => match self.awaited.remove(&transaction) {
                Some(Awaited::Bundle(step)) if step == control.step => Event::Bundle { transaction, step },
                _ => return Err(SessionError::Unexpected("a bundle's reply to no request")),
            },
            Message::RoleReply(_) if self.claim == Some(transaction) => {
                self.claim = None;
                return Ok(());
            }
            Message::Error(error)
                if (error.kind, error.code) == NOT_PRIMARY || self.claim == Some(transaction) =>
            {
                return Err(SessionError::Deposed { term: self.term });
            }
            Message::Error(error) => {
                self.awaited.remove(&transaction);
                Event::Refused { transaction, error }
            }
            Message::EchoReply(_) => return Ok(()),
            Message::PacketIn(packet) => {
                if self.packets >= PACKETS_MAX {
                    self.packets_dropped += 1;
                    return Ok(());
                }
                self.packets += 1;
                Event::Packet(packet)
            }
            Message::PortStatus { change, port } => Event::Port { change, port },
            _ => {
                return Err(SessionError::Unexpected(
                    "a message that only controllers send, or a late reply",
                ));
            }
        };
        if self.events.len() >= EVENTS_MAX {
            return Err(SessionError::TooMuch("events"));
        }
        self.events.push_back(event);
        Ok(())
    }
}

impl Handshake {
    /// Processes a message. Returns the switch when it is ready.
    fn handle(
        &mut self,
        transaction: u32,
        message: Message,
        awaited: &mut BTreeMap<u32, Awaited>,
        term: u64,
    ) -> Result<Option<Switch>, SessionError> {
        match message {
            Message::MultipartReply(reply) => match collect(awaited, transaction, reply)? {
                None => {}
                Some(Part::Description(description)) => self.description = Some(description),
                Some(Part::Ports(ports)) => self.ports = Some(ports),
                Some(_) => return Err(SessionError::Unexpected("a multipart reply of another type")),
            },
            Message::RoleReply(status) if transaction == self.role => {
                if status.role != Role::Primary {
                    return Err(SessionError::Unexpected("a role that was not requested"));
                }
                self.has_role = true;
            }
            Message::FeaturesReply(features) => self.features = Some(features),
            Message::Bundle(_) if self.bundle.contains(&transaction) => {}
            Message::Error(_) if self.bundle.contains(&transaction) => self.has_bundles = false,
            Message::Error(SwitchError { kind: ERROR_ROLE_FAILED, code: ROLE_STALE, .. })
                if transaction == self.role =>
            {
                return Err(SessionError::Deposed { term });
            }
            Message::Error(error) => return Err(SessionError::refused(&error)),
            Message::BarrierReply if transaction == self.barrier => return self.finish().map(Some),
            // Ports are read when the handshake is over, and packets have no receiver yet.
            Message::PortStatus { .. } | Message::PacketIn(_) => {}
            _ => return Err(SessionError::Unexpected("a message that does not belong to the handshake")),
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<Switch, SessionError> {
        let missing = || SessionError::Unexpected("the BARRIER's reply before those of earlier requests");
        if !self.has_role {
            return Err(missing());
        }
        Ok(Switch {
            features: self.features.ok_or_else(missing)?,
            description: self.description.take().ok_or_else(missing)?,
            ports: self.ports.take().ok_or_else(missing)?,
            has_bundles: self.has_bundles,
        })
    }
}

/// Adds a message of a reply; returns the whole reply after the last one.
fn collect(
    awaited: &mut BTreeMap<u32, Awaited>,
    transaction: u32,
    reply: MultipartReply,
) -> Result<Option<Part>, SessionError> {
    let Entry::Occupied(mut entry) = awaited.entry(transaction) else {
        return Err(SessionError::Unexpected("a multipart reply to no request"));
    };
    let Awaited::Parts(parts) = entry.get_mut() else {
        return Err(SessionError::Unexpected("a multipart reply to no request"));
    };
    match parts {
        None => *parts = Some(reply.part),
        Some(before) => append(before, reply.part)?,
    }
    if reply.has_more {
        return Ok(None);
    }
    let parts = parts.take();
    entry.remove();
    Ok(parts)
}

/// A step of a bundle that takes effect at once, in the order of its messages.
fn bundle_step(bundle: u32, step: BundleStep) -> Message {
    Message::Bundle(BundleControl { bundle, step, flags: BUNDLE_ATOMIC | BUNDLE_ORDERED })
}

/// The reply to a requested step.
fn reply_of(step: BundleStep) -> Option<BundleStep> {
    match step {
        BundleStep::OpenRequest => Some(BundleStep::OpenReply),
        BundleStep::CloseRequest => Some(BundleStep::CloseReply),
        BundleStep::CommitRequest => Some(BundleStep::CommitReply),
        BundleStep::DiscardRequest => Some(BundleStep::DiscardReply),
        _ => None,
    }
}

fn append(before: &mut Part, next: Part) -> Result<(), SessionError> {
    fn extend<T>(before: &mut Vec<T>, next: Vec<T>) -> Result<(), SessionError> {
        if before.len() + next.len() > REPLY_ELEMENTS_MAX {
            return Err(SessionError::TooMuch("elements of a multipart reply"));
        }
        before.extend(next);
        Ok(())
    }
    match (before, next) {
        (Part::Flows(before), Part::Flows(next)) => extend(before, next),
        (Part::Tables(before), Part::Tables(next)) => extend(before, next),
        (Part::PortCounts(before), Part::PortCounts(next)) => extend(before, next),
        (Part::GroupCounts(before), Part::GroupCounts(next)) => extend(before, next),
        (Part::Groups(before), Part::Groups(next)) => extend(before, next),
        (Part::Ports(before), Part::Ports(next)) => extend(before, next),
        _ => Err(SessionError::Unexpected("a multipart reply whose messages do not belong together")),
    }
}

/// A sentence for operators about a switch's error.
pub fn describe(error: &SwitchError) -> String {
    use alloc::format;
    const TABLE_FULL: (u16, u16) = (5, 1);
    const OUT_OF_GROUPS: (u16, u16) = (6, 3);
    const OUT_OF_BUCKETS: (u16, u16) = (6, 4);
    const OUT_OF_METERS: (u16, u16) = (12, 11);
    match (error.kind, error.code) {
        TABLE_FULL => "the switch's flow table is full".into(),
        OUT_OF_GROUPS => "the switch has no room for more groups".into(),
        OUT_OF_BUCKETS => "the switch has no room for more members of groups".into(),
        OUT_OF_METERS => "the switch has no room for more meters".into(),
        (kind, code) => format!("the switch refused a change: OpenFlow error type {kind}, code {code}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Action, Field, FlowCommand, FlowMod, FlowStatus, Instruction, Match, TABLE_ALL};

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Now {
        Now { boot_ns: seconds * SECOND_NS, unix_ms: 0 }
    }

    fn encoded(transaction: u32, message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        wire::encode(transaction, message, &mut bytes).unwrap();
        bytes
    }

    /// All messages that wait for the stream.
    fn sent(session: &mut Session) -> Vec<(u32, Message)> {
        let bytes = std::mem::take(session.unsent());
        let mut rest = &bytes[..];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let length = wire::message_bytes(rest).unwrap().unwrap();
            messages.push(wire::decode(&rest[..length]).unwrap());
            rest = &rest[length..];
        }
        messages
    }

    fn reply(session: &mut Session, transaction: u32, message: Message) {
        session.handle_bytes(at(0), &encoded(transaction, &message));
    }

    fn parts(part: Part) -> Message {
        Message::MultipartReply(MultipartReply { has_more: false, part })
    }

    const HELLO: Message = Message::Hello(Hello { version: 6, versions: Some(1 << 4 | 1 << 6) });
    const FEATURES: Features =
        Features { datapath: 7, buffers: 0, tables: 254, auxiliary: 0, capabilities: 0 };

    fn error(kind: u16, code: u16) -> Message {
        Message::Error(SwitchError { kind, code, data: Vec::new() })
    }

    /// The replies of a switch to the handshake's messages.
    fn replies(messages: Vec<(u32, Message)>, has_bundles: bool) -> Vec<(u32, Message)> {
        let reply = |(transaction, message)| {
            let reply = match message {
                Message::RoleRequest(status) => Message::RoleReply(status),
                Message::FeaturesRequest => Message::FeaturesReply(FEATURES),
                Message::MultipartRequest(MultipartRequest::Description) => {
                    parts(Part::Description(Description::default()))
                }
                Message::MultipartRequest(MultipartRequest::Ports) => parts(Part::Ports(Vec::new())),
                Message::Bundle(_) if !has_bundles => error(1, 3),
                Message::Bundle(control) => {
                    let step = reply_of(control.step).unwrap();
                    Message::Bundle(BundleControl { step, ..control })
                }
                Message::BarrierRequest => Message::BarrierReply,
                Message::SetConfig(_) => return None,
                message => panic!("{message:?} is no part of the handshake"),
            };
            Some((transaction, reply))
        };
        messages.into_iter().filter_map(reply).collect()
    }

    /// A session after HELLO, and the switch's replies to its requests.
    fn in_handshake(has_bundles: bool) -> (Session, Vec<(u32, Message)>) {
        let mut session = Session::new(at(0), 42);
        assert!(matches!(sent(&mut session)[..], [(_, Message::Hello(_))]));
        reply(&mut session, 0, HELLO);
        let replies = replies(sent(&mut session), has_bundles);
        (session, replies)
    }

    fn ready() -> Session {
        let (mut session, replies) = in_handshake(true);
        replies.into_iter().for_each(|(transaction, message)| reply(&mut session, transaction, message));
        assert!(matches!(session.poll_event(), Some(Event::Ready(_))), "{:?}", session.error());
        session
    }

    #[test]
    fn handshake_claims_the_term_first_and_detects_bundles() {
        for has_bundles in [true, false] {
            let mut session = Session::new(at(0), 42);
            sent(&mut session);
            reply(&mut session, 0, HELLO);
            let messages = sent(&mut session);
            let claim = RoleStatus { role: Role::Primary, generation: 42 };
            assert_eq!(messages[0].1, Message::RoleRequest(claim));
            assert_eq!(session.send(&Message::BarrierRequest), Err(SendError::NotReady));
            for (transaction, message) in replies(messages, has_bundles) {
                assert_eq!(session.poll_event(), None);
                reply(&mut session, transaction, message);
            }
            let Some(Event::Ready(switch)) = session.poll_event() else { panic!("{:?}", session.error()) };
            assert_eq!((switch.features, switch.has_bundles), (FEATURES, has_bundles));
        }
    }

    #[test]
    fn handshake_does_not_depend_on_how_bytes_are_split() {
        let (mut session, replies) = in_handshake(true);
        let bytes: Vec<u8> = replies.iter().flat_map(|(number, message)| encoded(*number, message)).collect();
        for byte in bytes {
            session.handle_bytes(at(0), &[byte]);
        }
        assert!(matches!(session.poll_event(), Some(Event::Ready(_))));
    }

    #[test]
    fn switch_of_another_version_gets_an_error_with_the_reason() {
        let mut session = Session::new(at(0), 1);
        sent(&mut session);
        reply(&mut session, 0, Message::Hello(Hello { version: 1, versions: None }));
        assert_eq!(session.error(), Some(&SessionError::Version { version: 1 }));
        assert!(session.error().unwrap().to_string().contains("enable version 1.3 in the switch"));
        let Some((_, Message::Error(error))) = sent(&mut session).pop() else { panic!("an error is sent") };
        assert_eq!((error.kind, error.code), (ERROR_HELLO_FAILED, 0));
        assert_eq!(session.next_deadline(), None);
    }

    #[test]
    fn newer_term_is_claimed_within_the_session() {
        let claiming = || {
            let mut session = ready();
            sent(&mut session);
            session.claim(43).unwrap();
            let claims = sent(&mut session);
            let role = RoleStatus { role: Role::Primary, generation: 43 };
            let [(transaction, Message::RoleRequest(claimed))] = claims[..] else { panic!("{claims:?}") };
            assert_eq!(claimed, role);
            (session, transaction, role)
        };
        let (mut session, transaction, role) = claiming();
        reply(&mut session, transaction, Message::RoleReply(role));
        assert_eq!(session.poll_event(), None);
        assert_eq!(session.error(), None);
        let (mut session, transaction, _) = claiming();
        reply(&mut session, transaction, error(ERROR_ROLE_FAILED, ROLE_STALE));
        assert_eq!(session.error(), Some(&SessionError::Deposed { term: 43 }));
        let (mut session, transaction, role) = claiming();
        reply(&mut session, transaction + 1, Message::RoleReply(role));
        assert!(matches!(session.error(), Some(SessionError::Unexpected(_))));
    }

    #[test]
    fn deposed_controller_sends_nothing_more() {
        let (mut session, replies) = in_handshake(true);
        let role = replies.iter().find(|(_, message)| matches!(message, Message::RoleReply(_))).unwrap().0;
        reply(&mut session, role, error(ERROR_ROLE_FAILED, ROLE_STALE));
        assert_eq!(session.error(), Some(&SessionError::Deposed { term: 42 }));
        // Also in the middle of a session, when a newer leader has claimed the switch.
        let mut session = ready();
        let change = session.send(&Message::BarrierRequest).unwrap();
        sent(&mut session);
        reply(&mut session, change, error(1, 10));
        assert_eq!(session.error(), Some(&SessionError::Deposed { term: 42 }));
        assert_eq!(session.barrier(), Err(SendError::NotReady));
        assert!(session.unsent().is_empty());
    }

    #[test]
    fn barrier_that_overtakes_the_role_fails_the_session() {
        let (mut session, replies) = in_handshake(true);
        for (transaction, message) in replies {
            if !matches!(message, Message::RoleReply(_)) {
                reply(&mut session, transaction, message);
            }
        }
        assert!(matches!(session.error(), Some(SessionError::Unexpected(_))));
        assert_eq!(session.poll_event(), None);
    }

    #[test]
    fn replies_are_joined_and_matched_with_requests() {
        let mut session = ready();
        let flows = |cookie| {
            let matches = Match::default().with(Field::InPort, 1u32);
            let instructions = vec![Instruction::Apply(vec![Action::output(2)])];
            let (table, priority, packets, bytes) = (0, 1, 2, 3);
            vec![FlowStatus { table, priority, cookie, packets, bytes, matches, instructions }]
        };
        let request = MultipartRequest::Flows {
            table: TABLE_ALL,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::default(),
        };
        let transaction = session.request(request).unwrap();
        let barrier = session.barrier().unwrap();
        let first = MultipartReply { has_more: true, part: Part::Flows(flows(1)) };
        reply(&mut session, transaction, Message::MultipartReply(first));
        reply(&mut session, barrier, Message::BarrierReply);
        reply(&mut session, transaction, parts(Part::Flows(flows(2))));
        assert_eq!(session.poll_event(), Some(Event::Barrier { transaction: barrier }));
        let joined = Part::Flows([flows(1), flows(2)].concat());
        assert_eq!(session.poll_event(), Some(Event::Reply { transaction, part: joined }));
        // A second reply to the same request is one to no request.
        reply(&mut session, transaction, parts(Part::Flows(flows(3))));
        assert!(matches!(session.error(), Some(SessionError::Unexpected(_))));
    }

    #[test]
    fn parts_of_different_types_do_not_make_a_reply() {
        let mut session = ready();
        let transaction = session.request(MultipartRequest::Tables).unwrap();
        let first = MultipartReply { has_more: true, part: Part::Tables(Vec::new()) };
        reply(&mut session, transaction, Message::MultipartReply(first));
        reply(&mut session, transaction, parts(Part::Ports(Vec::new())));
        assert!(matches!(session.error(), Some(SessionError::Unexpected(_))));
    }

    #[test]
    fn refused_change_is_reported_with_its_transaction() {
        let mut session = ready();
        let flow = FlowMod {
            command: FlowCommand::Add,
            table: 0,
            priority: 1,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::default(),
            instructions: Vec::new(),
        };
        let transaction = session.send(&Message::FlowMod(flow)).unwrap();
        reply(&mut session, transaction, error(5, 1));
        let Some(Event::Refused { transaction: refused, error }) = session.poll_event() else { panic!() };
        assert_eq!((refused, describe(&error).as_str()), (transaction, "the switch's flow table is full"));
    }

    #[test]
    fn idle_switch_gets_an_echo_request_and_a_silent_one_fails_the_session() {
        let mut session = ready();
        assert_eq!(session.next_deadline(), Some(2 * SECOND_NS));
        session.handle_deadline(at(2));
        let [(transaction, Message::EchoRequest(_))] = sent(&mut session)[..] else { panic!("one request") };
        session.handle_bytes(at(3), &encoded(transaction, &Message::EchoReply(Vec::new())));
        session.handle_deadline(at(8));
        assert_eq!(session.error(), None);
        session.handle_deadline(at(9));
        assert_eq!(session.error(), Some(&SessionError::Silent));
        let mut never_ready = Session::new(at(0), 1);
        never_ready.handle_deadline(at(5));
        assert_eq!(never_ready.error(), Some(&SessionError::NotReady));
    }

    #[test]
    fn echo_requests_are_answered_in_every_state() {
        for mut session in [in_handshake(true).0, ready()] {
            sent(&mut session);
            reply(&mut session, 99, Message::EchoRequest(vec![1, 2]));
            assert_eq!(sent(&mut session), [(99, Message::EchoReply(vec![1, 2]))]);
        }
    }

    #[test]
    fn packets_above_the_bound_are_dropped_and_counted() {
        let mut session = ready();
        let packet = PacketIn {
            buffer: None,
            bytes: 1,
            reason: 1,
            table: 0,
            cookie: 0,
            matches: Match::default(),
            data: vec![1],
        };
        for _ in 0..PACKETS_MAX + 3 {
            reply(&mut session, 0, Message::PacketIn(packet.clone()));
        }
        assert_eq!(session.packets_dropped(), 3);
        let taken = std::iter::from_fn(|| session.poll_event()).count();
        assert_eq!(taken, PACKETS_MAX);
        reply(&mut session, 0, Message::PacketIn(packet.clone()));
        assert_eq!(session.poll_event(), Some(Event::Packet(packet)));
    }

    #[test]
    fn garbage_fails_the_session_with_its_reason() {
        let mut session = ready();
        session.handle_bytes(at(1), &[9; 64]);
        assert_eq!(session.error(), Some(&SessionError::Malformed(DecodeError::Version(9))));
        session.handle_bytes(at(1), &encoded(1, &Message::BarrierReply));
        assert_eq!(session.poll_event(), None, "a failed session ignores input");
    }
}
