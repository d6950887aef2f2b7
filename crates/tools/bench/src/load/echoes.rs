//! The physical limit with many datagrams in flight: both ends receive and send batches, as the
//! NICEKV client and nodes do. Each datagram of a batch has another length, so that it crosses the
//! network by itself, as gets of different keys do, which have different addresses. Datagrams of
//! the same length would travel as one GSO packet.

use super::{ANSWER_TIMEOUT, Limits, Measured, Meter};
use crate::error::{BenchError, Result};
use nicekv_runtime::{BusyPoll, Stop, UdpEndpoint, now, readable, wait};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Interval at which the echo server checks whether to stop.
const STOP_POLL: Duration = Duration::from_millis(100);

/// Number of different lengths.
const LENGTHS: usize = 64;

/// Echoes datagrams, until `stop`.
pub(crate) fn serve(endpoint: &mut UdpEndpoint, stop: &Stop) -> io::Result<()> {
    let mut busy_poll = BusyPoll::new(BusyPoll::DEFAULT);
    while !stop.is_stopped() {
        let deadline_ns = Some(now().after(STOP_POLL));
        let turn = |endpoint: &mut UdpEndpoint| {
            let mut any = false;
            endpoint.forward(|message, pass| {
                any = true;
                pass(message.from, None);
            })?;
            Ok::<_, io::Error>(any)
        };
        if busy_poll.look(deadline_ns, || turn(endpoint))? {
            busy_poll.begin(now());
        } else {
            wait(&mut [readable(&*endpoint)], deadline_ns)?;
        }
    }
    Ok(())
}

/// Keeps `in_flight` datagrams on the way to an echo server and back.
pub(crate) struct EchoesLoad {
    endpoint: UdpEndpoint,
    server: SocketAddrV4,
    /// Bytes of the shortest datagram.
    bytes_min: usize,
    in_flight: usize,
}

impl EchoesLoad {
    /// A client whose socket belongs to the calling thread's network namespace. `bytes` is the mean
    /// size of a datagram.
    pub(crate) fn bind(
        local: Ipv4Addr,
        server: SocketAddrV4,
        bytes: usize,
        in_flight: usize,
    ) -> io::Result<Self> {
        let bytes_min = bytes.checked_sub(LENGTHS / 2).expect("the shortest one has bytes");
        Ok(Self { endpoint: UdpEndpoint::bind(SocketAddrV4::new(local, 0))?, server, bytes_min, in_flight })
    }

    /// Fails if a datagram is lost.
    pub(crate) fn run(&mut self, limits: Limits<'_>) -> Result<Measured> {
        let mut meter = Meter::start(limits);
        let (mut free, mut away, mut busy_poll) = (self.in_flight, 0, BusyPoll::new(BusyPoll::DEFAULT));
        let mut goes_on = true;
        while goes_on || away > 0 {
            let sent = if goes_on { std::mem::take(&mut free) } else { 0 };
            away += sent;
            let echoed = self.turn(sent, &mut busy_poll).map_err(BenchError::system("get echoes"))?;
            if echoed == 0 {
                return Err(BenchError::Failed("no echo came".into()));
            }
            (away, free) = (away - echoed, free + echoed);
            goes_on = meter.count(echoed as u64);
        }
        meter.finish()
    }

    /// Sends `sent` datagrams, and receives echoes; returns the number of echoes.
    fn turn(&mut self, mut sent: usize, busy_poll: &mut BusyPoll) -> io::Result<usize> {
        let Self { endpoint, server, bytes_min, .. } = self;
        let lengths = *bytes_min..*bytes_min + LENGTHS;
        endpoint.send_with(|out| {
            sent = sent.checked_sub(1)?;
            out.resize(lengths.start + sent % LENGTHS, 0);
            Some(*server)
        })?;
        let begun = now();
        let deadline_ns = begun.after(ANSWER_TIMEOUT);
        busy_poll.begin(begun);
        loop {
            let mut echoed = 0;
            let take = || {
                endpoint.receive(|message| echoed += usize::from(lengths.contains(&message.bytes.len())))?;
                Ok(echoed > 0)
            };
            if busy_poll.look(Some(deadline_ns), take)? || now().boot_ns >= deadline_ns {
                return Ok(echoed);
            }
            wait(&mut [readable(&*endpoint)], Some(deadline_ns))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::limits;

    #[test]
    fn many_echoes_are_under_way_and_each_is_counted() {
        let mut server = UdpEndpoint::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, stop, ended) = (server.local_address(), Stop::new(), Stop::new());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| serve(&mut server, &ended));
            let mut load = EchoesLoad::bind(Ipv4Addr::LOCALHOST, address, 114, 16).unwrap();
            let measured = load.run(limits(&stop)).unwrap();
            assert!(measured.operations >= 16, "{measured:?}");
            ended.stop();
            thread.join().unwrap().unwrap();
        });
    }
}
