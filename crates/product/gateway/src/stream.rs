//! The byte stream of a connection, plain or TLS. Plain streams copy nothing and only call the socket.

mod received;
mod tls;

pub(crate) use received::{Next, Taken};
pub(crate) use tls::TlsStream;

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// See the module.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Reads at most `buffer`; fails with `WouldBlock` if nothing is available.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Taken> {
        match self {
            Self::Plain(socket) => socket.read(buffer).map(|bytes| {
                let next = match bytes {
                    0 => Next::Never,
                    _ if bytes == buffer.len() => Next::Soon,
                    // A short read has taken everything.
                    _ => Next::Later,
                };
                Taken { bytes, next }
            }),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    /// Whether its handshake is unfinished.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_handshaking(),
        }
    }

    /// Whether written bytes are not with the socket yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Tells the peer that the stream ends, so that it can detect truncation.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(stream) = self {
            stream.end();
        }
    }

    /// Bytes it occupies without itself.
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

    /// Sends written bytes, as far as the socket accepts them.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.send(),
        }
    }
}
