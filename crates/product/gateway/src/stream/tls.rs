//! TLS over a socket that does not block. The session has bounded buffers of its own: what it has not sent yet, and one record that has not come whole.

use super::{Next, Taken};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Written and not sent yet, at most.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Reads of the socket before others have their turn: a peer can send records with nothing in them.
const READS_MAX: usize = 32;
/// What a session occupies: keys and state, 8 KiB as measured, and room for a record.
const SESSION_BYTES: usize = 24 << 10;

#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: ServerConnection,
}

impl TlsStream {
    pub(crate) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut session = ServerConnection::new(config)?;
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        Ok(Self { socket, session })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    pub(super) fn memory(&self) -> usize {
        // Messages of a handshake may be as long as that, too.
        let has_more = self.has_unsent() || self.is_handshaking();
        size_of::<Self>() + SESSION_BYTES + if has_more { UNSENT_BYTES_MAX } else { 0 }
    }

    /// Also what the handshake needs is read, and answered by the next [`send`](Self::send).
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Taken> {
        let mut bytes = 0;
        for _ in 0..READS_MAX {
            if self.take(buffer, &mut bytes)? {
                return Ok(Taken { bytes, next: Next::Never });
            }
            if bytes == buffer.len() {
                break;
            }
            match self.session.read_tls(&mut self.socket) {
                // The end is found when what is before it has been taken.
                Ok(_) => self.understand()?,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock && bytes > 0 => {
                    return Ok(Taken { bytes, next: Next::Later });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Taken { bytes, next: Next::Soon })
    }

    /// Takes what was understood; whether the peer has ended.
    fn take(&mut self, buffer: &mut [u8], bytes: &mut usize) -> io::Result<bool> {
        while *bytes < buffer.len() {
            match self.session.reader().read(&mut buffer[*bytes..]) {
                Ok(0) => return Ok(true),
                Ok(count) => *bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // It has not said so; commands are framed, so nobody can cut one.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn understand(&mut self) -> io::Result<()> {
        self.session.process_new_packets().map(|_| ()).map_err(|error| {
            // The peer is told why, if it still hears.
            let _ = self.send();
            io::Error::new(ErrorKind::InvalidData, error)
        })
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes some of it when all that was taken before is sent.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        if self.has_unsent() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.session.writer().write(bytes)?;
        self.send()?;
        Ok(count)
    }

    pub(super) fn end(&mut self) {
        self.session.send_close_notify();
        // A peer that has gone, or does not read, will not miss it.
        let _ = self.send();
    }
}
