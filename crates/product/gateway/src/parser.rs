//! Requests: arrays of bulk strings, and inline commands.
//!
//! Only the request direction is parsed here, which is three kinds of lines. An own parser, not one that builds frames of either
//! direction, because of the bounds: a length is checked before anything is stored, an argument that is too long for a value
//! is counted and dropped while it arrives, inline commands are understood, and every refusal is worded as in Redis.
//!
//! ```text
//!            '*'n              '$'length            body, CRLF
//!   Start ───────▶ Header(n) ───────────▶ Body ──────────────▶ Header(n-1) … ─▶ Complete ─release─▶ Start
//!     └────────────────────── inline line ─────────────────────────────────────────▲
//! ```
//!
//! A large argument has a buffer of its own, and its body is not taken before that was granted (`filling`): what is read of it until then is in the
//! connection's input.

use crate::filling::Filling;
use crate::limits::{
    ARGUMENT_BYTES_KEPT, ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_BESIDE, LINE_BYTES_MAX,
    SHORT_BYTES_MAX, STRANGERS_ARGUMENT_BYTES_MAX, STRANGERS_ARGUMENTS_MAX,
};
use crate::permits::{Claim, Kept};
use nicekv_proto::limits::LARGE_BYTES_MAX;
use nicekv_proto::number::parse_integer;
use std::sync::Arc;
use thiserror::Error;

/// Bytes that are not a request. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum ProtocolError {
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
    StrangersArguments,
    #[error("Protocol error: unauthenticated bulk length")]
    StrangersArgument,
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
    /// `keep`: of its bytes that are still to come so many are kept.
    Body {
        arguments_left: usize,
        bytes_left: usize,
        keep: usize,
    },
    Complete,
}

/// There may be a million of them. Its bytes that are there end where those of the next one begin.
#[derive(Debug)]
struct Argument {
    start: u32,
    length: u32,
}
const _: () = assert!(LARGE_BYTES_MAX as usize + COMMAND_BYTES_BESIDE <= u32::MAX as usize);
const _: () = assert!(ARGUMENT_BYTES_MAX <= u32::MAX as usize);

/// See [`Parser::wants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) bytes: usize,
    pub(crate) arguments_left: usize,
    /// Most that may be kept of all of them.
    pub(crate) room: usize,
    /// A part is there already.
    pub(crate) has_begun: bool,
}

/// Collects one command at a time.
#[derive(Debug)]
pub(crate) struct Parser {
    /// Longest argument that is kept whole.
    value_bytes_max: usize,
    /// The peer has not logged in, and has to: it may send little.
    is_strangers: bool,
    state: State,
    data: Vec<u8>,
    arguments: Vec<Argument>,
    /// Large arguments, of which there is nothing in `data`.
    filling: Filling,
}

/// A record of TLS, and of its kind those of handshakes.
const TLS_HANDSHAKE: [u8; 2] = [22, 3];
/// After a body, CR and LF.
const TERMINATOR_BYTES: usize = 2;

impl Parser {
    /// `value_bytes_max`: longest argument that is kept whole.
    pub(crate) fn new(value_bytes_max: usize) -> Self {
        Self {
            value_bytes_max,
            is_strangers: false,
            state: State::Start,
            data: Vec::new(),
            arguments: Vec::new(),
            filling: Filling::default(),
        }
    }

    /// Whether the peer has not logged in, and has to.
    pub(crate) fn set_strangers(&mut self, is_strangers: bool) {
        self.is_strangers = is_strangers;
    }

    /// Bytes of one command that are kept.
    fn command_bytes_max(&self) -> usize {
        self.value_bytes_max + COMMAND_BYTES_BESIDE
    }

    /// Takes bytes from the front of `input` until a command is complete; how many. What is left is to be offered again, with more
    /// behind it: it is the beginning of a line.
    pub(crate) fn parse(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let mut rest = input;
        while self.state != State::Complete && self.step(&mut rest)? {}
        Ok(input.len() - rest.len())
    }

    /// The command, if it is complete.
    pub(crate) fn command(&self) -> Option<Arguments<'_>> {
        (self.state == State::Complete).then_some(Arguments { parser: self })
    }

    /// Forgets the complete command and begins the next one.
    pub(crate) fn release(&mut self) {
        assert_eq!(self.state, State::Complete);
        self.state = State::Start;
        self.data.clear();
        self.arguments.clear();
        self.filling = Filling::default();
        // An unusually long command does not hold on to its memory.
        self.data.shrink_to(ARGUMENT_BYTES_KEPT);
        self.arguments.shrink_to(64);
    }

    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        self.data.capacity() + self.arguments.capacity() * size_of::<Argument>() + self.filling.memory()
    }

    /// How many bytes have to be granted before it goes on; at most so many arguments follow, which may be large, too.
    pub(crate) fn wants(&self) -> Option<Wants> {
        let bytes = self.filling.missing()?;
        let State::Body { arguments_left, .. } = self.state else {
            unreachable!("a body is missing something")
        };
        let room = self.command_bytes_max().saturating_sub(self.bytes());
        Some(Wants { bytes, arguments_left: arguments_left - 1, room, has_begun: self.filling.has_begun() })
    }

    /// The name of the command, as soon as it is there.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        let end = self.arguments.get(1)?.start as usize;
        Some(&self.data[..end])
    }

    /// What it wants is granted, or more, which is for arguments to come.
    pub(crate) fn accept(&mut self, claim: Claim) {
        self.filling.accept(claim);
    }

    /// What it wants is more than there may be: nothing large is kept of the command.
    pub(crate) fn deny(&mut self) {
        self.filling.deny();
        let State::Body { keep, .. } = &mut self.state else { unreachable!("a body is missing something") };
        *keep = 0;
    }

    /// Whether it was denied something.
    pub(crate) fn is_denied(&self) -> bool {
        self.filling.is_denied()
    }

    /// Whether it holds what others may wait for.
    pub(crate) fn has_claim(&self) -> bool {
        self.filling.has_claim()
    }

    /// The argument that has begun does not go on: what was granted beyond its bytes is given back, and to be granted again.
    pub(crate) fn interrupt(&mut self) {
        self.filling.interrupt();
    }

    /// Bytes that are kept, with their places.
    fn bytes(&self) -> usize {
        self.data.len() + self.filling.bytes() + self.arguments.len() * size_of::<Argument>()
    }

    /// Gives back what it has not filled.
    pub(crate) fn shrink(&mut self) {
        self.data.shrink_to_fit();
        self.arguments.shrink_to_fit();
    }

    /// One line, or one piece of a body; false if there is not enough of it.
    fn step(&mut self, rest: &mut &[u8]) -> Result<bool, ProtocolError> {
        match self.state {
            State::Start if rest.first() == Some(&b'*') => self.begin(rest),
            State::Start => self.inline(rest),
            State::Header { arguments_left } => self.header(arguments_left, rest),
            State::Body { .. } if self.filling.missing().is_some() => Ok(false),
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
        if self.is_strangers && count > STRANGERS_ARGUMENTS_MAX {
            return Err(ProtocolError::StrangersArguments);
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
        if self.is_strangers && length > STRANGERS_ARGUMENT_BYTES_MAX {
            return Err(ProtocolError::StrangersArgument);
        }
        let used = self.bytes() + size_of::<Argument>();
        let too_long = ProtocolError::CommandTooLong(self.command_bytes_max());
        let room = self.command_bytes_max().checked_sub(used).ok_or(too_long)?;
        let is_large = length > SHORT_BYTES_MAX;
        let fits = length <= self.value_bytes_max && length <= room;
        let is_whole = fits && (!is_large || self.filling.begin(length));
        let keep = if is_whole { length } else { length.min(ARGUMENT_BYTES_KEPT) };
        if keep > room {
            return Err(too_long);
        }
        self.arguments.push(Argument { start: self.data.len() as u32, length: length as u32 });
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
        match self.filling.buffer() {
            Some(buffer) => buffer.extend_from_slice(&content[..kept]),
            None => {
                reserve(&mut self.data, kept);
                self.data.extend_from_slice(&content[..kept]);
            }
        }
        let (bytes_left, keep) = (bytes_left - piece.len(), keep - kept);
        if bytes_left == 0 {
            self.filling.end(self.arguments.len() as u32 - 1);
            // If it is for pairs of a key and a value.
            let values = (arguments_left - 1).div_ceil(2);
            self.filling.expect(values.saturating_mul(self.value_bytes_max));
        }
        self.state = match (bytes_left, arguments_left) {
            (0, 1) => State::Complete,
            (0, _) => State::Header { arguments_left: arguments_left - 1 },
            _ => State::Body { arguments_left, bytes_left, keep },
        };
        Ok(bytes_left == 0)
    }

    fn inline(&mut self, rest: &mut &[u8]) -> Result<bool, ProtocolError> {
        // What begins so is a handshake; no command does. Whoever sends it waits for more than a line end.
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
            let start = self.data.len();
            unquote(&mut line, &mut self.data)?;
            let length = self.data.len() - start;
            // A whole line is shorter than what is kept of a command; its words are no longer than it.
            self.arguments.push(Argument { start: start as u32, length: length as u32 });
        }
        if !self.arguments.is_empty() {
            self.state = State::Complete;
        }
        Ok(true)
    }
}

/// Long buffers grow by a quarter: doubled ones would be half empty, and count against the memory of all.
fn reserve(data: &mut Vec<u8>, additional: usize) {
    const LONG: usize = 1 << 20;
    if data.capacity() >= LONG && data.capacity() - data.len() < additional {
        data.reserve_exact(additional.max(data.len() / 4));
    }
}

/// Takes a line, without its end; `None` if it has not ended yet.
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

/// Takes one word of an inline command and appends what it means: it may be quoted like a string of C, or plainly by `'`.
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

/// The arguments of a complete command; number 0 is its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    parser: &'a Parser,
}

impl<'a> Arguments<'a> {
    /// At least 1.
    pub(crate) fn count(&self) -> usize {
        self.parser.arguments.len()
    }

    /// An argument, or the beginning of a very long one.
    pub(crate) fn prefix(&self, index: usize) -> &'a [u8] {
        let Parser { arguments, data, filling, .. } = self.parser;
        if let Some(kept) = filling.kept(index as u32) {
            return &kept.bytes;
        }
        let end = arguments.get(index + 1).map_or(data.len(), |next| next.start as usize);
        &data[arguments[index].start as usize..end]
    }

    /// Where these bytes are kept, if they are a large argument.
    pub(crate) fn kept(&self, bytes: &[u8]) -> Option<&'a Arc<Kept>> {
        let mut all = self.parser.filling.all();
        all.find(|kept| std::ptr::eq::<[u8]>(&*kept.bytes, bytes))
    }

    /// Of longer ones than this only the beginning is there.
    pub(crate) fn bytes_max(&self) -> usize {
        self.parser.value_bytes_max
    }

    /// The length that an argument had, also if it was not kept.
    pub(crate) fn length(&self, index: usize) -> usize {
        self.parser.arguments[index].length as usize
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
