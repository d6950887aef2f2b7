//! Background traffic over a target's link.

use crate::error::{BenchError, Result};
use crate::lab::Lab;
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a datagram, and of its frame: about a full one.
const DATAGRAM_BYTES: usize = 1_400;
const WIRE_BYTES: f64 = (DATAGRAM_BYTES + 42) as f64;
const PORT: u16 = 7_900;
/// Number of sockets. In a lab, datagrams queued at a receiver's shaper count against the sender's
/// socket, which blocks when its buffer is full. Together these sockets have more room than a
/// shaper's queue, so that background traffic never blocks.
const SENDERS: usize = 16;
/// The UDP sockets of the calling thread's network namespace.
const SOCKETS: &str = "/proc/thread-self/net/udp";
/// Interval of sending: a datagram or two are due then.
const PACE: Duration = Duration::from_micros(200);
/// Maximum datagrams sent at once after a pause of the machine.
const BURST_MAX: f64 = 32.0;

/// Datagrams so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) sent: u64,
    pub(super) arrived: u64,
}

impl Passed {
    /// Share of the datagrams sent since `before` that have arrived; 1 if none were sent.
    pub(super) fn part_since(self, before: Self) -> f64 {
        let sent = self.sent - before.sent;
        if sent == 0 { 1.0 } else { (self.arrived - before.arrived) as f64 / sent as f64 }
    }
}

/// Datagrams at a steady rate from a separate host to a node, until this is dropped.
pub(super) struct Traffic {
    stop: Stop,
    thread: Option<JoinHandle<io::Result<()>>>,
    sent: Arc<AtomicU64>,
    to: Host,
    /// Receives the datagrams; nobody reads them.
    #[allow(dead_code, reason = "without it the node would answer that the port is closed")]
    sink: UdpSocket,
}

impl Traffic {
    pub(super) fn start(lab: &Lab, from: Host, to: Host, bits_per_second: f64) -> Result<Self> {
        let failed = || BenchError::system("open a socket for background traffic");
        let address = SocketAddrV4::new(to.address(), PORT);
        let sink = lab.inside(to, || UdpSocket::bind(address))?.map_err(failed())?;
        let connect = || {
            let socket = UdpSocket::bind((from.address(), 0))?;
            socket.connect(address)?;
            Ok(socket)
        };
        let sockets = lab.inside(from, || (0..SENDERS).map(|_| connect()).collect::<io::Result<Vec<_>>>())?;
        let sockets = sockets.map_err(failed())?;
        let stop = Stop::new();
        let (running, sent) = (stop.clone(), Arc::new(AtomicU64::new(0)));
        let (per_second, count) = (bits_per_second / 8.0 / WIRE_BYTES, sent.clone());
        let thread = std::thread::spawn(move || send(&sockets, per_second, &count, &running));
        Ok(Self { stop, thread: Some(thread), sent, to, sink })
    }

    /// Datagrams sent and arrived so far. As nobody reads the sink, it drops all datagrams but the
    /// first ones, and the kernel counts these drops.
    pub(super) fn count(&self, lab: &Lab) -> Result<Passed> {
        let text = lab.inside(self.to, || std::fs::read_to_string(SOCKETS))?;
        let text = text.map_err(BenchError::system(format!("read {SOCKETS}")))?;
        let arrived = dropped(&text, PORT)
            .ok_or_else(|| BenchError::Environment(format!("{SOCKETS} has no socket at port {PORT}")))?;
        Ok(Passed { sent: self.sent.load(Ordering::Relaxed), arrived })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("nicekv: background traffic has ended: {error}");
        }
    }
}

/// Datagrams dropped by the socket at a port. In the kernel's list of sockets the second field is
/// the local address and port in hexadecimal, and the last one the number of drops.
fn dropped(sockets: &str, port: u16) -> Option<u64> {
    let port = format!(":{port:04X}");
    let mut lines = sockets.lines().map(|line| line.split_whitespace());
    let line = lines.find(|line| line.clone().nth(1).is_some_and(|local| local.ends_with(&port)))?;
    line.last()?.parse().ok()
}

fn send(sockets: &[UdpSocket], per_second: f64, count: &AtomicU64, stop: &Stop) -> io::Result<()> {
    let (datagram, mut last, mut due) = ([0; DATAGRAM_BYTES], Instant::now(), 0.0);
    let mut sockets = sockets.iter().cycle();
    while !stop.is_stopped() {
        let now = Instant::now();
        due = f64::min(due + (now - last).as_secs_f64() * per_second, BURST_MAX);
        last = now;
        while due >= 1.0 {
            due -= 1.0;
            if let Some(socket) = sockets.next() {
                socket.send(&datagram)?;
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(PACE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_a_socket_are_found_by_its_port() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  1: 0100007F:1CE8 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 3\n  2: 0101140A:1EDC 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 70\n";
        assert_eq!(
            (dropped(text, 7_900), dropped(text, 7_400), dropped(text, 7_901)),
            (Some(70), Some(3), None)
        );
        let before = Passed { sent: 100, arrived: 50 };
        assert_eq!(Passed { sent: 300, arrived: 200 }.part_since(before), 0.75);
        assert_eq!(before.part_since(before), 1.0);
    }
}
