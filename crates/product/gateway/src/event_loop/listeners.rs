//! Where connections come from.

use super::{FIRST_CONNECTION, Gateway, LISTENER, TLS_LISTENER};
use crate::acceptor::Acceptor;
use crate::config::GatewayConfig;
use crate::connection::Connection;
use crate::error::CommandError;
use crate::shared::NewConnection;
use crate::stream::{Stream, TlsStream};
use nicekv_proto::Now;
use rustix::event::epoll;
use rustls::ServerConfig;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a gateway listens on, bound by its caller: with TLS, without, or both.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Without TLS.
    pub plain: Option<TcpListener>,
    /// With TLS: takes [`GatewayConfig::tls`].
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
    /// Without TLS; 0: there is none.
    pub(super) fn port(&self) -> io::Result<u16> {
        port(self.plain.as_ref())
    }

    /// With TLS, and what its connections are made with.
    pub(super) fn tls(&self, config: &GatewayConfig) -> io::Result<Option<(u16, Arc<ServerConfig>)>> {
        if self.tls.is_none() {
            return Ok(None);
        }
        let files = config.tls.as_ref().ok_or(io::Error::other("a listener for TLS takes a certificate"))?;
        let made_with = files.read().map_err(io::Error::other)?;
        Ok(Some((port(self.tls.as_ref())?, made_with)))
    }

    /// Has them watched.
    pub(super) fn acceptors(self, epoll: &OwnedFd) -> io::Result<Vec<Acceptor>> {
        let plain = self.plain.map(|listener| Acceptor::new(listener, epoll, LISTENER, false));
        let tls = self.tls.map(|listener| Acceptor::new(listener, epoll, TLS_LISTENER, true));
        plain.into_iter().chain(tls).collect()
    }
}

impl Gateway {
    /// A connection was handed over to this thread.
    pub(super) fn add(&mut self, new: NewConnection, now: Now) {
        let NewConnection { socket, id, is_tls, is_denied } = new;
        let entry = self.connections.vacant_entry();
        let slot = entry.key();
        let token = epoll::EventData::new_u64(slot as u64 + FIRST_CONNECTION);
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let stream = epoll::add(&self.epoll, &socket, token, flags).ok().and_then(|()| {
            let config = self.member.server.tls.as_ref().filter(|_| is_tls);
            match config {
                None => Some(Stream::Plain(socket)),
                Some((_, config)) => {
                    let stream = TlsStream::new(socket, config.clone()).ok()?;
                    Some(Stream::Tls(Box::new(stream)))
                }
            }
        });
        match stream {
            Some(stream) => {
                let value_bytes_max = self.member.server.value_bytes_max;
                let mut connection = Connection::new(stream, id, now.unix_ms, value_bytes_max);
                connection.refusal = is_denied.then_some(CommandError::DENIED);
                connection.list(&self.member);
                self.budget.count(entry.insert(connection));
                if is_tls {
                    self.begin_handshake(slot, id, now);
                }
            }
            None => self.member.own().closed(),
        }
    }
}
