//! Connections that the accepting thread hands over.

use super::{FIRST_CONNECTION, Gateway};
use crate::connection::Connection;
use crate::shared::NewConnection;
use crate::stream::{Stream, TlsStream};
use nicekv_proto::Now;
use nicekv_redis::error::CommandError;
use rustix::event::epoll;

impl Gateway {
    /// Adds a connection that was handed over to this thread.
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
                connection.register(&self.member);
                self.memory.count(entry.insert(connection));
                if is_tls {
                    self.begin_handshake(slot, id, now);
                }
            }
            None => self.member.own().closed(),
        }
    }
}
