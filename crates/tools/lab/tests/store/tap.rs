//! Captures frames on a link.

use std::io::Read;

use socket2::{Domain, Protocol, Socket, Type};

use crate::fixture::LabUnderTest;
use crate::inside;

/// Captures all frames on the link of a host.
pub(crate) struct Tap {
    socket: Socket,
}

/// A captured UDP datagram.
pub(crate) struct Packet<'a> {
    pub(crate) source: [u8; 4],
    pub(crate) destination: [u8; 4],
    frame: &'a [u8],
}

impl Packet<'_> {
    /// The opcode, if it is a datagram of the store. IP headers with options are not parsed.
    pub(crate) fn opcode(&self) -> Option<u8> {
        const AT: usize = 14 + 20 + 8 + 3;
        self.frame.get(AT).copied()
    }

    /// Whether the payload contains these bytes.
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

    /// Number of matching datagrams in either direction since the last call. A frame is captured
    /// before its host has processed it.
    pub(crate) fn count(&self, such: impl Fn(&Packet<'_>) -> bool) -> usize {
        self.ways(such).len()
    }

    /// Source and destination addresses of matching datagrams.
    pub(crate) fn ways(&self, such: impl Fn(&Packet<'_>) -> bool) -> Vec<([u8; 4], [u8; 4])> {
        let (mut ways, mut frame) = (Vec::new(), [0; 2048]);
        while let Ok(length) = (&self.socket).read(&mut frame) {
            let packet = udp(&frame[..length]).filter(&such);
            ways.extend(packet.map(|packet| (packet.source, packet.destination)));
        }
        ways
    }
}

/// Parses Ethernet, IPv4 without options, and UDP.
fn udp(frame: &[u8]) -> Option<Packet<'_>> {
    let header = frame.get(14..34)?;
    let is_udp = frame[12..14] == [0x08, 0x00] && header[0] == 0x45 && header[9] == 17;
    let address = |offset: usize| header[offset..offset + 4].try_into().expect("four bytes");
    is_udp.then(|| Packet { source: address(12), destination: address(16), frame })
}
