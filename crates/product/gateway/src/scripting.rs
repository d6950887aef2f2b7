//! Scripts that are known by the digests of their sources, and their replies.
//!
//! A gateway remembers sources, and forgets the one that was not used for longest where there are too many: nodes are sent the source each time, and remember none. So NOSCRIPT is
//! what clients of Redis have to expect of any server that was started again.

use crate::error::CommandError;
use crate::message::Message;
use crate::reply::{Protocol, ReplyWriter};
use nicekv_client::{Answer, OperationError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most scripts, and most bytes of all of them, that are remembered.
const SCRIPTS_MAX: usize = 4_096;
const BYTES_MAX: usize = 16 << 20;

/// A digest of a source, as digits.
pub(crate) type Digest = [u8; 40];

/// The SHA-1 of a source, in lower case.
pub(crate) fn digest(source: &[u8]) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, source);
    let mut digits = [0; 40];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(digest.as_ref()) {
        for (digit, half) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *digit = b"0123456789abcdef"[usize::from(half)];
        }
    }
    digits
}

/// Sources by their digests.
#[derive(Debug, Default)]
pub(crate) struct KnownScripts(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// With the time of the last use.
    sources: HashMap<Digest, (u64, Arc<[u8]>)>,
    bytes: usize,
    uses: u64,
}

impl KnownScripts {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // It is whole whenever the lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers one.
    pub(crate) fn add(&self, source: &[u8]) -> Digest {
        let digest = digest(source);
        let mut known = self.lock();
        if known.take(&digest).is_none() {
            known.make_room(source.len());
            known.uses += 1;
            known.bytes += source.len();
            let used = known.uses;
            known.sources.insert(digest, (used, source.into()));
        }
        digest
    }

    /// The one with this digest, in capitals or not.
    pub(crate) fn find(&self, digest: &[u8]) -> Option<Arc<[u8]>> {
        self.lock().take(&lower(digest)?)
    }

    pub(crate) fn has(&self, digest: &[u8]) -> bool {
        lower(digest).is_some_and(|digest| self.lock().sources.contains_key(&digest))
    }

    pub(crate) fn forget_all(&self) {
        *self.lock() = Known::default();
    }
}

impl Known {
    /// One that is used now.
    fn take(&mut self, digest: &Digest) -> Option<Arc<[u8]>> {
        self.uses += 1;
        let (used, source) = self.sources.get_mut(digest)?;
        *used = self.uses;
        Some(source.clone())
    }

    fn make_room(&mut self, bytes: usize) {
        while self.sources.len() >= SCRIPTS_MAX || self.bytes + bytes > BYTES_MAX {
            let oldest = self.sources.iter().min_by_key(|(_, (used, _))| *used).map(|(digest, _)| *digest);
            let Some((_, source)) = oldest.and_then(|oldest| self.sources.remove(&oldest)) else { return };
            self.bytes -= source.len();
        }
    }
}

fn lower(digest: &[u8]) -> Option<Digest> {
    Some(Digest::try_from(digest).ok()?.map(|digit| digit.to_ascii_lowercase()))
}

/// Writes the reply of a script, which a node has told in the words of RESP2; what stands behind it is to be published.
pub(crate) fn write(
    told: Option<Result<Answer<'_>, OperationError>>,
    reply: &mut ReplyWriter<'_>,
) -> Vec<Message> {
    let answer = match told.unwrap_or(Err(OperationError::OutcomeUnknown)) {
        Ok(answer) => answer,
        Err(error) => {
            reply.error(CommandError::from(error).as_bytes());
            return Vec::new();
        }
    };
    let mut rest = answer.value.unwrap_or_default();
    let mut values = 1_usize;
    while let Some(line) = (values > 0).then(|| line(&mut rest)).flatten() {
        write_line(line, &mut rest, reply);
        values = values - 1 + number(line, b"*");
    }
    let mut next = || {
        let length = number(line(&mut rest)?, b"$");
        let (body, behind) = rest.split_at_checked(length)?;
        rest = behind.strip_prefix(b"\r\n")?;
        Some(Box::from(body))
    };
    std::iter::from_fn(|| Some(Message { channel: next()?, message: next()? })).collect()
}

/// What stands in a line behind this; 0 if that is no number of anything.
fn number(line: &[u8], behind: &[u8]) -> usize {
    let number = line.strip_prefix(behind).and_then(nicekv_proto::number::parse_integer);
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// A message of a script, as [`write`] wants it behind a reply.
pub(crate) fn append_message(channel: &[u8], message: &[u8], out: &mut Vec<u8>) {
    for part in [channel, message] {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let (line, behind) = rest.split_at(end);
    *rest = &behind[2..];
    Some(line)
}

/// What is nothing has a word of its own in RESP3; all else is the same.
fn write_line(line: &[u8], rest: &mut &[u8], reply: &mut ReplyWriter<'_>) {
    if reply.protocol == Protocol::Resp3 && [&b"$-1"[..], b"*-1"].contains(&line) {
        return reply.null();
    }
    reply.out.extend_from_slice(line);
    reply.out.extend_from_slice(b"\r\n");
    let length = line.strip_prefix(b"$").and_then(nicekv_proto::number::parse_integer).unwrap_or(-1);
    if let Ok(length) = usize::try_from(length) {
        let (body, behind) = rest.split_at((length + 2).min(rest.len()));
        reply.out.extend_from_slice(body);
        *rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::Rope;
    use nicekv_client::Outcome;
    use nicekv_proto::{Form, OpId};

    #[test]
    fn digests_are_those_of_redis() {
        assert_eq!(&digest(b"return 1"), b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten() {
        let known = KnownScripts::default();
        let first = known.add(b"return 1");
        let source = |number: usize| format!("return {number} --{}", "x".repeat(BYTES_MAX / 64)).into_bytes();
        let second = known.add(&source(2));
        for number in 3..100 {
            known.add(&source(number));
            assert!(known.find(&first.map(|digit| digit.to_ascii_uppercase())).is_some());
        }
        assert!(known.has(&first) && !known.has(&second) && !known.has(b"short"));
        assert!(known.lock().bytes <= BYTES_MAX);
        known.forget_all();
        assert!(!known.has(&first));
        for number in 0..2 * SCRIPTS_MAX {
            known.add(number.to_string().as_bytes());
        }
        assert_eq!(known.lock().sources.len(), SCRIPTS_MAX);
    }

    #[test]
    fn nothing_has_a_word_of_its_own_in_resp3() {
        let value = b"*4\r\n$-1\r\n$4\r\n$-1\r\n\r\n:7\r\n*1\r\n*-1\r\n";
        let written = |protocol| {
            let mut out = Rope::default();
            let answer = Answer {
                outcome: Outcome::Done,
                version: OpId::NONE,
                expiry_ms: 0,
                integer: 0,
                value: Some(value),
                form: Form::Plain,
            };
            write(Some(Ok(answer)), &mut ReplyWriter { out: &mut out, protocol });
            let mut bytes = Vec::new();
            out.write_to(&mut bytes).1.unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(written(Protocol::Resp2).as_bytes(), value);
        assert_eq!(written(Protocol::Resp3), "*4\r\n_\r\n$4\r\n$-1\r\n\r\n:7\r\n*1\r\n_\r\n");
    }
}
