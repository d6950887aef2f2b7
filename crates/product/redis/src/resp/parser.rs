//! Parses requests: arrays of bulk strings, and inline commands.
//!
//! Only the request direction is parsed, which has three kinds of lines. It does not use a general
//! RESP library because of its bounds: a length is checked before anything is stored, an argument
//! that is too long for a value is counted and dropped while it arrives, inline commands are
//! understood, and errors have the texts of Redis.
//!
//! ```text
//!            '*'n              '$'length            body, CRLF
//!   Start ───────▶ Header(n) ───────────▶ Body ──────────────▶ Header(n-1) … ─▶ Complete ─release─▶ Start
//!     └────────────────────── inline line ─────────────────────────────────────────▲
//! ```
//!
//! A large argument has its own buffer. Its body is not taken from the connection's input until
//! memory for that buffer is granted ([`BufferGrant`]).

use super::arguments::{ArgumentList, Arguments, Span};
use super::large_arguments::{BufferGrant, LargeArguments};
use crate::limits::{
    ARGUMENT_BYTES_KEPT, ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_BESIDE, LINE_BYTES_MAX,
    SHORT_BYTES_MAX, UNAUTHENTICATED_ARGUMENT_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX,
};
use alloc::vec::Vec;
use nicekv_proto::limits::LARGE_BYTES_MAX;
use nicekv_proto::number::parse_integer;
use thiserror::Error;

/// The bytes are not a valid request. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    ArgumentCount,
    #[error("Protocol error: invalid multibulk length: the limit is {ARGUMENTS_MAX} arguments")]
    TooManyArguments,
    #[error("Protocol error: invalid bulk length")]
    ArgumentLength,
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedDollar(u8),
    #[error("Protocol error: too big {0}")]
    LineTooLong(&'static str),
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedArguments,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedArgument,
    #[error("Protocol error: this is TLS, and the port is one without")]
    Tls,
    #[error("Protocol error: command of more than {0} bytes")]
    CommandTooLong(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Header {
        arguments_left: usize,
    },
    /// `keep`: how many of the remaining bytes are kept.
    Body {
        arguments_left: usize,
        bytes_left: usize,
        keep: usize,
    },
    Complete,
}

const _: () = assert!(LARGE_BYTES_MAX as usize + COMMAND_BYTES_BESIDE <= u32::MAX as usize);
const _: () = assert!(ARGUMENT_BYTES_MAX <= u32::MAX as usize);

/// A large argument that waits for a grant ([`Parser::wants`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedBuffer {
    pub bytes: usize,
    /// Number of arguments that follow it.
    pub arguments_left: usize,
    /// Maximum bytes that may be kept of it and of the arguments that follow.
    pub room: usize,
    /// Some of its bytes have arrived.
    pub has_begun: bool,
}

/// Parses one command at a time.
#[derive(Debug)]
pub struct Parser<G> {
    /// The client has to authenticate and has not yet: it may send only short requests.
    is_unauthenticated: bool,
    state: State,
    list: ArgumentList,
    large: LargeArguments<G>,
}

/// The first bytes of a TLS handshake record: its type and major version.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];
/// CR and LF after a body.
const TERMINATOR_BYTES: usize = 2;

impl<G: BufferGrant> Parser<G> {
    /// `value_bytes_max`: longest argument that is not truncated.
    pub fn new(value_bytes_max: usize) -> Self {
        Self {
            is_unauthenticated: false,
            state: State::Start,
            list: ArgumentList::new(value_bytes_max),
            large: LargeArguments::default(),
        }
    }

    /// Sets whether the client has to authenticate and has not yet.
    pub fn set_unauthenticated(&mut self, is_unauthenticated: bool) {
        self.is_unauthenticated = is_unauthenticated;
    }

    /// Maximum bytes that are kept of one command.
    fn command_bytes_max(&self) -> usize {
        self.list.value_bytes_max() + COMMAND_BYTES_BESIDE
    }

    /// Takes bytes from the front of `input` until a command is complete, and returns how many. The
    /// rest is an incomplete line; the caller passes it again, with more bytes after it.
    pub fn parse(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let mut rest = input;
        while self.state != State::Complete && self.step(&mut rest)? {}
        Ok(input.len() - rest.len())
    }

    /// The command, if it is complete.
    pub fn command(&self) -> Option<Arguments<'_>> {
        (self.state == State::Complete).then(|| self.list.arguments())
    }

    /// Forgets the complete command and begins the next one.
    pub fn release(&mut self) {
        assert_eq!(self.state, State::Complete);
        self.state = State::Start;
        self.list.clear();
        self.large = LargeArguments::default();
        // The memory of an unusually long command is freed.
        self.list.data.shrink_to(ARGUMENT_BYTES_KEPT);
        self.list.spans.shrink_to(64);
        self.list.large.shrink_to(0);
    }

    /// Bytes of memory in use, not counting granted buffers.
    pub fn memory(&self) -> usize {
        let ArgumentList { data, spans, .. } = &self.list;
        data.capacity() + spans.capacity() * size_of::<Span>() + self.large.memory()
    }

    /// The buffer that must be granted before parsing can continue.
    pub fn wants(&self) -> Option<WantedBuffer> {
        let bytes = self.large.missing()?;
        let State::Body { arguments_left, .. } = self.state else {
            unreachable!("only a body is missing a buffer")
        };
        let room = self.command_bytes_max().saturating_sub(self.bytes());
        let (arguments_left, has_begun) = (arguments_left - 1, self.large.has_begun());
        Some(WantedBuffer { bytes, arguments_left, room, has_begun })
    }

    /// The name of the command, once it has arrived.
    pub fn name(&self) -> Option<&[u8]> {
        let end = self.list.spans.get(1)?.start as usize;
        Some(&self.list.data[..end])
    }

    /// Provides the wanted buffer. A larger grant also covers arguments that follow.
    pub fn accept(&mut self, grant: G) {
        self.large.accept(grant);
    }

    /// Refuses the wanted buffer, because it exceeds the limit: no large argument of the command is
    /// kept.
    pub fn deny(&mut self) {
        self.large.deny();
        let State::Body { keep, .. } = &mut self.state else {
            unreachable!("only a body is missing a buffer")
        };
        *keep = 0;
    }

    /// Whether a buffer was denied.
    pub fn is_denied(&self) -> bool {
        self.large.is_denied()
    }

    /// Whether the parser holds memory that other clients may wait for.
    pub fn has_grant(&self) -> bool {
        self.large.has_grant()
    }

    /// The peer has stopped sending an argument: returns the unfilled part of its grant, which will
    /// be requested again.
    pub fn interrupt(&mut self) {
        self.large.interrupt();
    }

    /// Bytes that are kept, including their spans.
    fn bytes(&self) -> usize {
        self.list.data.len() + self.large.bytes() + self.list.spans.len() * size_of::<Span>()
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.list.data.shrink_to_fit();
        self.list.spans.shrink_to_fit();
    }

    /// Parses one line, or one piece of a body. Returns false if the input does not contain a whole
    /// one.
    fn step(&mut self, rest: &mut &[u8]) -> Result<bool, ProtocolError> {
        match self.state {
            State::Start if rest.first() == Some(&b'*') => self.begin(rest),
            State::Start => self.inline(rest),
            State::Header { arguments_left } => self.header(arguments_left, rest),
            State::Body { .. } if self.large.missing().is_some() => Ok(false),
            State::Body { arguments_left, bytes_left, keep } => {
                self.body(arguments_left, (bytes_left, keep), rest)
            }
            State::Complete => Ok(false),
        }
    }

    fn begin(&mut self, rest: &mut &[u8]) -> Result<bool, ProtocolError> {
        let Some(line) = take_line(rest, "mbulk count string")? else { return Ok(false) };
        let count = parse_integer(&line[1..]).ok_or(ProtocolError::ArgumentCount)?;
        if count > i64::from(i32::MAX) {
            return Err(ProtocolError::ArgumentCount);
        }
        if count > ARGUMENTS_MAX as i64 {
            return Err(ProtocolError::TooManyArguments);
        }
        if self.is_unauthenticated && count > UNAUTHENTICATED_ARGUMENTS_MAX {
            return Err(ProtocolError::UnauthenticatedArguments);
        }
        if count > 0 {
            self.state = State::Header { arguments_left: count as usize };
        }
        Ok(true)
    }

    fn header(&mut self, arguments_left: usize, rest: &mut &[u8]) -> Result<bool, ProtocolError> {
        let Some(line) = take_line(rest, "bulk count string")? else { return Ok(false) };
        let digits = match line {
            [b'$', digits @ ..] => digits,
            other => return Err(ProtocolError::ExpectedDollar(other.first().copied().unwrap_or(b'\r'))),
        };
        let length = parse_integer(digits).and_then(|length| usize::try_from(length).ok());
        let length =
            length.filter(|length| *length <= ARGUMENT_BYTES_MAX).ok_or(ProtocolError::ArgumentLength)?;
        if self.is_unauthenticated && length > UNAUTHENTICATED_ARGUMENT_BYTES_MAX {
            return Err(ProtocolError::UnauthenticatedArgument);
        }
        let used = self.bytes() + size_of::<Span>();
        let too_long = ProtocolError::CommandTooLong(self.command_bytes_max());
        let room = self.command_bytes_max().checked_sub(used).ok_or(too_long)?;
        let is_large = length > SHORT_BYTES_MAX;
        let fits = length <= self.list.value_bytes_max() && length <= room;
        let is_whole = fits && (!is_large || self.large.begin(length));
        let keep = if is_whole { length } else { length.min(ARGUMENT_BYTES_KEPT) };
        if keep > room {
            return Err(too_long);
        }
        self.list.spans.push(Span { start: self.list.data.len() as u32, length: length as u32 });
        self.state = State::Body { arguments_left, bytes_left: length + TERMINATOR_BYTES, keep };
        Ok(true)
    }

    fn body(
        &mut self,
        arguments_left: usize,
        (bytes_left, keep): (usize, usize),
        rest: &mut &[u8],
    ) -> Result<bool, ProtocolError> {
        let (piece, after) = rest.split_at(bytes_left.min(rest.len()));
        *rest = after;
        let content = &piece[..piece.len().min(bytes_left.saturating_sub(TERMINATOR_BYTES))];
        let kept = content.len().min(keep);
        match self.large.buffer() {
            Some(buffer) => buffer.extend_from_slice(&content[..kept]),
            None => {
                reserve(&mut self.list.data, kept);
                self.list.data.extend_from_slice(&content[..kept]);
            }
        }
        let (bytes_left, keep) = (bytes_left - piece.len(), keep - kept);
        if bytes_left == 0 {
            let number = self.list.spans.len() as u32 - 1;
            self.list.large.extend(self.large.end().map(|bytes| (number, bytes)));
            // In a command on pairs of a key and a value, every other argument is a value.
            let values = (arguments_left - 1).div_ceil(2);
            self.large.expect(values.saturating_mul(self.list.value_bytes_max()));
        }
        self.state = match (bytes_left, arguments_left) {
            (0, 1) => State::Complete,
            (0, _) => State::Header { arguments_left: arguments_left - 1 },
            _ => State::Body { arguments_left, bytes_left, keep },
        };
        Ok(bytes_left == 0)
    }

    fn inline(&mut self, rest: &mut &[u8]) -> Result<bool, ProtocolError> {
        // A TLS client. No command begins with these bytes, and a handshake may contain no line
        // end, so it would never be a complete line.
        if rest.starts_with(&TLS_HANDSHAKE) {
            return Err(ProtocolError::Tls);
        }
        let Some(line) = take_line(rest, "inline request")? else { return Ok(false) };
        let mut line = line;
        loop {
            line = line.trim_ascii_start();
            if line.is_empty() {
                break;
            }
            let start = self.list.data.len();
            unquote(&mut line, &mut self.list.data)?;
            let length = self.list.data.len() - start;
            // A line is shorter than what is kept of a command, so its words always fit.
            self.list.spans.push(Span { start: start as u32, length: length as u32 });
        }
        if !self.list.spans.is_empty() {
            self.state = State::Complete;
        }
        Ok(true)
    }
}

/// Reserves room. Long buffers grow by a quarter, because doubling would leave them half empty, and
/// empty room counts against the memory limit of all connections.
fn reserve(data: &mut Vec<u8>, additional: usize) {
    const LONG: usize = 1 << 20;
    if data.capacity() >= LONG && data.capacity() - data.len() < additional {
        data.reserve_exact(additional.max(data.len() / 4));
    }
}

/// Takes a line without its line end; `None` if the line end has not arrived.
fn take_line<'a>(rest: &mut &'a [u8], what: &'static str) -> Result<Option<&'a [u8]>, ProtocolError> {
    let looked_at = &rest[..rest.len().min(LINE_BYTES_MAX)];
    let Some(end) = looked_at.iter().position(|byte| *byte == b'\n') else {
        let too_long = looked_at.len() == LINE_BYTES_MAX;
        return if too_long { Err(ProtocolError::LineTooLong(what)) } else { Ok(None) };
    };
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
}

/// Takes one word of an inline command and appends it unquoted. Double quotes allow C escapes,
/// single quotes only `\'`.
fn unquote(line: &mut &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let mut quote = None;
    loop {
        let (byte, rest) = match (line.split_first(), quote) {
            (Some((byte, rest)), _) => (*byte, rest),
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(ProtocolError::UnbalancedQuotes),
        };
        *line = rest;
        match quote {
            None if byte.is_ascii_whitespace() || byte == 0 => return Ok(()),
            None if byte == b'"' || byte == b'\'' => quote = Some(byte),
            Some(quote) if byte == quote => {
                let ended = rest.first().is_none_or(u8::is_ascii_whitespace);
                return if ended { Ok(()) } else { Err(ProtocolError::UnbalancedQuotes) };
            }
            Some(b'"') if byte == b'\\' => unescape(line, out)?,
            Some(b'\'') if byte == b'\\' && rest.first() == Some(&b'\'') => {
                *line = &rest[1..];
                out.push(b'\'');
            }
            _ => out.push(byte),
        }
    }
}

fn unescape(line: &mut &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    if let [b'x', high, low, rest @ ..] = line
        && let (Some(high), Some(low)) = (char::from(*high).to_digit(16), char::from(*low).to_digit(16))
    {
        *line = rest;
        out.push((high * 16 + low) as u8);
        return Ok(());
    }
    let (byte, rest) = line.split_first().ok_or(ProtocolError::UnbalancedQuotes)?;
    *line = rest;
    out.push(match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => *other,
    });
    Ok(())
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
