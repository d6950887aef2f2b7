//! The TCP connections of the metadata service.

use crate::control_plane::{AdminRequest, CONTROL_LIMITS, Greeting, Role, decode};
use crate::{FramedStream, PollFd, StreamError, accept};
use nicekv_dataplane::control;
use nicekv_metadata::{Metadata, SwitchId};
use nicekv_wire::{Duration, Now};
use std::io;
use std::net::TcpListener;

/// Most connections; further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// A connection that has not become an agent's after this is closed: commands are short.
const VISIT_MAX: Duration = Duration::from_secs(60);

struct Connection {
    stream: FramedStream,
    peer: Peer,
    opened_ns: u64,
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

pub(super) struct Connections {
    switches: Vec<(String, SwitchId)>,
    open: Vec<Connection>,
}

impl Connections {
    pub(super) fn new(switches: Vec<(String, SwitchId)>) -> Self {
        Self { switches, open: Vec::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= CONNECTIONS_MAX
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
        while !self.is_full()
            && let Some(stream) = accept(listener)?
        {
            let stream = FramedStream::new(stream, CONTROL_LIMITS);
            self.open.push(Connection { stream, peer: Peer::Unknown, opened_ns: now.boot_ns, ready: false });
        }
        Ok(())
    }

    /// Hands what has arrived to the core, and closes what is broken.
    pub(super) fn receive(&mut self, now: Now, core: &mut Metadata) {
        let mut index = 0;
        while index < self.open.len() {
            let connection = &mut self.open[index];
            let before = connection.peer;
            let kept = if connection.ready {
                connection.receive(now, core, &self.switches).is_ok()
            } else {
                matches!(before, Peer::Switch(_))
                    || now.boot_ns < connection.opened_ns + VISIT_MAX.as_nanos() as u64
            };
            let peer = connection.peer;
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
    fn receive(
        &mut self,
        now: Now,
        core: &mut Metadata,
        switches: &[(String, SwitchId)],
    ) -> Result<(), StreamError> {
        let mut frames = Vec::new();
        self.stream.receive(|frame| frames.push(frame.to_vec()))?;
        for frame in frames {
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

    fn answer(&mut self, core: &Metadata, frame: &[u8]) -> Result<(), StreamError> {
        let json = match decode(frame).map_err(|_| StreamError::Closed)? {
            AdminRequest::Status => serde_json::to_vec(&core.status()),
            AdminRequest::ClusterInfo => serde_json::to_vec(&core.cluster_info()),
            AdminRequest::Ready => {
                self.peer = Peer::Admin { waits: true };
                return Ok(());
            }
        };
        self.stream.queue(&json.map_err(io::Error::from)?)
    }
}
