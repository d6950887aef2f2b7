//! TCP connections of the metadata service: switch agents, which stay connected, and visitors,
//! which ask and leave.
//!
//! Anyone can connect, so no peer may be able to lock others out:
//!
//! ```text
//!   new ──▶ awaiting its greeting ──▶ agent: stays, one for each configured switch
//!                    │
//!                    └──────▶ visitor: idle ◀──▶ unfinished (part of a frame, an answer that is not read) or waiting (for readiness)
//!
//!   too many visitors of one address, or too many connections: the oldest visitor that is idle or has not sent its greeting
//!   is closed, or else the oldest visitor; each state has a timeout
//! ```

use super::admin_commands::{AdminCommands, Answer};
use super::listening::Listening;
use super::lookups::Pending;
use super::other_releases::{OtherReleases, Protocol};
use crate::control_plane::{CONTROL_LIMITS, Greeting, NotLeading, Role, decode, encode};
use crate::{FramedStream, PollFd, StreamError, accept};
use nicekv_metadata::{ControlPlane, ListeningReport, Metadata, SwitchId};
use nicekv_proto::{Duration, Now};
use nicekv_switch::control::{self, ControlReply, ControlRequest, Lookup};
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};

/// Most connections, in addition to one per switch. Above that there is always a visitor to close.
pub const VISITORS_MAX: usize = 64;
/// Most visitors from one address.
const VISITORS_PER_SOURCE_MAX: usize = 16;
/// Most connections that are accepted before other work is done.
const ACCEPTS_MAX: usize = 64;
/// Timeout of a greeting, of the rest of a frame, and of an unread answer. Single bytes do not
/// extend it.
const UNFINISHED_MAX: Duration = Duration::from_secs(5);
/// Timeout of an idle visitor.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// Timeout of a visitor that waits for readiness; it may ask again.
const WAITING_MAX: Duration = Duration::from_secs(60);

struct Connection {
    stream: FramedStream,
    source: IpAddr,
    peer: Peer,
    opened_ns: u64,
    state: State,
    /// When the current state began, or when the last complete frame arrived.
    since_ns: u64,
    ready: bool,
    /// Answer to a change. It is sent when this version of the state is persisted.
    held: Option<(u64, Vec<u8>)>,
    /// A visitor's lookup that the switches have not all answered.
    lookup: Option<Pending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Unknown,
    Switch(SwitchId),
    /// `waits`: the visitor waits until the cluster is ready.
    Admin {
        waits: bool,
    },
}

/// The answer that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The peer must send its greeting.
    Greeting,
    /// The peer must send the rest of a frame, or read an answer.
    Unfinished,
    /// This service must answer: when the cluster is ready, or a change is persisted.
    Waiting,
    /// Neither side owes anything.
    Idle,
}

/// Input of one connection that must be processed with other connections.
enum Aside {
    /// A visitor looks up a key.
    Lookup(Lookup),
    /// An agent has answered a lookup.
    Found(SwitchId, Box<ControlReply>),
    /// A peer has another protocol version.
    OtherRelease(IpAddr, u8),
    /// A process reports its sockets.
    Listening(Box<ListeningReport>),
}

pub(super) struct Connections {
    switches: Vec<(String, SwitchId)>,
    open: Vec<Connection>,
    /// State of this instance, which answers contain.
    pub(super) control_plane: ControlPlane,
    pub(super) other_releases: OtherReleases,
    listening: Listening,
}

impl Connections {
    pub(super) fn new(switches: Vec<(String, SwitchId)>) -> Self {
        let (control_plane, other_releases) = (ControlPlane::default(), OtherReleases::default());
        Self { switches, open: Vec::new(), control_plane, other_releases, listening: Listening::default() }
    }

    fn connections_max(&self) -> usize {
        self.switches.len() + VISITORS_MAX
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.open.iter().map(|connection| connection.stream.interest())
    }

    /// Stores which of [`Self::interests`] are ready.
    pub(super) fn note_ready(&mut self, ready: &[bool]) {
        for (connection, ready) in self.open.iter_mut().zip(ready) {
            connection.ready = *ready;
        }
    }

    pub(super) fn accept(&mut self, now: Now, listener: &TcpListener) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            let Some(stream) = accept(listener)? else { break };
            // The peer may have closed the connection already, which is no failure.
            if let Ok(source) = stream.peer_addr() {
                self.open(now, stream, source.ip());
            }
        }
        Ok(())
    }

    fn open(&mut self, now: Now, stream: TcpStream, source: IpAddr) {
        let of_source = self.open.iter().filter(|other| other.is_visitor() && other.source == source);
        if of_source.count() >= VISITORS_PER_SOURCE_MAX {
            self.give_way(|visitor| visitor.source == source);
        } else if self.open.len() >= self.connections_max() {
            self.give_way(|_| true);
        }
        self.open.push(Connection {
            stream: FramedStream::new(stream, CONTROL_LIMITS),
            source,
            peer: Peer::Unknown,
            opened_ns: now.boot_ns,
            state: State::Greeting,
            since_ns: now.boot_ns,
            ready: false,
            held: None,
            lookup: None,
        });
    }

    /// Closes a visitor among `candidates`: the oldest that is idle or has not sent its greeting,
    /// or else the oldest.
    fn give_way(&mut self, candidates: impl Fn(&Connection) -> bool) {
        let visitors = self.open.iter().enumerate().filter(|(_, one)| one.is_visitor() && candidates(one));
        let is_busy = |one: &Connection| matches!(one.state, State::Unfinished | State::Waiting);
        let least = visitors.min_by_key(|(_, one)| (is_busy(one), one.opened_ns)).map(|(index, _)| index);
        if let Some(index) = least {
            self.open.remove(index);
        }
    }

    /// Reports the connected agents to the core of a new leader.
    pub(super) fn announce_agents(&self, now: Now, core: &mut Metadata) {
        for connection in &self.open {
            if let Peer::Switch(switch) = connection.peer {
                core.handle_switch_connected(now, switch);
            }
        }
    }

    /// Passes input to the core, if there is one. Closes connections that are broken or have timed
    /// out.
    pub(super) fn receive(&mut self, now: Now, mut core: Option<&mut Metadata>) {
        let mut index = 0;
        while index < self.open.len() {
            let connection = &mut self.open[index];
            let before = connection.peer;
            let mut admin_commands = AdminCommands {
                core: core.as_deref_mut(),
                control_plane: &self.control_plane,
                switches: &self.switches,
            };
            let mut asides = Vec::new();
            let is_sound = !connection.ready
                || connection.receive(now, &mut admin_commands, &self.switches, &mut asides).is_ok();
            connection.note_state(now);
            let (kept, peer) = (is_sound && !connection.is_overdue(now), connection.peer);
            self.on_asides(now, core.as_deref(), index, asides);
            if !kept {
                self.close(now, core.as_deref_mut(), index);
            } else {
                index += 1;
                // An agent that connects again has abandoned its older connection.
                if peer != before && matches!(peer, Peer::Switch(_)) {
                    let older = self.open[..index - 1].iter().position(|older| older.peer == peer);
                    if let Some(older) = older {
                        self.open.remove(older);
                        index -= 1;
                    }
                }
            }
        }
    }

    /// Processes input that concerns other connections than its own.
    fn on_asides(&mut self, now: Now, core: Option<&Metadata>, index: usize, asides: Vec<Aside>) {
        for aside in asides {
            match aside {
                Aside::Found(switch, reply) => {
                    let waiting = self.open.iter_mut().filter_map(|visitor| visitor.lookup.as_mut());
                    waiting.for_each(|lookup| lookup.hear(switch, &reply));
                }
                Aside::OtherRelease(address, version) => {
                    self.other_releases.hear(now, address, Protocol::Control, version);
                }
                Aside::Listening(report) => {
                    self.listening.report(now, self.open[index].source, *report);
                    self.control_plane.listening = self.listening.sockets();
                }
                Aside::Lookup(lookup) => {
                    let request =
                        ControlRequest::Lookup { term: core.map_or(0, |core| core.status().term), lookup };
                    let request = control::encode(&request).expect("it is short");
                    let Self { open, switches, .. } = self;
                    let mut ask = |id| {
                        let stream = open.iter_mut().find(|agent| agent.peer == Peer::Switch(id));
                        stream.is_some_and(|agent| agent.stream.queue(&request).is_ok())
                    };
                    let asked: Vec<_> =
                        switches.iter().map(|(name, id)| (name.clone(), *id, ask(*id))).collect();
                    self.open[index].lookup = Some(Pending::new(now, lookup, &asked));
                }
            }
        }
    }

    /// Answers lookups that are complete or have timed out.
    fn answer_lookups(&mut self, now: Now) {
        for visitor in &mut self.open {
            let Some(answers) = visitor.lookup.as_ref().and_then(|lookup| lookup.answers(now)) else {
                continue;
            };
            let json = serde_json::to_vec(&answers).expect("plain data");
            // If the visitor does not read, the answer is lost.
            let _ = visitor.stream.queue(&json);
            visitor.lookup = None;
        }
    }

    fn close(&mut self, now: Now, core: Option<&mut Metadata>, index: usize) {
        let closed = self.open.remove(index).peer;
        if let (Peer::Switch(switch), Some(core)) = (closed, core)
            && !self.open.iter().any(|connection| connection.peer == closed)
        {
            core.handle_switch_disconnected(now, switch);
        }
    }

    /// Sends the core's messages to agents, answers visitors that wait for readiness, and flushes
    /// all streams.
    pub(super) fn send(&mut self, now: Now, mut core: Option<&mut Metadata>) {
        while let Some((switch, request)) = core.as_mut().and_then(|core| core.poll_switch()) {
            let connection = self.open.iter_mut().find(|connection| connection.peer == Peer::Switch(switch));
            if let (Some(connection), Ok(bytes)) = (connection, control::encode(&request)) {
                // If the stream's output is full, the request is lost and the core repeats it.
                let _ = connection.stream.queue(&bytes);
            }
        }
        self.answer_lookups(now);
        self.answer_waiting(core.as_deref());
        self.answer_held(core.as_deref());
        let mut index = 0;
        while index < self.open.len() {
            match self.open[index].stream.flush() {
                Ok(()) => index += 1,
                Err(_) => self.close(now, core.as_deref_mut(), index),
            }
        }
    }

    fn answer_waiting(&mut self, core: Option<&Metadata>) {
        let waits = |connection: &Connection| connection.peer == Peer::Admin { waits: true };
        if !self.open.iter().any(waits) {
            return;
        }
        let answer = match core.filter(|core| !core.is_overdue()) {
            Some(core) if core.status().ready => b"true".to_vec(),
            Some(_) => return,
            None => NotLeading::new(&self.control_plane, None).encode(),
        };
        for connection in self.open.iter_mut().filter(|connection| waits(connection)) {
            connection.peer = Peer::Admin { waits: false };
            let _ = connection.stream.queue(&answer);
        }
    }

    /// Answers changes that are persisted.
    fn answer_held(&mut self, core: Option<&Metadata>) {
        for connection in &mut self.open {
            let Some((version, answer)) = &connection.held else { continue };
            let answer = match core {
                Some(core) if core.version() >= *version => answer.clone(),
                Some(core) if !core.is_overdue() => continue,
                _ => NotLeading::new(&self.control_plane, None).encode(),
            };
            connection.held = None;
            let _ = connection.stream.queue(&answer);
        }
    }
}

impl Connection {
    fn is_visitor(&self) -> bool {
        !matches!(self.peer, Peer::Switch(_))
    }

    fn note_state(&mut self, now: Now) {
        let owes_input = self.stream.has_partial_input();
        let state = match self.peer {
            Peer::Unknown => State::Greeting,
            // Unread output to an agent does not count: if it is lost, the core repeats it.
            Peer::Switch(_) if owes_input => State::Unfinished,
            Peer::Admin { .. } if owes_input || self.stream.has_output() => State::Unfinished,
            Peer::Admin { waits } if waits || self.held.is_some() => State::Waiting,
            Peer::Switch(_) | Peer::Admin { .. } => State::Idle,
        };
        if state != self.state {
            (self.state, self.since_ns) = (state, now.boot_ns);
        }
    }

    fn is_overdue(&self, now: Now) -> bool {
        let longest = match self.state {
            State::Greeting | State::Unfinished => UNFINISHED_MAX,
            State::Waiting => WAITING_MAX,
            State::Idle if self.is_visitor() => IDLE_MAX,
            State::Idle => return false,
        };
        now.boot_ns >= self.since_ns + longest.as_nanos() as u64
    }

    fn receive(
        &mut self,
        now: Now,
        admin_commands: &mut AdminCommands<'_>,
        switches: &[(String, SwitchId)],
        asides: &mut Vec<Aside>,
    ) -> Result<(), StreamError> {
        let mut frames = Vec::new();
        self.stream.receive(|frame| frames.push(frame.to_vec()))?;
        for frame in frames {
            self.since_ns = now.boot_ns;
            match self.peer {
                Peer::Unknown => {
                    asides.extend(Greeting::other_version(&frame).map(|version| {
                        // The last message before the connection is closed has the version of this
                        // release.
                        let _ = self.stream.queue(&encode(&Greeting::new(Role::Admin)));
                        let _ = self.stream.flush();
                        Aside::OtherRelease(self.source, version)
                    }));
                    self.greet(now, admin_commands, switches, &frame)?;
                }
                Peer::Switch(switch) => match control::decode(&frame) {
                    Ok(reply @ ControlReply::Found { .. }) => asides.push(Aside::Found(switch, reply.into())),
                    Ok(reply) => {
                        if let Some(core) = &mut admin_commands.core {
                            core.handle_switch(now, switch, reply);
                        }
                    }
                    Err(_) => return Err(StreamError::Closed),
                },
                Peer::Admin { .. } => self.answer(admin_commands, &frame, asides)?,
            }
        }
        Ok(())
    }

    fn greet(
        &mut self,
        now: Now,
        admin_commands: &mut AdminCommands<'_>,
        switches: &[(String, SwitchId)],
        frame: &[u8],
    ) -> Result<(), StreamError> {
        self.peer = match Greeting::decode(frame).map(|greeting| greeting.role) {
            Ok(Role::Admin) => Peer::Admin { waits: false },
            Ok(Role::Switch { name }) => {
                let known = switches.iter().find(|(known, _)| *known == name);
                let (_, switch) = known.ok_or(StreamError::Closed)?;
                if let Some(core) = &mut admin_commands.core {
                    core.handle_switch_connected(now, *switch);
                }
                Peer::Switch(*switch)
            }
            Err(_) => return Err(StreamError::Closed),
        };
        Ok(())
    }

    fn answer(
        &mut self,
        admin_commands: &mut AdminCommands<'_>,
        frame: &[u8],
        asides: &mut Vec<Aside>,
    ) -> Result<(), StreamError> {
        let request = decode(frame).map_err(|_| StreamError::Closed)?;
        match admin_commands.answer(&request).map_err(io::Error::from)? {
            Answer::Now(json) => return self.stream.queue(&json),
            Answer::Persisted(version, json) => self.held = Some((version, json)),
            Answer::Noted(report) => {
                asides.push(Aside::Listening(report));
                return self.stream.queue(b"true");
            }
            Answer::Found(lookup) => asides.push(Aside::Lookup(lookup)),
            Answer::Ready => self.peer = Peer::Admin { waits: true },
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
