//! The switch: the reference model's pipeline behind the real agent.

use nicekv_dataplane::control::SwitchAgent;
use nicekv_dataplane::{HostId, Ingress, Passed, Router, VringSet};
use std::net::SocketAddrV4;

/// Ports of storage nodes have the numbers of the nodes; this is the metadata service's.
pub const METADATA_PORT: u16 = 1_000;
/// The port of every client: the model asks no more of a port without a server.
pub const CLIENT_PORT: u16 = 1_001;
/// The metadata service in the tables.
pub const METADATA_MAC: [u8; 6] = [2, 0, 0, 0, 3, 232];

/// See the module.
#[derive(Clone)]
pub struct Switch {
    /// Serves the metadata service.
    pub agent: SwitchAgent<Router>,
    vrings: VringSet,
}

/// Where a datagram goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// To the address it says.
    Plain,
    /// To these storage hosts instead.
    Hosts(Vec<HostId>),
}

impl Switch {
    /// Without tables.
    pub fn new(vrings: VringSet) -> Self {
        let router = Router::new(vrings.clone()).expect("the rings are sound");
        Self { agent: SwitchAgent::new(router, 0), vrings }
    }

    /// Starts again: the tables are gone, the newest term is remembered.
    pub fn restart(&mut self) {
        let term = self.agent.term();
        let router = Router::new(self.vrings.clone()).expect("as before");
        self.agent = SwitchAgent::new(router, term);
    }

    /// Processes a datagram that has come in at `port`; at a switch that hides sources there is none, and it is stamped.
    pub fn forward(
        &mut self,
        port: Option<u16>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        bytes: &mut [u8],
    ) -> Forward {
        let ingress = port.map_or(Ingress::Socket, |port| Ingress::Port { port, mac: None });
        match self.agent.backend_mut().process(ingress, from, to, bytes) {
            Passed::Plain => Forward::Plain,
            Passed::Unicast(host) => Forward::Hosts(vec![host]),
            Passed::Multicast(hosts) => Forward::Hosts(hosts.collect()),
            Passed::Dropped => Forward::Hosts(Vec::new()),
        }
    }
}
