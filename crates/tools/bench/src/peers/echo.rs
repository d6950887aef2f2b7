//! The row beside an echo.

use super::pair::Peer;
use super::{Bench, CLIENT, PEER_PORT};
use crate::error::{BenchError, Result};
use crate::lab::Lab;
use crate::load::echo::{self, EchoLoad};
use crate::load::echoes::{self, EchoesLoad};
use crate::load::{Limits, Measured};
use nicekv_lab::topology::Host;
use nicekv_runtime::{Stop, UdpEndpoint};
use std::net::{SocketAddrV4, UdpSocket};
use std::thread::JoinHandle;

/// Bytes of an echoed datagram: about the mean of a get and its answer.
const ECHO_BYTES: usize = 114;

/// One in flight, or many.
enum Load {
    One(EchoLoad),
    Many(Box<EchoesLoad>),
}

/// P1's peer: a thread of this process, with its socket on a node's host.
struct Echo {
    load: Load,
    ended: Stop,
    server: Option<JoinHandle<std::io::Result<()>>>,
}

impl Bench<'_> {
    /// With so many in flight.
    pub(super) fn start_echoes(&self, lab: &Lab, in_flight: usize) -> Result<Box<dyn Peer>> {
        let address = SocketAddrV4::new(Host::Node(0).address(), PEER_PORT);
        let failed = || BenchError::system("make an echo's socket");
        let mut endpoint = lab.inside(Host::Node(0), || UdpEndpoint::bind(address))?.map_err(failed())?;
        let bind = || EchoesLoad::bind(CLIENT.address(), address, ECHO_BYTES, in_flight);
        let load = lab.inside(CLIENT, bind)?.map_err(failed())?;
        let ended = Stop::new();
        let server = std::thread::spawn({
            let ended = ended.clone();
            move || echoes::serve(&mut endpoint, &ended)
        });
        Ok(Box::new(Echo { load: Load::Many(Box::new(load)), ended, server: Some(server) }))
    }

    pub(super) fn start_echo(&self, lab: &Lab) -> Result<Box<dyn Peer>> {
        let address = SocketAddrV4::new(Host::Node(0).address(), PEER_PORT);
        let failed = || BenchError::system("make an echo's socket");
        let socket = lab.inside(Host::Node(0), || UdpSocket::bind(address))?.map_err(failed())?;
        let connect = || EchoLoad::connect(CLIENT.address(), address, ECHO_BYTES);
        let load = lab.inside(CLIENT, connect)?.map_err(failed())?;
        let ended = Stop::new();
        let server = std::thread::spawn({
            let ended = ended.clone();
            move || echo::serve(&socket, &ended)
        });
        Ok(Box::new(Echo { load: Load::One(load), ended, server: Some(server) }))
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
        // The load has had no answers then, and says so.
        if let Some(Ok(Err(error))) = served {
            eprintln!("nicekv: the echo has ended: {error}");
        }
    }
}
