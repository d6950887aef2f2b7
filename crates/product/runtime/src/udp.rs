//! A UDP socket that sends and receives datagrams in batches.
//!
//! Datagrams may be lost: those that the kernel refuses (no room, no route, no receiver) are
//! counted and dropped, because the protocols above retry. No function blocks, or allocates memory
//! per datagram.

use crate::sys::{self, BATCH_MAX, Left, ReceiveBatch, SendBatch};
use nicekv_proto::limits::DATAGRAM_BYTES_MAX;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Requested buffer size per direction; the kernel may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounters {
    /// Datagrams received.
    pub received: u64,
    /// Received datagrams that were dropped because no message of the protocol is that long.
    pub too_long: u64,
    /// Datagrams accepted by the kernel.
    pub sent: u64,
    /// Datagrams that the kernel refused.
    pub lost: u64,
}

/// A received datagram.
#[derive(Debug)]
pub struct Message<'a> {
    /// The sender.
    pub from: SocketAddrV4,
    /// The destination address; `Some` only on an endpoint of [`UdpEndpoint::bind_switch`].
    pub destination: Option<Ipv4Addr>,
    /// The payload.
    pub bytes: &'a mut [u8],
}

/// A datagram to be forwarded.
enum Forwarded {
    /// A received datagram: its index in `incoming`.
    Received(usize),
    /// A new datagram: its range in `replaced`.
    Replaced(Range<usize>),
}

/// A bound UDP socket and its buffers.
pub struct UdpEndpoint {
    socket: Socket,
    local: SocketAddrV4,
    incoming: ReceiveBatch,
    sending: SendBatch,
    outgoing: Vec<(Vec<u8>, SocketAddrV4)>,
    /// Datagrams to be forwarded, with their destinations.
    forwards: Vec<(Forwarded, SocketAddrV4)>,
    replaced: Vec<u8>,
    counters: DatagramCounters,
}

impl UdpEndpoint {
    /// Binds to `address`; port 0 lets the kernel choose.
    pub fn bind(address: SocketAddrV4) -> io::Result<Self> {
        Self::bound(new_socket()?, address)
    }

    /// Like [`Self::bind`], on a port that a switch on this machine [shares](Self::share_port).
    pub fn bind_beside_switch(address: SocketAddrV4) -> io::Result<Self> {
        let socket = new_socket()?;
        socket.set_reuse_address(true)?;
        let endpoint = Self::bound(socket, address)?;
        endpoint.share_port(false)?;
        Ok(endpoint)
    }

    /// Binds to `port` on `device`, for all addresses that have no socket of their own. Received
    /// messages have destinations. Fails if the port is in use.
    pub fn bind_switch(device: &str, port: u16) -> io::Result<Self> {
        let socket = new_socket()?;
        socket.bind_device(Some(device.as_bytes()))?;
        sys::show_destination(socket.as_fd())?;
        Self::bound(socket, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
    }

    /// Allows or forbids other sockets on this port ([`Self::bind_beside_switch`]). Allow it only
    /// while the switch's own cluster starts: a second switch could silently take the traffic.
    pub fn share_port(&self, shared: bool) -> io::Result<()> {
        self.socket.set_reuse_address(shared)
    }

    fn bound(socket: Socket, address: SocketAddrV4) -> io::Result<Self> {
        socket.bind(&address.into())?;
        let local = socket.local_addr()?.as_socket_ipv4().expect("an IPv4 socket");
        Ok(Self {
            socket,
            local,
            incoming: ReceiveBatch::new(),
            sending: SendBatch::new(),
            outgoing: vec![(Vec::with_capacity(DATAGRAM_BYTES_MAX), local); BATCH_MAX],
            forwards: Vec::with_capacity(BATCH_MAX),
            replaced: Vec::new(),
            counters: DatagramCounters::default(),
        })
    }

    /// The address that the socket is bound to.
    pub fn local_address(&self) -> SocketAddrV4 {
        self.local
    }

    /// Counters since the socket was bound.
    pub fn counters(&self) -> DatagramCounters {
        self.counters
    }

    /// Receives one batch and passes its datagrams to `handle`.
    pub fn receive(&mut self, mut handle: impl FnMut(Message<'_>)) -> io::Result<Left> {
        let count = self.incoming.receive(self.socket.as_fd())?;
        for index in 0..count {
            let (from, destination, bytes) = self.incoming.get(index);
            if bytes.len() > DATAGRAM_BYTES_MAX {
                self.counters.too_long += 1;
            } else {
                handle(Message { from, destination, bytes });
            }
        }
        self.counters.received += count as u64;
        Ok(self.incoming.left())
    }

    /// Receives one batch and forwards its datagrams. `route` may change a datagram, and calls its
    /// second argument for each destination, optionally with other bytes to send there.
    pub fn forward(
        &mut self,
        mut route: impl FnMut(Message<'_>, &mut dyn FnMut(SocketAddrV4, Option<&[u8]>)),
    ) -> io::Result<Left> {
        self.forwards.clear();
        self.replaced.clear();
        let count = self.incoming.receive(self.socket.as_fd())?;
        for index in 0..count {
            let (from, destination, bytes) = self.incoming.get(index);
            if bytes.len() > DATAGRAM_BYTES_MAX {
                self.counters.too_long += 1;
            } else {
                let (forwards, replaced) = (&mut self.forwards, &mut self.replaced);
                route(Message { from, destination, bytes }, &mut |to, other| {
                    let start = replaced.len();
                    replaced.extend_from_slice(other.unwrap_or_default());
                    let forwarded = match other {
                        Some(other) => Forwarded::Replaced(start..start + other.len()),
                        None => Forwarded::Received(index),
                    };
                    forwards.push((forwarded, to));
                });
            }
        }
        self.counters.received += count as u64;
        for batch in self.forwards.chunks(BATCH_MAX) {
            let (incoming, replaced) = (&self.incoming, &self.replaced);
            let datagram = |at: usize| match &batch[at] {
                (Forwarded::Received(index), to) => (incoming.bytes(*index), *to),
                (Forwarded::Replaced(range), to) => (&replaced[range.clone()], *to),
            };
            let lost = self.sending.send(self.socket.as_fd(), batch.len(), datagram)?;
            self.counters.sent += (batch.len() - lost) as u64;
            self.counters.lost += lost as u64;
        }
        Ok(self.incoming.left())
    }

    /// Sends datagrams until `fill` returns `None`. `fill` writes each one to an empty buffer and
    /// returns its destination.
    pub fn send_with(
        &mut self,
        mut fill: impl FnMut(&mut Vec<u8>) -> Option<SocketAddrV4>,
    ) -> io::Result<()> {
        loop {
            let mut count = 0;
            for (bytes, to) in &mut self.outgoing {
                bytes.clear();
                match fill(bytes) {
                    Some(address) => *to = address,
                    None => break,
                }
                count += 1;
            }
            if count > 0 {
                let outgoing = &self.outgoing;
                let datagram = |at: usize| (outgoing[at].0.as_slice(), outgoing[at].1);
                let lost = self.sending.send(self.socket.as_fd(), count, datagram)?;
                self.counters.sent += (count - lost) as u64;
                self.counters.lost += lost as u64;
            }
            if count < BATCH_MAX {
                return Ok(());
            }
        }
    }
}

impl AsFd for UdpEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn new_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // The kernel may grant less. A smaller buffer only loses datagrams of shorter bursts.
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    sys::never_fragment(socket.as_fd())?;
    // Without GRO, the kernel delivers each datagram as one message.
    let _ = sys::merge_received(socket.as_fd());
    Ok(socket)
}
