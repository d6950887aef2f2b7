//! The byte stream of a connection, plain or TLS. For plain streams it only calls the socket, and
//! copies nothing.

mod received;
mod tls;

pub(crate) use received::{Next, Taken};
pub(crate) use tls::TlsStream;

use std::io::{self, Read, Write};
use std::net::TcpStream;

#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Reads until `buffer` is full or nothing is left; fails with `WouldBlock` if nothing is
    /// available.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Taken> {
        match self {
            Self::Plain(socket) => socket.read(buffer).map(|bytes| {
                let next = match bytes {
                    0 => Next::Never,
                    _ if bytes == buffer.len() => Next::Soon,
                    // A read that does not fill the buffer has emptied the socket.
                    _ => Next::Later,
                };
                Taken { bytes, next }
            }),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    /// Whether the TLS handshake is unfinished.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_handshaking(),
        }
    }

    /// Whether bytes were written that the socket has not accepted yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Sends TLS's close message, by which the peer can tell the end from a truncation.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(stream) = self {
            stream.end();
        }
    }

    /// Bytes of memory in use, not counting the struct itself.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(stream) => stream.memory(),
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    /// Sends bytes that were written earlier, as far as the socket accepts them.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.send(),
        }
    }
}
