//! TLS over a non-blocking socket. The session buffers a bounded number of unsent bytes and at most
//! one incomplete record.

use super::received::{Next, Taken};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Maximum bytes that were written and not sent.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Maximum reads of the socket in a turn: a peer can send empty records without end.
const READS_MAX: usize = 32;
/// Memory of a session: keys and state (8 KiB as measured), and one record.
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
        // During a handshake, the messages to send may be as long as the unsent bytes later.
        let has_more = self.has_unsent() || self.is_handshaking();
        size_of::<Self>() + SESSION_BYTES + if has_more { UNSENT_BYTES_MAX } else { 0 }
    }

    /// Reads decrypted bytes. Also processes handshake messages; the next [`send`](Self::send)
    /// sends the answers to these.
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
                // `process_records` reports the end of the stream once all bytes before it are
                // taken.
                Ok(_) => self.process_records()?,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) if error.kind() == ErrorKind::WouldBlock && bytes > 0 => {
                    return Ok(Taken { bytes, next: Next::Later });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Taken { bytes, next: Next::Soon })
    }

    /// Copies decrypted bytes to `buffer`. Returns whether the peer has closed its side.
    fn take(&mut self, buffer: &mut [u8], bytes: &mut usize) -> io::Result<bool> {
        while *bytes < buffer.len() {
            match self.session.reader().read(&mut buffer[*bytes..]) {
                Ok(0) => return Ok(true),
                Ok(count) => *bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The peer has closed without TLS's close message. Commands are framed, so a
                // truncated one is never run.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn process_records(&mut self) -> io::Result<()> {
        self.session.process_new_packets().map(|_| ()).map_err(|error| {
            // Sends the TLS alert, in case the peer still reads.
            let _ = self.send();
            io::Error::new(ErrorKind::InvalidData, error)
        })
    }

    /// Sends as much as the socket accepts.
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

    /// Accepts bytes only when all earlier ones are sent.
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
        // If the peer has disconnected, it does not need the close message.
        let _ = self.send();
    }
}
