//! Replies, in the version of the protocol that the connection speaks.

use crate::errors;
use crate::permits::Kept;
use crate::rope::Rope;
use std::sync::Arc;

/// Which RESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Version 2.
    #[default]
    Resp2,
    /// Version 3: maps and null have types of their own.
    Resp3,
}

/// Appends replies to what leaves.
#[derive(Debug)]
pub(crate) struct ReplyWriter<'a> {
    pub(crate) out: &'a mut Rope,
    pub(crate) protocol: Protocol,
}

impl ReplyWriter<'_> {
    pub(crate) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// `text` begins with a code in capitals. Line ends in it (it may quote the request) become spaces.
    pub(crate) fn error(&mut self, text: &[u8]) {
        errors::note(text);
        self.out.push(b'-');
        text.iter().for_each(|byte| self.out.push(if b"\r\n".contains(byte) { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.bulk_of(bytes, None);
    }

    /// `bytes` may be a part of what is kept: then they are not copied.
    pub(crate) fn bulk_of(&mut self, bytes: &[u8], kept: Option<&Arc<Kept>>) {
        self.number(b'$', bytes.len() as i64);
        self.out.extend_kept(bytes, kept);
        self.out.extend_from_slice(b"\r\n");
    }

    pub(crate) fn null(&mut self) {
        let null: &[u8] = if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.out.extend_from_slice(null);
    }

    /// Of what would be an array.
    pub(crate) fn null_array(&mut self) {
        let null: &[u8] = if self.protocol == Protocol::Resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.out.extend_from_slice(null);
    }

    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>, kept: Option<&Arc<Kept>>) {
        match bytes {
            Some(bytes) => self.bulk_of(bytes, kept),
            None => self.null(),
        }
    }

    /// `count` replies follow.
    pub(crate) fn array(&mut self, count: usize) {
        self.number(b'*', count as i64);
    }

    /// `count` pairs of replies follow.
    pub(crate) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number(b'*', 2 * count as i64),
            Protocol::Resp3 => self.number(b'%', count as i64),
        }
    }

    /// `count` distinct replies follow.
    pub(crate) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number(b'*', count as i64),
            Protocol::Resp3 => self.number(b'~', count as i64),
        }
    }

    /// `count` replies follow, which answer no command.
    pub(crate) fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.number(b'*', count as i64),
            Protocol::Resp3 => self.number(b'>', count as i64),
        }
    }

    /// With a point, at most three digits behind it.
    pub(crate) fn double(&mut self, value: f64) {
        let text = format!("{value:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text),
        }
    }

    /// A text that clients show as it is.
    pub(crate) fn verbatim(&mut self, text: &str) {
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
