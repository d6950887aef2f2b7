//! What goes over a cable.

use std::io::Read;

use socket2::{Domain, Protocol, Socket, Type};

use crate::fixture::LabUnderTest;
use crate::inside;

/// Hears everything on the cable of a host.
pub(crate) struct Tap {
    socket: Socket,
}

/// Of a UDP datagram.
pub(crate) struct Packet<'a> {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    frame: &'a [u8],
}

impl Packet<'_> {
    /// What kind of the store's datagrams it would be, behind headers without options.
    pub(crate) fn opcode(&self) -> Option<u8> {
        const AT: usize = 14 + 20 + 8 + 3;
        self.frame.get(AT).copied()
    }

    /// Whether it says these bytes anywhere.
    pub(crate) fn says(&self, bytes: &[u8]) -> bool {
        self.frame.windows(bytes.len()).any(|window| window == bytes)
    }
}

impl Tap {
    pub(crate) fn on(lab: &LabUnderTest, host: &str) -> Self {
        const EVERYTHING: u16 = 0x0003;
        let socket = inside(lab, host, || {
            let protocol = Protocol::from(i32::from(EVERYTHING.to_be()));
            Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap()
        });
        socket.set_nonblocking(true).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        Self { socket }
    }

    /// How many such datagrams came or went since the last call. A frame is here before its host has seen it.
    pub(crate) fn count(&self, such: impl Fn(&Packet<'_>) -> bool) -> usize {
        self.ways(such).len()
    }

    /// The same, from where to where.
    pub(crate) fn ways(&self, such: impl Fn(&Packet<'_>) -> bool) -> Vec<([u8; 4], [u8; 4])> {
        let (mut ways, mut frame) = (Vec::new(), [0; 2048]);
        while let Ok(length) = (&self.socket).read(&mut frame) {
            let packet = udp(&frame[..length]).filter(&such);
            ways.extend(packet.map(|packet| (packet.source, packet.destination)));
        }
        ways
    }
}

/// Ethernet, IPv4 without options, UDP.
fn udp(frame: &[u8]) -> Option<Packet<'_>> {
    let header = frame.get(14..34)?;
    let is_udp = frame[12..14] == [0x08, 0x00] && header[0] == 0x45 && header[9] == 17;
    let address = |offset: usize| header[offset..offset + 4].try_into().expect("four bytes");
    is_udp.then(|| Packet { source: address(12), destination: address(16), frame })
}
