//! What somebody else sends over a target's link.

use crate::error::{BenchError, Result};
use crate::lab::Lab;
use nicekv_lab::topology::Host;
use nicekv_runtime::Stop;
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Of a datagram, with it on the wire: a full frame.
const DATAGRAM_BYTES: usize = 1_400;
const WIRE_BYTES: f64 = (DATAGRAM_BYTES + 42) as f64;
const PORT: u16 = 7_900;
/// Between two looks at what is due: a datagram or two.
const PACE: Duration = Duration::from_micros(200);
/// After a pause of the machine no more is made up for than this.
const BURST_MAX: f64 = 32.0;

/// Datagrams at a steady rate, from a host of its own to a node, until it is dropped.
pub(super) struct Traffic {
    stop: Stop,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Takes what comes, and forgets what there is no room for.
    #[allow(dead_code, reason = "nobody answers then that nobody is there")]
    sink: UdpSocket,
}

impl Traffic {
    pub(super) fn start(lab: &Lab, from: Host, to: Host, bits_per_second: f64) -> Result<Self> {
        let failed = || BenchError::system("make a socket for others' traffic");
        let address = SocketAddrV4::new(to.address(), PORT);
        let sink = lab.inside(to, || UdpSocket::bind(address))?.map_err(failed())?;
        let socket = lab.inside(from, || UdpSocket::bind((from.address(), 0)))?.map_err(failed())?;
        socket.connect(address).map_err(failed())?;
        let stop = Stop::new();
        let running = stop.clone();
        let thread = std::thread::spawn(move || send(&socket, bits_per_second / 8.0 / WIRE_BYTES, &running));
        Ok(Self { stop, thread: Some(thread), sink })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("nicekv: others' traffic has ended: {error}");
        }
    }
}

fn send(socket: &UdpSocket, per_second: f64, stop: &Stop) -> io::Result<()> {
    let (datagram, mut last, mut due) = ([0; DATAGRAM_BYTES], Instant::now(), 0.0);
    while !stop.is_stopped() {
        let now = Instant::now();
        due = f64::min(due + (now - last).as_secs_f64() * per_second, BURST_MAX);
        last = now;
        while due >= 1.0 {
            due -= 1.0;
            socket.send(&datagram)?;
        }
        std::thread::sleep(PACE);
    }
    Ok(())
}
