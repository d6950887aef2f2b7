//! Where Redis clients come into a running `up`, as programs and people are told.

use crate::failure::Failure;
use nicekv_gateway::Listeners;
use std::net::{SocketAddr, TcpListener};

/// Where Redis clients come in, without TLS and with it.
pub(crate) struct Doors {
    plain: Option<SocketAddr>,
    tls: Option<SocketAddr>,
    login: &'static str,
}

impl Doors {
    /// `login`: how `redis-cli` logs in.
    pub(crate) fn of(listeners: &Listeners, login: &'static str) -> Result<Self, Failure> {
        let address = |listener: &Option<TcpListener>| {
            listener.as_ref().map(TcpListener::local_addr).transpose().map_err(Failure::environment)
        };
        Ok(Self { plain: address(&listeners.plain)?, tls: address(&listeners.tls)?, login })
    }

    /// One of them.
    pub(crate) fn any(&self) -> Result<SocketAddr, Failure> {
        let address = self.plain.or(self.tls);
        address.ok_or_else(|| Failure::Environment("nobody could connect: there is no --resp".into()))
    }

    /// For programs.
    pub(crate) fn told(&self) -> String {
        let named = [("resp", self.plain), ("tls-resp", self.tls)];
        let words = named.into_iter().filter_map(|(name, address)| Some(format!("{name}={}", address?)));
        words.collect::<Vec<_>>().join(" ")
    }

    /// For people.
    pub(crate) fn command(&self) -> Result<String, Failure> {
        let (address, login) = (self.any()?, self.login);
        let tls = if self.plain.is_some() { "" } else { " --tls --cacert FILE" };
        Ok(format!("redis-cli -h {} -p {}{tls}{login}", address.ip(), address.port()))
    }
}
