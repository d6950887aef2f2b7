//! A connection's bytes, in and out.

use super::{Connection, SPARE_BYTES};
use crate::error::CommandError;
use crate::limits::TOGETHER_BYTES_MAX;
use crate::stream::{Next, Taken};
use std::io::{ErrorKind, Write};

impl Connection {
    /// Reads once, as much as `buffer` takes.
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

    /// Tells the peer why it is closed, if that can still be said: a reply that is half sent cannot be followed by anything.
    pub(crate) fn dismiss(&mut self, error: &CommandError) {
        self.flush();
        if self.output.is_empty() {
            self.output = self.error_reply(error);
            self.flush();
        }
    }

    /// Whether its replies may wait for those that come next, to leave in one write: these are soon there.
    pub(crate) fn may_delay(&self) -> bool {
        let is_small = (1..TOGETHER_BYTES_MAX).contains(&self.output.len());
        is_small && self.unanswered.awaits_read() && !self.failed && !self.wants_read()
    }

    /// Writes what the socket takes; how many bytes.
    pub(crate) fn flush(&mut self) -> usize {
        let mut written = 0;
        if !self.failed {
            let (count, result) = self.output.write_to(&mut self.stream);
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
