//! The switch: the reference model's tables behind the real agent.

use nicekv_dataplane::control::SwitchAgent;
use nicekv_dataplane::{HostId, Route, Router, VringSet};
use std::net::SocketAddrV4;

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

    /// Matches a datagram. `ingress` is the storage host that sends it.
    pub fn forward(&mut self, from: SocketAddrV4, to: SocketAddrV4, ingress: Option<HostId>) -> Forward {
        match self.agent.backend_mut().route(from.ip().octets(), to.ip().octets(), ingress) {
            Route::Unicast(host) => Forward::Hosts(vec![host]),
            Route::Multicast(hosts) => Forward::Hosts(hosts.collect()),
            Route::Miss => Forward::Hosts(Vec::new()),
            Route::NotVring => Forward::Plain,
        }
    }
}
