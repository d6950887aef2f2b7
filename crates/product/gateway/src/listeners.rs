//! The sockets that a gateway listens on.

use crate::acceptor::Acceptor;
use crate::config::GatewayConfig;
use rustls::ServerConfig;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Event tokens of the listeners.
pub(crate) const LISTENER: u64 = 0;
pub(crate) const TLS_LISTENER: u64 = 3;

/// Listeners that the caller has bound: plain, TLS, or both.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Accepts connections without TLS.
    pub plain: Option<TcpListener>,
    /// Accepts TLS connections; needs [`GatewayConfig::tls`].
    pub tls: Option<TcpListener>,
}

impl From<TcpListener> for Listeners {
    fn from(plain: TcpListener) -> Self {
        Self { plain: Some(plain), tls: None }
    }
}

fn port(listener: Option<&TcpListener>) -> io::Result<u16> {
    listener.map_or(Ok(0), |listener| Ok(listener.local_addr()?.port()))
}

impl Listeners {
    /// Port of the plain listener; 0 if there is none.
    pub(crate) fn port(&self) -> io::Result<u16> {
        port(self.plain.as_ref())
    }

    /// Port and configuration of the TLS listener.
    pub(crate) fn tls(&self, config: &GatewayConfig) -> io::Result<Option<(u16, Arc<ServerConfig>)>> {
        if self.tls.is_none() {
            return Ok(None);
        }
        let files = config.tls.as_ref().ok_or(io::Error::other("a listener for TLS takes a certificate"))?;
        let config = files.read().map_err(io::Error::other)?;
        Ok(Some((port(self.tls.as_ref())?, config)))
    }

    /// Adds the listeners to the epoll set.
    pub(crate) fn acceptors(self, epoll: &OwnedFd) -> io::Result<Vec<Acceptor>> {
        let plain = self.plain.map(|listener| Acceptor::new(listener, epoll, LISTENER, false));
        let tls = self.tls.map(|listener| Acceptor::new(listener, epoll, TLS_LISTENER, true));
        plain.into_iter().chain(tls).collect()
    }
}
