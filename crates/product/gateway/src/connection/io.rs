//! Reading from and writing to the socket of a connection.

use super::{Connection, SPARE_BYTES};
use crate::limits::DELAYED_BYTES_MAX;
use crate::stream::{Next, Taken};
use nicekv_redis::error::CommandError;
use nicekv_redis::resp::ReplyBuffer;
use std::io::{Error, ErrorKind, Write};

impl Connection {
    /// Reads once, at most one buffer.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) {
        match self.stream.read(buffer) {
            Ok(Taken { bytes, next }) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                self.moved += bytes as u64;
                self.ended = next == Next::Never;
                self.readable = next == Next::Soon || self.hung_up;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(_) => self.failed = true,
        }
    }

    /// Sends the peer the reason before the connection is closed, unless a reply is half sent.
    pub(crate) fn dismiss(&mut self, error: &CommandError) {
        self.flush();
        if self.output.is_empty() {
            self.output = self.error_reply(error);
            self.unanswered.note_errors(&mut self.output);
            self.flush();
        }
    }

    /// Whether small replies may wait briefly for the next ones, so that one write sends them all.
    pub(crate) fn may_delay(&self) -> bool {
        let is_small = (1..DELAYED_BYTES_MAX).contains(&self.output.len());
        is_small && self.unanswered.awaits_read() && !self.failed && !self.wants_read()
    }

    /// Writes as much as the socket accepts, and returns the number of bytes.
    pub(crate) fn flush(&mut self) -> usize {
        let mut written = 0;
        if !self.failed {
            let (count, result) = write_replies(&mut self.output, &mut self.stream);
            written = count;
            self.moved += count as u64;
            self.failed = result.and_then(|()| self.stream.flush()).is_err();
        }
        if self.output.is_empty() {
            self.output.shrink_to(SPARE_BYTES);
        }
        written
    }
}

/// Writes as much as `stream` accepts.
fn write_replies(replies: &mut ReplyBuffer, stream: &mut impl Write) -> (usize, Result<(), Error>) {
    let mut result = Ok(());
    let count = replies.drain(|bytes| {
        loop {
            match stream.write(bytes) {
                Ok(count) => return Some(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        result = Err(error);
                    }
                    return None;
                }
            }
        }
    });
    (count, result)
}
