//! The physical limit: a datagram to another host and back, unprocessed. Both ends wait as the
//! NICEKV client and nodes do.

use super::{ANSWER_TIMEOUT, Limits, Measured, Meter};
use crate::error::{BenchError, Result};
use nicekv_runtime::{BusyPoll, Stop, now, readable, wait};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// Interval at which the echo server checks whether to stop.
const STOP_POLL: Duration = Duration::from_millis(100);
const DATAGRAM_BYTES_MAX: usize = 2_048;

/// Echoes datagrams that arrive at `socket`, until `stop`.
pub(crate) fn serve(socket: &UdpSocket, stop: &Stop) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    let mut busy_poll = BusyPoll::new(BusyPoll::DEFAULT);
    while !stop.is_stopped() {
        let deadline_ns = now().after(STOP_POLL);
        let received = receive(socket, &busy_poll, deadline_ns, |socket| socket.recv_from(&mut datagram))?;
        if let Some((bytes, sender)) = received {
            busy_poll.begin(now());
            socket.send_to(&datagram[..bytes], sender)?;
        }
    }
    Ok(())
}

/// Receives a datagram, by a single system call if one has arrived: nothing avoidable may slow the
/// echo. `None` after the deadline.
fn receive<T>(
    socket: &UdpSocket,
    busy_poll: &BusyPoll,
    deadline_ns: u64,
    mut take: impl FnMut(&UdpSocket) -> io::Result<T>,
) -> io::Result<Option<T>> {
    loop {
        match take(socket) {
            Ok(taken) => return Ok(Some(taken)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if busy_poll.is_on() {
            std::thread::yield_now();
            continue;
        }
        if now().boot_ns >= deadline_ns {
            return Ok(None);
        }
        wait(&mut [readable(socket)], Some(deadline_ns))?;
    }
}

/// Sends one datagram at a time to an echo server.
pub(crate) struct EchoLoad {
    socket: UdpSocket,
    bytes: usize,
}

impl EchoLoad {
    /// A client whose socket belongs to the calling thread's network namespace.
    pub(crate) fn connect(local: Ipv4Addr, server: SocketAddrV4, bytes: usize) -> io::Result<Self> {
        assert!((8..=DATAGRAM_BYTES_MAX).contains(&bytes));
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, bytes })
    }

    /// Makes one round trip after the other.
    pub(crate) fn run(&self, limits: Limits<'_>) -> Result<Measured> {
        let mut meter = Meter::start(limits);
        let mut number = 0_u64;
        let mut busy_poll = BusyPoll::new(BusyPoll::DEFAULT);
        let (mut sent, mut received) = ([0; DATAGRAM_BYTES_MAX], [0; DATAGRAM_BYTES_MAX]);
        while meter.count(u64::from(number > 0)) {
            number += 1;
            sent[..8].copy_from_slice(&number.to_le_bytes());
            let sent = &sent[..self.bytes];
            let mut exchange = || {
                self.socket.send(sent)?;
                let begun = now();
                busy_poll.begin(begun);
                let receive_into = |socket: &UdpSocket| socket.recv(&mut received);
                receive(&self.socket, &busy_poll, begun.after(ANSWER_TIMEOUT), receive_into)
            };
            let length = exchange().map_err(BenchError::system("get an echo"))?;
            let length = length.ok_or_else(|| BenchError::Failed("no echo came".into()))?;
            if received[..length] != *sent {
                return Err(BenchError::Failed("the echo is not what was sent".into()));
            }
        }
        meter.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::limits;

    #[test]
    fn every_echo_is_counted_and_compared() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, server.local_addr().unwrap().port());
        let (stop, ended) = (Stop::new(), Stop::new());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| serve(&server, &ended));
            let client = EchoLoad::connect(Ipv4Addr::LOCALHOST, address, 64).unwrap();
            let measured = client.run(limits(&stop)).unwrap();
            assert!(measured.operations > 0 && measured.mean_us() > 0.1, "{measured:?}");
            ended.stop();
            thread.join().unwrap().unwrap();
        });
    }
}
