//! A connection's bytes, as they are or by TLS. Without TLS nothing is copied, and nothing called but the socket.

mod tls;

pub(crate) use tls::TlsStream;

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// See the module.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    pub(crate) next: Next,
}

/// What comes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There may be more already.
    Soon,
    /// That was all that was there; more is announced.
    Later,
    /// The peer sends nothing more.
    Never,
}

impl Stream {
    /// As much as `buffer` takes; an error of the kind `WouldBlock` if there is nothing.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Taken> {
        match self {
            Self::Plain(socket) => socket.read(buffer).map(|bytes| {
                let next = match bytes {
                    0 => Next::Never,
                    _ if bytes == buffer.len() => Next::Soon,
                    // A short read has taken all that was there.
                    _ => Next::Later,
                };
                Taken { bytes, next }
            }),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    /// Whether nobody can say anything yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.is_handshaking(),
        }
    }

    /// Whether what was written is not with the socket yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_unsent(),
        }
    }

    /// Tells the peer that nothing follows, so that it knows the end from one that somebody else has made.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(stream) = self {
            stream.end();
        }
    }

    /// Bytes that it occupies beyond itself.
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

    /// Sends what the socket takes of what was written.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => stream.send(),
        }
    }
}
