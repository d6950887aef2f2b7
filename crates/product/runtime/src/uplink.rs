//! Path of a role's datagrams: its socket, or an edge of a switch in its own process.

use crate::inbox::LocalPort;
use crate::switch::{Edge, Edges};
use crate::{DatagramCounters, Left, Message, UdpEndpoint, Waker};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};

/// A socket; on the edge of a switch also the switch's pipeline, run by the sender, and an inbox
/// for other edges.
pub struct Uplink {
    endpoint: UdpEndpoint,
    edge: Option<(Edge, Edges)>,
    inbox: Option<LocalPort>,
}

impl From<UdpEndpoint> for Uplink {
    /// Everything goes through the network: its switch matches.
    fn from(endpoint: UdpEndpoint) -> Self {
        Self { endpoint, edge: None, inbox: None }
    }
}

impl Uplink {
    /// Matches here, with the tables of this process' switch. The endpoint must be bound to an
    /// address of its own.
    pub fn on_edge(endpoint: UdpEndpoint, edges: &Edges) -> io::Result<Self> {
        let edge = edges.attach(&endpoint)?;
        Ok(Self { endpoint, edge: Some((edge, edges.clone())), inbox: None })
    }

    /// From now on other edges pass datagrams in memory, and wake the thread with `waker` if it
    /// [sleeps](Self::is_left). No effect without an edge.
    /// who is on no edge.
    pub fn wake_with(&mut self, waker: &Waker) {
        if let Some((_, edges)) = &self.edge {
            self.inbox = Some(edges.network.join(self.endpoint.local_address(), waker.clone()));
        }
    }

    /// Whether there is something to [receive](Self::receive_local). If not, and the thread
    /// `sleeps` now, the next sender wakes it.
    pub fn is_left(&self, sleeps: bool) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.is_left(sleeps))
    }

    /// Receives datagrams of other edges, without a system call.
    pub fn receive_local(&mut self, handle: impl FnMut(Message<'_>)) {
        if let Some(inbox) = &mut self.inbox {
            inbox.receive(handle);
        }
    }

    /// Counters of its socket.
    pub fn counters(&self) -> DatagramCounters {
        self.endpoint.counters()
    }

    /// See [`UdpEndpoint::receive`].
    pub fn receive(&mut self, handle: impl FnMut(Message<'_>)) -> io::Result<Left> {
        self.endpoint.receive(handle)
    }

    /// See [`UdpEndpoint::send_with`].
    pub fn send_with(&mut self, fill: impl FnMut(&mut Vec<u8>) -> Option<SocketAddrV4>) -> io::Result<()> {
        match &mut self.edge {
            Some((edge, _)) => edge.send_with(&mut self.endpoint, fill),
            None => self.endpoint.send_with(fill),
        }
    }
}

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}
