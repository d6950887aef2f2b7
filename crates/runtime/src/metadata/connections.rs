//! The TCP connections of the metadata service: agents of switches, which stay, and visitors, which ask and go.
//!
//! Anyone may connect, so nobody may keep others out:
//!
//! ```text
//!   new ──▶ greeting owed ──▶ agent: stays, one for each configured switch
//!                    │
//!                    └──────▶ visitor: idle ◀──▶ unfinished (part of a frame, an answer that is not read) or waiting (for readiness)
//!
//!   too many visitors of one address, or too many connections: the oldest visitor that is idle or owes its greeting is closed,
//!   or else the oldest; each state has its longest time
//! ```

use crate::control_plane::{AdminRequest, CONTROL_LIMITS, Greeting, Role, decode};
use crate::{FramedStream, PollFd, StreamError, accept};
use nicekv_dataplane::control;
use nicekv_metadata::{Metadata, Plan, Refused, SwitchId};
use nicekv_wire::{Duration, Now};
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};

/// Most connections. Agents are fewer (`nicekv_metadata::SWITCHES_MAX`), so that there is always a visitor who can give way.
const CONNECTIONS_MAX: usize = 64;
/// Most visitors from one address.
const VISITORS_PER_SOURCE_MAX: usize = 16;
/// Connections accepted before other work is done.
const ACCEPTS_MAX: usize = 64;
/// For a greeting, for the rest of a frame that has begun, for reading an answer: a byte now and then does not prolong it.
const UNFINISHED_MAX: Duration = Duration::from_secs(5);
/// For the next question of a visitor.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// For readiness; who still wants to know it asks again.
const WAITING_MAX: Duration = Duration::from_secs(60);

struct Connection {
    stream: FramedStream,
    source: IpAddr,
    peer: Peer,
    opened_ns: u64,
    state: State,
    /// Since when it is in that state, or when the last frame was complete.
    since_ns: u64,
    ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Unknown,
    Switch(SwitchId),
    /// `waits`: asked to be told when the cluster is ready.
    Admin {
        waits: bool,
    },
}

/// What is owed, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The greeting.
    Greeting,
    /// By the peer: the rest of a frame, or the reading of an answer.
    Unfinished,
    /// By us: the news that the cluster is ready.
    Waiting,
    /// Nothing.
    Idle,
}

pub(super) struct Connections {
    switches: Vec<(String, SwitchId)>,
    open: Vec<Connection>,
}

impl Connections {
    pub(super) fn new(switches: Vec<(String, SwitchId)>) -> Self {
        Self { switches, open: Vec::new() }
    }

    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.open.iter().map(|connection| connection.stream.interest())
    }

    /// Which of [`Self::interests`] have ended the wait.
    pub(super) fn note_ready(&mut self, ready: &[bool]) {
        for (connection, ready) in self.open.iter_mut().zip(ready) {
            connection.ready = *ready;
        }
    }

    pub(super) fn accept(&mut self, now: Now, listener: &TcpListener) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            let Some(stream) = accept(listener)? else { break };
            // One that is gone already is nobody's failure.
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
        } else if self.open.len() >= CONNECTIONS_MAX {
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
        });
    }

    /// Closes the visitor among `candidates` that is missed least.
    fn give_way(&mut self, candidates: impl Fn(&Connection) -> bool) {
        let visitors = self.open.iter().enumerate().filter(|(_, one)| one.is_visitor() && candidates(one));
        let is_busy = |one: &Connection| matches!(one.state, State::Unfinished | State::Waiting);
        let least = visitors.min_by_key(|(_, one)| (is_busy(one), one.opened_ns)).map(|(index, _)| index);
        if let Some(index) = least {
            self.open.remove(index);
        }
    }

    /// Hands what has arrived to the core, and closes what is broken or overdue.
    pub(super) fn receive(&mut self, now: Now, core: &mut Metadata) {
        let mut index = 0;
        while index < self.open.len() {
            let connection = &mut self.open[index];
            let before = connection.peer;
            let is_sound = !connection.ready || connection.receive(now, core, &self.switches).is_ok();
            connection.note_state(now);
            let (kept, peer) = (is_sound && !connection.is_overdue(now), connection.peer);
            if !kept {
                self.close(now, core, index);
            } else {
                index += 1;
                // An agent that dials again has given its older connection up.
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

    fn close(&mut self, now: Now, core: &mut Metadata, index: usize) {
        let closed = self.open.remove(index).peer;
        if let Peer::Switch(switch) = closed
            && !self.open.iter().any(|connection| connection.peer == closed)
        {
            core.handle_switch_disconnected(now, switch);
        }
    }

    /// Sends what the core has for agents, answers who waits for readiness, and flushes.
    pub(super) fn send(&mut self, now: Now, core: &mut Metadata) {
        while let Some((switch, request)) = core.poll_switch() {
            let connection = self.open.iter_mut().find(|connection| connection.peer == Peer::Switch(switch));
            if let (Some(connection), Ok(bytes)) = (connection, control::encode(&request)) {
                // A stream without room loses the request: the core repeats it.
                let _ = connection.stream.queue(&bytes);
            }
        }
        let waits = |connection: &Connection| connection.peer == Peer::Admin { waits: true };
        if self.open.iter().any(waits) && core.status().ready {
            for connection in self.open.iter_mut().filter(|connection| waits(connection)) {
                connection.peer = Peer::Admin { waits: false };
                let _ = connection.stream.queue(b"true");
            }
        }
        let mut index = 0;
        while index < self.open.len() {
            match self.open[index].stream.flush() {
                Ok(()) => index += 1,
                Err(_) => self.close(now, core, index),
            }
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
            // What an agent does not read is lost, and said again.
            Peer::Switch(_) if owes_input => State::Unfinished,
            Peer::Admin { .. } if owes_input || self.stream.has_output() => State::Unfinished,
            Peer::Admin { waits: true } => State::Waiting,
            Peer::Switch(_) | Peer::Admin { waits: false } => State::Idle,
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
        core: &mut Metadata,
        switches: &[(String, SwitchId)],
    ) -> Result<(), StreamError> {
        let mut frames = Vec::new();
        self.stream.receive(|frame| frames.push(frame.to_vec()))?;
        for frame in frames {
            self.since_ns = now.boot_ns;
            match self.peer {
                Peer::Unknown => self.greet(now, core, switches, &frame)?,
                Peer::Switch(switch) => match control::decode(&frame) {
                    Ok(reply) => core.handle_switch(now, switch, reply),
                    Err(_) => return Err(StreamError::Closed),
                },
                Peer::Admin { .. } => self.answer(core, &frame)?,
            }
        }
        Ok(())
    }

    fn greet(
        &mut self,
        now: Now,
        core: &mut Metadata,
        switches: &[(String, SwitchId)],
        frame: &[u8],
    ) -> Result<(), StreamError> {
        self.peer = match Greeting::decode(frame).map(|greeting| greeting.role) {
            Ok(Role::Admin) => Peer::Admin { waits: false },
            Ok(Role::Switch { name }) => {
                let known = switches.iter().find(|(known, _)| *known == name);
                let (_, switch) = known.ok_or(StreamError::Closed)?;
                core.handle_switch_connected(now, *switch);
                Peer::Switch(*switch)
            }
            Err(_) => return Err(StreamError::Closed),
        };
        Ok(())
    }

    fn answer(&mut self, core: &mut Metadata, frame: &[u8]) -> Result<(), StreamError> {
        let json = match decode(frame).map_err(|_| StreamError::Closed)? {
            AdminRequest::Status => serde_json::to_vec(&core.status()),
            AdminRequest::ClusterInfo => serde_json::to_vec(&core.cluster_info()),
            AdminRequest::Plan(change) => planned(core.plan(&change)),
            AdminRequest::Change(change) => planned(core.change(&change)),
            AdminRequest::Ready => {
                self.peer = Peer::Admin { waits: true };
                return Ok(());
            }
        };
        self.stream.queue(&json.map_err(io::Error::from)?)
    }
}

fn planned(outcome: Result<Plan, Refused>) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&outcome.map_err(|refused| refused.to_string()))
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
