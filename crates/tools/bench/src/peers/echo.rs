//! The rows beside an echo.

use super::pair::Peer;
use super::{Bench, PEER_PORT};
use crate::error::{BenchError, Result};
use crate::lab::{CLIENT, Lab};
use crate::load::echo::{self, EchoLoad};
use crate::load::echoes::{self, EchoesLoad};
use crate::load::{Limits, Measured};
use nicekv_lab::topology::Host;
use nicekv_runtime::{Stop, UdpEndpoint};
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::thread::JoinHandle;

/// Bytes of an echoed datagram: about the mean of a get and its answer.
const ECHO_BYTES: usize = 114;

/// One datagram in flight, or many.
enum Load {
    One(EchoLoad),
    Many(Box<EchoesLoad>),
}

/// The echo server, a thread of this process with its socket on a node's host, and its load.
struct Echo {
    load: Load,
    ended: Stop,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Bench<'_> {
    pub(super) fn start_echo(&self, lab: &Lab, in_flight: usize) -> Result<Box<dyn Peer>> {
        let (host, ended) = (Host::Node(0), Stop::new());
        let address = SocketAddrV4::new(host.address(), PEER_PORT);
        let failed = || BenchError::system("open the echo's socket");
        let stop = ended.clone();
        let (load, server) = if in_flight == 1 {
            let socket = lab.inside(host, || UdpSocket::bind(address))?.map_err(failed())?;
            let load = lab.client(CLIENT, |client| EchoLoad::connect(*client.ip(), address, ECHO_BYTES))?;
            (Load::One(load), std::thread::spawn(move || echo::serve(&socket, &stop)))
        } else {
            let mut endpoint = lab.inside(host, || UdpEndpoint::bind(address))?.map_err(failed())?;
            let load =
                lab.client(CLIENT, |client| EchoesLoad::bind(*client.ip(), address, ECHO_BYTES, in_flight))?;
            (Load::Many(Box::new(load)), std::thread::spawn(move || echoes::serve(&mut endpoint, &stop)))
        };
        Ok(Box::new(Echo { load, ended, server: Some(server) }))
    }
}

impl Peer for Echo {
    fn run(&mut self, _seed: u64, limits: Limits<'_>) -> Result<Measured> {
        match &mut self.load {
            Load::One(load) => load.run(limits),
            Load::Many(load) => load.run(limits),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ended.stop();
        let served = self.server.take().map(JoinHandle::join);
        // The load got no answers then, and has failed, too.
        if let Some(Ok(Err(error))) = served {
            eprintln!("nicekv: the echo has ended: {error}");
        }
    }
}
