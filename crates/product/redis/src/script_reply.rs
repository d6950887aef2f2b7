//! Replies of scripts. A node sends them in RESP2, followed by the messages to publish.

use crate::answered::Answered;
use crate::error::CommandError;
use crate::message::Message;
use crate::resp::{Protocol, ReplyWriter};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use nicekv_client::OperationError;

/// SHA-1 of a script's source, as 40 lower-case hexadecimal digits.
pub type Digest = [u8; 40];

/// Writes the reply of a script, and returns the messages to publish.
pub fn write(answered: Option<Answered<'_>>, reply: &mut ReplyWriter<'_>) -> Vec<Message> {
    let Answered { result, cause, .. } =
        answered.unwrap_or_else(|| Err(OperationError::OutcomeUnknown).into());
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            reply.error(CommandError::of_operation(error, cause).as_bytes());
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
    core::iter::from_fn(|| Some(Message { channel: next()?, message: next()? })).collect()
}

/// The number after this prefix in a line; 0 if there is none.
fn number(line: &[u8], behind: &[u8]) -> usize {
    let number = line.strip_prefix(behind).and_then(nicekv_proto::number::parse_integer);
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Appends a message in the format in which it follows a reply.
pub fn append_message(channel: &[u8], message: &[u8], out: &mut Vec<u8>) {
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

/// Copies a line and its body. RESP2 and RESP3 differ only in null.
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
    use crate::resp::ReplyBuffer;
    use alloc::string::String;
    use nicekv_client::{Answer, Outcome};
    use nicekv_proto::{Form, OpId};

    #[test]
    fn null_differs_between_resp2_and_resp3() {
        let value = b"*4\r\n$-1\r\n$4\r\n$-1\r\n\r\n:7\r\n*1\r\n*-1\r\n";
        let written = |protocol| {
            let mut out = ReplyBuffer::default();
            let answer = Answer {
                outcome: Outcome::Done,
                version: OpId::NONE,
                expiry_ms: 0,
                integer: 0,
                value: Some(value),
                form: Form::Plain,
            };
            write(Some(Ok(answer).into()), &mut ReplyWriter { out: &mut out, protocol });
            let mut bytes = Vec::new();
            out.drain(|piece| {
                bytes.extend_from_slice(piece);
                Some(piece.len())
            });
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(written(Protocol::Resp2).as_bytes(), value);
        assert_eq!(written(Protocol::Resp3), "*4\r\n_\r\n$4\r\n$-1\r\n\r\n:7\r\n*1\r\n_\r\n");
    }
}
