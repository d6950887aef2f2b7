//! Framed TCP streams, non-blocking: each frame is preceded by its length as a 32-bit big-endian
//! number.
//!
//! Both directions are bounded ([`FrameLimits`]). For backpressure, a stream whose output is full
//! accepts no more frames and reads no input until the peer has read some output.

use crate::wait::{PollFd, interest};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use thiserror::Error;

const LENGTH_BYTES: usize = 4;
const READ_BYTES: usize = 64 << 10;
const BACKLOG: i32 = 64;

/// Limits of a stream.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    /// Longest frame accepted or sent.
    pub frame_bytes_max: usize,
    /// Unsent output above which no more frames are accepted and no more input is read.
    pub output_bytes_max: usize,
}

/// Why a stream is unusable.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The peer has closed the connection.
    #[error("the peer has closed the connection")]
    Closed,
    /// A frame exceeds `frame_bytes_max`.
    #[error("a frame of {bytes} bytes is above the limit of {bytes_max}")]
    FrameTooLong {
        /// Length of the frame, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The output is full because the peer does not read.
    #[error("the peer does not read: {bytes} bytes wait for it")]
    OutputFull {
        /// Unsent bytes.
        bytes: usize,
    },
    /// Error of the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connection that carries frames.
#[derive(Debug)]
pub struct FramedStream {
    stream: TcpStream,
    limits: FrameLimits,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Number of bytes of `output` that were sent.
    sent: usize,
}

impl FramedStream {
    /// Wraps a non-blocking connection, established or still [being dialled](dial).
    pub fn new(stream: TcpStream, limits: FrameLimits) -> Self {
        Self { stream, limits, input: Vec::new(), output: Vec::new(), sent: 0 }
    }

    /// Events to poll for.
    pub fn interest(&self) -> PollFd<'_> {
        interest(&self.stream, self.has_room(), self.has_output())
    }

    /// Whether the output has room: another frame may be queued, and input is read.
    pub fn has_room(&self) -> bool {
        self.output.len() - self.sent < self.limits.output_bytes_max
    }

    /// Whether only part of the next frame has arrived.
    pub fn has_partial_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Whether queued output is unsent.
    pub fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Queues a frame. Fails if the output is full.
    pub fn queue(&mut self, frame: &[u8]) -> Result<(), StreamError> {
        if frame.len() > self.limits.frame_bytes_max {
            let bytes_max = self.limits.frame_bytes_max;
            return Err(StreamError::FrameTooLong { bytes: frame.len(), bytes_max });
        }
        if !self.has_room() {
            return Err(StreamError::OutputFull { bytes: self.output.len() - self.sent });
        }
        self.output.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        self.output.extend_from_slice(frame);
        Ok(())
    }

    /// Sends as much output as the kernel accepts.
    pub fn flush(&mut self) -> Result<(), StreamError> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(StreamError::Closed),
                Ok(count) => self.sent += count,
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads once and passes every complete frame to `handle`. Does nothing while the output is
    /// full.
    pub fn receive(&mut self, mut handle: impl FnMut(&[u8])) -> Result<(), StreamError> {
        if !self.has_room() {
            return Ok(());
        }
        let filled = self.input.len();
        self.input.resize(filled + READ_BYTES, 0);
        let count = match self.stream.read(&mut self.input[filled..]) {
            Ok(0) => Err(StreamError::Closed),
            Ok(count) => Ok(count),
            Err(error) if is_not_yet(&error) || error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error.into()),
        };
        self.input.truncate(filled + *count.as_ref().unwrap_or(&0));
        count?;
        let mut done = 0;
        while let Some(frame) = self.frame_at(done)? {
            handle(&self.input[frame.clone()]);
            done = frame.end;
        }
        self.input.drain(..done);
        Ok(())
    }

    fn frame_at(&self, start: usize) -> Result<Option<std::ops::Range<usize>>, StreamError> {
        let Some(length) = self.input[start..].first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let (bytes, bytes_max) = (u32::from_be_bytes(*length) as usize, self.limits.frame_bytes_max);
        if bytes > bytes_max {
            return Err(StreamError::FrameTooLong { bytes, bytes_max });
        }
        let start = start + LENGTH_BYTES;
        Ok((self.input.len() >= start + bytes).then_some(start..start + bytes))
    }
}

/// Whether to retry later. While a connection is being established, it counts as one without input;
/// polling shows the outcome.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// Begins to connect. The first read or write reports success or failure.
pub fn dial(address: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// A non-blocking listener. Fails if the address already has one.
pub fn listen(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // Allows a restarted process to bind while connections of the old one remain. A second listener
    // is still refused.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts the next connection, non-blocking. `None` if there is none, or if the process has run
/// out of descriptors; then open connections continue, and the peer waits.
pub fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            Ok(Some(stream))
        }
        // The peer has closed the connection before it was accepted, which is no failure.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait;
    use std::net::Ipv4Addr;

    const LIMITS: FrameLimits = FrameLimits { frame_bytes_max: 300_000, output_bytes_max: 400_000 };

    fn pair() -> (FramedStream, FramedStream) {
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let std::net::SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("IPv4") };
        let dialled = dial(address).unwrap();
        wait(&mut [crate::readable(&listener)], None).unwrap();
        let accepted = accept(&listener).unwrap().unwrap();
        (FramedStream::new(dialled, LIMITS), FramedStream::new(accepted, LIMITS))
    }

    fn receive_one(stream: &mut FramedStream) -> Result<Vec<Vec<u8>>, StreamError> {
        let mut frames = Vec::new();
        while frames.is_empty() {
            wait(&mut [stream.interest()], None).unwrap();
            stream.receive(|frame| frames.push(frame.to_vec()))?;
        }
        Ok(frames)
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (mut one, mut other) = pair();
        let frames = [vec![1; 5], vec![], vec![2; 250_000]];
        let sender = {
            let frames = frames.clone();
            std::thread::spawn(move || {
                for frame in &frames {
                    one.queue(frame).unwrap();
                }
                while one.sent < one.output.len() {
                    wait(&mut [one.interest()], None).unwrap();
                    one.flush().unwrap();
                }
                one
            })
        };
        let mut arrived = Vec::new();
        while arrived.len() < frames.len() {
            arrived.extend(receive_one(&mut other).unwrap());
        }
        assert_eq!(arrived, frames);
        drop(sender.join().unwrap());
        assert!(matches!(receive_one(&mut other), Err(StreamError::Closed)));
    }

    #[test]
    fn bounds_hold_in_both_directions() {
        let (mut one, mut other) = pair();
        assert!(matches!(one.queue(&[0; 300_001]), Err(StreamError::FrameTooLong { bytes: 300_001, .. })));
        one.queue(&[0; 300_000]).unwrap();
        one.queue(&[0; 300_000]).unwrap();
        assert!(!one.has_room());
        assert!(matches!(one.queue(&[0]), Err(StreamError::OutputFull { bytes: 600_008 })));
        // A length above the limit is refused before the frame itself arrives.
        other.stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
        one.output.clear();
        assert!(matches!(receive_one(&mut one), Err(StreamError::FrameTooLong { bytes: 4_294_967_295, .. })));
    }

    #[test]
    fn broken_connections_differ_from_pending_ones() {
        for (kind, expected) in [
            (ErrorKind::WouldBlock, true),
            (ErrorKind::NotConnected, true),
            (ErrorKind::ConnectionReset, false),
            (ErrorKind::BrokenPipe, false),
            (ErrorKind::ConnectionRefused, false),
        ] {
            assert_eq!(is_not_yet(&kind.into()), expected, "{kind}");
        }
    }

    #[test]
    fn room_depends_on_unsent_bytes() {
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let std::net::SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("IPv4") };
        let mut stream = FramedStream::new(dial(address).unwrap(), LIMITS);
        for (sent, has_room) in [(0, false), (1, true), (200_000, true), (400_000, true)] {
            (stream.output, stream.sent) = (vec![0; LIMITS.output_bytes_max], sent);
            assert_eq!(stream.has_room(), has_room, "{sent} are sent");
        }
    }
}
