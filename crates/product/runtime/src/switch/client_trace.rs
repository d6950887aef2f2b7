//! Tracing of one client's datagrams in a switch (`nicekv trace`).
//!
//! ```text
//!   user space:  every datagram passes here: one comparison each, also while no client is traced
//!   kernel, tc:  a packet socket, open only while a client is traced: the kernel timestamps frames at a port before the program takes them
//!   kernel, XDP: the program takes frames before the kernel can timestamp them: nothing is recorded
//! ```
//!
//! The packet socket has a filter in the kernel that selects the client's datagrams, so tracing
//! costs other clients little, and nothing when it is off. The socket needs `CAP_NET_RAW`; without
//! it the trace says why it has no times.

use crate::sys::{self, Stamped};
use nicekv_proto::{ClientId, HeaderLayout, Now};
use nicekv_switch::control::{ClientTrace, TracedDatagram};
use rustix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;

/// Most datagrams that are recorded; further ones are ignored.
const TRACED_DATAGRAMS_MAX: usize = 256;
/// Bytes of a frame that are examined, starting at its IP header: the IP and UDP headers and ours.
const HEADERS_BYTES: usize = IP_UDP_BYTES + size_of::<HeaderLayout>();
/// Length of an IP header without options plus that of a UDP header.
const IP_UDP_BYTES: usize = 28;
/// Makes a packet socket receive all protocols.
const EVERYTHING: u16 = libc::ETH_P_ALL as u16;

/// A port of a switch in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedPort {
    /// Index of the port's interface.
    pub ifindex: u32,
    /// Name for operators.
    pub name: String,
    /// Whether a packet socket sees frames before the switch's program takes them.
    pub is_seen: bool,
}

/// Records a client's datagrams; see the module documentation.
#[derive(Debug, Default)]
pub struct ClientTracer {
    /// `None`: datagrams pass through this process.
    ports: Option<Vec<WatchedPort>>,
    watched: Option<ClientId>,
    seen: Vec<TracedDatagram>,
    tap: Option<Socket>,
    blind: Option<String>,
}

impl ClientTracer {
    /// A tracer of a switch in the kernel that receives frames at these ports.
    pub fn at_ports(ports: Vec<WatchedPort>) -> Self {
        Self { ports: Some(ports), ..Self::default() }
    }

    /// Starts tracing `client`. If it is being traced already, stops and returns the recorded
    /// datagrams.
    pub(super) fn look(&mut self, now: Now, client: Option<ClientId>) -> Option<ClientTrace> {
        let was_watched = client.is_some() && self.watched == client;
        if was_watched {
            self.read_tap(now);
        } else {
            (self.seen, self.blind) = (Vec::new(), None);
        }
        (self.watched, self.tap) = (client.filter(|_| !was_watched), None);
        if let Some(client) = self.watched {
            self.open_tap(client);
        }
        let seen = std::mem::take(&mut self.seen);
        client.map(|_| ClientTrace { now_ns: now.boot_ns, blind: self.blind.clone(), seen })
    }

    /// Whether a datagram belongs to the traced client.
    #[inline]
    pub(super) fn is_of_watched(&self, datagram: &[u8]) -> bool {
        self.watched.is_some_and(|client| {
            HeaderLayout::peek(datagram).is_some_and(|header| header.client.get() == client.0)
        })
    }

    /// Records a datagram that was forwarded to `copies` receivers, or dropped if 0.
    pub(super) fn note_passed(&mut self, arrived: Now, datagram: &[u8], copies: usize) {
        let what = match copies {
            0 => format!("drops {}", opcode(datagram)),
            1 => format!("passes {} on", opcode(datagram)),
            copies => format!("passes {} on, {copies} copies", opcode(datagram)),
        };
        self.note(arrived.boot_ns, what);
    }

    fn note(&mut self, at_ns: u64, what: String) {
        if self.seen.len() < TRACED_DATAGRAMS_MAX {
            self.seen.push(TracedDatagram { at_ns, what });
        }
    }

    fn open_tap(&mut self, client: ClientId) {
        let Some(ports) = &self.ports else { return };
        let hidden: Vec<_> = ports.iter().filter(|port| !port.is_seen).map(|port| &*port.name).collect();
        if !hidden.is_empty() {
            let at = hidden.join(", ");
            self.blind =
                Some(format!("no times at XDP, which takes frames before they could be noted ({at})"));
        }
        if hidden.len() == ports.len() {
            return;
        }
        match open_tap(client) {
            Ok(tap) => self.tap = Some(tap),
            Err(error) => self.blind = Some(format!("no times: a packet socket needs CAP_NET_RAW: {error}")),
        }
    }

    fn read_tap(&mut self, now: Now) {
        let Some(tap) = self.tap.take() else { return };
        let ports = self.ports.take().unwrap_or_default();
        let clock = clock_gettime(ClockId::Realtime);
        let unix_ns = clock.tv_sec as u64 * 1_000_000_000 + clock.tv_nsec as u64;
        let mut bytes = [0; HEADERS_BYTES];
        while let Ok(Stamped { ifindex, is_outgoing, at_unix_ns, length }) =
            sys::receive_stamped(tap.as_fd(), &mut bytes)
        {
            let datagram = bytes[..length].get(IP_UDP_BYTES..).unwrap_or_default();
            let port = ports.iter().find(|port| port.ifindex == ifindex);
            let Some(port) = port.filter(|_| self.is_of_watched(datagram)) else { continue };
            let way = if is_outgoing { "leaves by" } else { "arrives at" };
            let at_ns = now.boot_ns.saturating_sub(unix_ns.saturating_sub(at_unix_ns));
            self.note(at_ns, format!("{} {way} {}", opcode(datagram), port.name));
        }
        self.ports = Some(ports);
    }
}

/// Name of the datagram's opcode, as in `docs/PROTOCOL.md`.
fn opcode(datagram: &[u8]) -> String {
    let opcode = HeaderLayout::peek(datagram).and_then(HeaderLayout::opcode);
    opcode.map_or("a datagram".into(), |opcode| format!("{opcode:?}"))
}

/// Opens a packet socket that receives this client's packets on all interfaces.
fn open_tap(client: ClientId) -> io::Result<Socket> {
    let tap = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(i32::from(EVERYTHING.to_be()))))?;
    tap.set_nonblocking(true)?;
    // Packets may arrive before the filter is set; they are discarded when read.
    tap.attach_filter(&filter(client))?;
    sys::stamp_received(tap.as_fd())?;
    Ok(tap)
}

/// A BPF program that accepts frames whose header has this client id, compared as two 32-bit words.
fn filter(client: ClientId) -> [SockFilter; 6] {
    let at = (IP_UDP_BYTES + offset_of!(HeaderLayout, client)) as u32;
    let (first, second) = ((client.0 >> 32) as u32, client.0 as u32);
    let step = |code: u32, jf, k| SockFilter::new(code as u16, 0, jf, k);
    let (load, is, end) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    [
        step(load, 0, at),
        step(is, 3, first),
        step(load, 0, at + 4),
        step(is, 1, second),
        step(end, 0, HEADERS_BYTES as u32),
        step(end, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicekv_proto::{Get, KeyspaceId, OpId};

    fn get(client: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let op = OpId { client: ClientId(client), sequence: 3 };
        let digest = nicekv_proto::placement::key_digest(b"k");
        Get {
            keyspace: KeyspaceId::DEFAULT,
            op,
            digest,
            forwarded: None,
            reply_to: None,
            key: b"k",
            padding: 0,
        }
        .encode(&mut bytes);
        bytes
    }

    fn at(boot_ns: u64) -> Now {
        Now { boot_ns, unix_ms: 0 }
    }

    #[test]
    fn trace_records_the_client_and_is_returned_once() {
        let mut client_tracer = ClientTracer::default();
        assert!(!client_tracer.is_of_watched(&get(7)) && client_tracer.look(at(1), None).is_none());
        let first = client_tracer.look(at(2), Some(ClientId(7))).unwrap();
        assert_eq!(first, ClientTrace { now_ns: 2, ..ClientTrace::default() });
        assert!(client_tracer.is_of_watched(&get(7)) && !client_tracer.is_of_watched(&get(8)));
        assert!(!client_tracer.is_of_watched(b"short"));
        client_tracer.note_passed(at(3), &get(7), 1);
        client_tracer.note_passed(at(4), &get(7), 0);
        let told = client_tracer.look(at(5), Some(ClientId(7))).unwrap();
        let told: Vec<_> = told.seen.iter().map(|seen| (seen.at_ns, seen.what.as_str())).collect();
        assert_eq!(told, [(3, "passes Get on"), (4, "drops Get")]);
        assert!(!client_tracer.is_of_watched(&get(7)), "tracing has stopped");
        client_tracer.look(at(6), Some(ClientId(7)));
        for _ in 0..2 * TRACED_DATAGRAMS_MAX {
            client_tracer.note_passed(at(7), &get(7), 3);
        }
        assert_eq!(client_tracer.look(at(8), Some(ClientId(7))).unwrap().seen.len(), TRACED_DATAGRAMS_MAX);
    }

    #[test]
    fn xdp_switch_reports_that_it_cannot_trace() {
        let port = WatchedPort { ifindex: 1, name: "port 0 (nic)".into(), is_seen: false };
        let mut client_tracer = ClientTracer::at_ports(vec![port]);
        let told = client_tracer.look(at(2), Some(ClientId(7))).unwrap();
        assert!(told.blind.is_some_and(|why| why.contains("XDP") && why.contains("nic")));
    }
}
