//! Replies of OBJECT, MEMORY, DUMP and RESTORE.

use crate::dump::{self, DUMPED_BYTES_MAX};
use crate::encoding;
use crate::error::CommandError;
use crate::resp::ReplyWriter;
use alloc::format;
use nicekv_client::{Answer, Outcome};

/// Approximate bytes that a node needs for a key in addition to the key and its value: version,
/// times, form, and an entry of the engine.
const ENTRY_BYTES: i64 = 64;

/// How to make the reply of OBJECT, MEMORY, DUMP or RESTORE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectReply {
    /// The encoding that Redis would use.
    Encoding,
    /// The reference count that Redis would report.
    References,
    /// For properties that are not tracked: this error if the key has a value.
    Unknown(CommandError),
    /// Bytes in use for the value and its key, which has this length.
    Usage(usize),
    /// The value as a payload for RESTORE.
    Dump,
    /// OK, or an error if the key already has a value.
    Restored,
}

impl ObjectReply {
    /// Whether it needs the value, not only its length.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Encoding | Self::References | Self::Dump)
    }

    pub fn write(&self, answer: &Answer<'_>, reply: &mut ReplyWriter<'_>) {
        let is_there = answer.outcome == Outcome::Done;
        let (value, form) = (answer.value.unwrap_or_default(), answer.form);
        match self {
            Self::Restored if is_there => reply.simple("OK"),
            Self::Restored => reply.error(b"BUSYKEY Target key name already exists."),
            _ if !is_there => reply.null(),
            Self::Encoding => reply.bulk(encoding::name(value, form).as_bytes()),
            Self::References => reply.integer(encoding::references(value, form)),
            Self::Unknown(error) => reply.error(error.as_bytes()),
            Self::Usage(key_bytes) => {
                let length = answer.value.map_or(answer.integer, |value| value.len() as i64);
                reply.integer(length + *key_bytes as i64 + ENTRY_BYTES);
            }
            Self::Dump if value.len() > DUMPED_BYTES_MAX => {
                let bytes = value.len();
                let text = format!(
                    "ERR value of {bytes} bytes exceeds the limit of {DUMPED_BYTES_MAX} bytes of DUMP"
                );
                reply.error(text.as_bytes());
            }
            Self::Dump => reply.bulk(&dump::payload(value, form)),
        }
    }
}
