//! Accepts new connections: one thread accepts them, and hands each to the thread that has the
//! fewest connections.

use crate::limits::{ACCEPTS_MAX, BACKLOG};
use crate::shared::{NewConnection, ServerState};
use nicekv_proto::{Duration, Now};
use nicekv_redis::error::CommandError;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// Pause after an accept that failed for lack of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// ENOMEM, ENFILE, EMFILE, ENOBUFS.
const OUT_OF_RESOURCES: [i32; 4] = [12, 23, 24, 105];

#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    /// Token of this listener's epoll events.
    token: u64,
    is_tls: bool,
    again_ns: Option<u64>,
}

impl Acceptor {
    pub(crate) fn new(listener: TcpListener, epoll: &OwnedFd, token: u64, is_tls: bool) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // The caller's listener already accepts; a second `listen` sets the backlog.
        rustix::net::listen(&listener, BACKLOG)?;
        epoll::add(epoll, &listener, EventData::new_u64(token), EventFlags::IN)?;
        Ok(Self { listener, token, is_tls, again_ns: None })
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// When accepting resumes after a pause; `None` if it is not paused.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.again_ns
    }

    /// Resumes accepting once the pause is over.
    pub(crate) fn on_time(&mut self, now: Now, epoll: &OwnedFd) -> io::Result<()> {
        if self.again_ns.is_some_and(|again_ns| again_ns <= now.boot_ns) {
            self.again_ns = None;
            self.listen(epoll, EventFlags::IN)?;
        }
        Ok(())
    }

    pub(crate) fn accept(&mut self, now: Now, epoll: &OwnedFd, server: &ServerState) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((socket, peer)) => admit(socket, peer, self.is_tls, server),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Without the pause, the kernel would report the waiting connection again and again.
                Err(error) if error.raw_os_error().is_some_and(|code| OUT_OF_RESOURCES.contains(&code)) => {
                    self.listen(epoll, EventFlags::empty())?;
                    self.again_ns = Some(now.after(ACCEPT_PAUSE));
                    return Ok(());
                }
                // The peer disconnected before it was accepted.
                Err(_) => (),
            }
        }
        Ok(())
    }

    fn listen(&self, epoll: &OwnedFd, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(epoll, &self.listener, EventData::new_u64(self.token), flags)?)
    }
}

fn admit(mut socket: TcpStream, peer: SocketAddr, is_tls: bool, server: &ServerState) {
    // The peer has disconnected.
    if socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).is_err() {
        return;
    }
    // Only this thread adds connections, so the limit cannot be exceeded by a race.
    if server.connections() >= server.connections_max {
        server.connections_refused.add(1);
        let _ = socket.write(b"-ERR max number of clients reached\r\n");
        return;
    }
    let is_denied = is_of_other_host(peer) && server.refuses_other_hosts();
    if is_denied {
        server.connections_denied.add(1);
        if !is_tls {
            let text = [b"-", CommandError::DENIED.as_bytes(), b"\r\n"].concat();
            let _ = socket.write(&text);
            return;
        }
    }
    server.connections_total.add(1);
    let id = server.connections_total.get();
    server.least_used().hand_over(NewConnection { socket, id, is_tls, is_denied });
}

/// Whether a peer connects from another host, not through the loopback interface.
fn is_of_other_host(peer: SocketAddr) -> bool {
    !peer.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_peers_are_of_this_host() {
        for (peer, expected) in [
            ("127.0.0.1:5", false),
            ("127.20.3.4:5", false),
            ("[::1]:5", false),
            ("[::ffff:127.0.0.1]:5", false),
            ("10.0.0.1:5", true),
            ("[::ffff:10.0.0.1]:5", true),
            ("[fe80::1]:5", true),
            ("0.0.0.0:5", true),
        ] {
            assert_eq!(is_of_other_host(peer.parse().unwrap()), expected, "{peer}");
        }
    }
}
