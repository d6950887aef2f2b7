//! The way of a client's datagrams: through the network, or as an edge of a switch in its own process.

use crate::switch::{Edge, Edges};
use crate::{Message, UdpEndpoint};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};

/// A client's socket, and the switch's pipeline if its sender runs that itself.
pub struct Uplink {
    endpoint: UdpEndpoint,
    edge: Option<Edge>,
}

impl From<UdpEndpoint> for Uplink {
    /// Through the network: its switch matches.
    fn from(endpoint: UdpEndpoint) -> Self {
        Self { endpoint, edge: None }
    }
}

impl Uplink {
    /// Matches here, with the tables of the switch of this process. The endpoint must be bound to an address of its own.
    pub fn on_edge(endpoint: UdpEndpoint, edges: &Edges) -> io::Result<Self> {
        let edge = edges.attach(&endpoint)?;
        Ok(Self { endpoint, edge: Some(edge) })
    }

    /// As [`UdpEndpoint::receive`].
    pub fn receive(&mut self, handle: impl FnMut(Message<'_>)) -> io::Result<bool> {
        self.endpoint.receive(handle)
    }

    /// As [`UdpEndpoint::send_with`].
    pub fn send_with(&mut self, fill: impl FnMut(&mut Vec<u8>) -> Option<SocketAddrV4>) -> io::Result<()> {
        match &mut self.edge {
            Some(edge) => edge.send_with(&mut self.endpoint, fill),
            None => self.endpoint.send_with(fill),
        }
    }
}

impl AsFd for Uplink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}
