//! A role's path to the network: its socket, or an edge of a switch in the same process.

use crate::inbox::LocalPort;
use crate::switch::{Edge, Edges};
use crate::{DatagramCounters, Left, Message, UdpEndpoint, Waker};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};

/// A socket. On an edge of a switch, also the switch's pipeline, which the sender runs itself, and
/// an inbox for datagrams from other edges.
pub struct Uplink {
    endpoint: UdpEndpoint,
    edge: Option<(Edge, Edges)>,
    inbox: Option<LocalPort>,
}

impl From<UdpEndpoint> for Uplink {
    /// Sends everything to the network, where a switch matches it.
    fn from(endpoint: UdpEndpoint) -> Self {
        Self { endpoint, edge: None, inbox: None }
    }
}

impl Uplink {
    /// Matches datagrams in this thread, with the tables of this process' switch. The endpoint must
    /// be bound to a specific address.
    pub fn on_edge(endpoint: UdpEndpoint, edges: &Edges) -> io::Result<Self> {
        let edge = edges.attach(&endpoint)?;
        Ok(Self { endpoint, edge: Some((edge, edges.clone())), inbox: None })
    }

    /// From now on other edges pass datagrams in memory, and wake this thread with `waker` if it
    /// [sleeps](Self::is_left). Has no effect without an edge.
    pub fn wake_with(&mut self, waker: &Waker) {
        if let Some((_, edges)) = &self.edge {
            self.inbox = Some(edges.network.join(self.endpoint.local_address(), waker.clone()));
        }
    }

    /// Whether there are datagrams to [receive](Self::receive_local). If there are none and the
    /// thread is about to sleep (`sleeps`), the next sender wakes it.
    pub fn is_left(&self, sleeps: bool) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.is_left(sleeps))
    }

    /// Receives datagrams from other edges, without a system call.
    pub fn receive_local(&mut self, handle: impl FnMut(Message<'_>)) {
        if let Some(inbox) = &mut self.inbox {
            inbox.receive(handle);
        }
    }

    /// Counters of the socket.
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
