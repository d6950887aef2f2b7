//! Writes replies in the connection's version of the protocol.

use super::reply_buffer::ReplyBuffer;
use alloc::format;
use nicekv_client::SharedBytes;

/// Version of RESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Version 2.
    #[default]
    Resp2,
    /// Version 3: maps and null have types of their own.
    Resp3,
}

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    pub out: &'a mut ReplyBuffer,
    pub protocol: Protocol,
}

impl ReplyWriter<'_> {
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// `text` begins with an error code in capitals. Line ends in it become spaces, because it may
    /// quote the request.
    pub fn error(&mut self, text: &[u8]) {
        self.out.count_error(text);
        self.out.push(b'-');
        text.iter().for_each(|byte| self.out.push(if b"\r\n".contains(byte) { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    pub fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_of(bytes, None);
    }

    /// A bulk string. If `bytes` are a long part of `shared`, they are not copied.
    pub fn bulk_of(&mut self, bytes: &[u8], shared: Option<&SharedBytes>) {
        self.number(b'$', bytes.len() as i64);
        self.out.extend_shared(bytes, shared);
        self.out.extend_from_slice(b"\r\n");
    }

    pub fn null(&mut self) {
        let null: &[u8] = if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.out.extend_from_slice(null);
    }

    /// Null in place of an array.
    pub fn null_array(&mut self) {
        let null: &[u8] = if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(null);
    }

    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>, shared: Option<&SharedBytes>) {
        match bytes {
            Some(bytes) => self.bulk_of(bytes, shared),
            None => self.null(),
        }
    }

    /// Begins an array of `count` replies.
    pub fn array(&mut self, count: usize) {
        self.number(b'*', count as i64);
    }

    /// Begins a map of `count` pairs of replies.
    pub fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number(b'*', 2 * count as i64),
            Protocol::Resp3 => self.number(b'%', count as i64),
        }
    }

    /// Begins a set of `count` distinct replies.
    pub fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number(b'*', count as i64),
            Protocol::Resp3 => self.number(b'~', count as i64),
        }
    }

    /// Begins a push message of `count` replies, which is no answer to a command.
    pub fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number(b'*', count as i64),
            Protocol::Resp3 => self.number(b'>', count as i64),
        }
    }

    /// A number with at most three decimals.
    pub fn double(&mut self, value: f64) {
        let text = format!("{value:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text),
        }
    }

    /// Text that clients show unchanged.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.number(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.out.push(kind);
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, value: i64) {
        self.line(kind, itoa::Buffer::new().format(value));
    }
}
