//! Copying streams between nodes: ordered, reliable until they break, gone with either process.

use super::Cluster;
use super::event::Event;
use crate::network::Host;
use nicekv_replica::StreamPeer;
use std::net::SocketAddrV4;

/// Maximum open streams.
const CONNECTIONS_MAX: usize = 1024;

/// A copying stream between two processes. It ends with either.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) dialer: (usize, u64),
    pub(super) acceptor: (usize, u64),
    /// When the last frame sent so far arrives, by direction.
    busy_until_ns: [u64; 2],
}

impl Cluster {
    pub(super) fn send_frame(&mut self, index: usize, peer: StreamPeer, bytes: Vec<u8>) {
        let process = (index, self.nodes[index].process);
        let number = match peer {
            StreamPeer::Accepted(number) => number,
            StreamPeer::Dialed(address) => match self.dial(process, address) {
                Some(number) => number,
                None => return,
            },
        };
        let Some(connection) = self.connections.get(&number) else { return };
        let to_acceptor = connection.dialer == process;
        let (from, to) = match to_acceptor {
            true => (connection.dialer.0, connection.acceptor.0),
            false => (connection.acceptor.0, connection.dialer.0),
        };
        let (from, to) = (Host::Node(from), Host::Node(to));
        if self.network.is_cut(from, to) || self.random.chance(self.faults.stream_break) {
            self.tally.count("streams broken");
            self.connections.remove(&number);
            return;
        }
        let slowness = self.slowness(from).max(self.slowness(to));
        let arrives_ns = self.queue.now_ns() + self.network.reliable_delay(&mut self.random) * slowness;
        let connection = self.connections.get_mut(&number).expect("looked up");
        let free_ns = &mut connection.busy_until_ns[usize::from(to_acceptor)];
        *free_ns = (*free_ns).max(arrives_ns);
        self.queue.at(*free_ns, Event::Frame { connection: number, to_acceptor, bytes });
    }

    /// The open connection of this process to that address; a new one if there is none.
    fn dial(&mut self, dialer: (usize, u64), address: SocketAddrV4) -> Option<u64> {
        let acceptor = self.nodes.iter().position(|node| node.address == address && node.core.is_some())?;
        let acceptor = (acceptor, self.nodes[acceptor].process);
        let known =
            self.connections.iter().find(|(_, known)| (known.dialer, known.acceptor) == (dialer, acceptor));
        if let Some((number, _)) = known {
            return Some(*number);
        }
        assert!(self.connections.len() < CONNECTIONS_MAX);
        self.connections_made += 1;
        let connection = Connection { dialer, acceptor, busy_until_ns: [0; 2] };
        self.connections.insert(self.connections_made, connection);
        Some(self.connections_made)
    }

    pub(super) fn frame(&mut self, number: u64, to_acceptor: bool, bytes: &[u8]) {
        let now_ns = self.queue.now_ns();
        let Some(connection) = self.connections.get(&number) else { return };
        let (from, index) = match to_acceptor {
            true => (connection.dialer.0, connection.acceptor.0),
            false => (connection.acceptor.0, connection.dialer.0),
        };
        let peer = match to_acceptor {
            true => StreamPeer::Accepted(number),
            false => StreamPeer::Dialed(self.nodes[from].address),
        };
        self.draw_node_fault(index);
        let paused_until_ns = self.nodes[index].paused_until_ns;
        if now_ns < paused_until_ns {
            let event = Event::Frame { connection: number, to_acceptor, bytes: bytes.to_vec() };
            return self.queue.at(paused_until_ns, event);
        }
        if self.nodes[index].core.is_none() {
            return;
        }
        self.note(|names| Some(names.frame(Host::Node(from), Host::Node(index), bytes)));
        let node = &mut self.nodes[index];
        let now = node.clock.now(now_ns);
        node.core.as_mut().expect("checked").handle_stream(now, peer, bytes);
        let busy = node.turn(now_ns, self.scenario.pace.service_ns, &mut self.random);
        self.start_disk(index, busy);
        self.flush_node(index);
    }
}
