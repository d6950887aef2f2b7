//! The arguments of a call, with checks for each type.

use crate::error::CommandError;
use crate::resp::Arguments;
use alloc::format;
use alloc::string::String;
use nicekv_client::{Request, SubmitError};
use nicekv_proto::limits::KEY_BYTES_MAX;
use nicekv_proto::number::parse_integer;

/// A call of a command. Argument 0 is the name.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub arguments: Arguments<'a>,
    /// The command's name in lower case.
    pub name: &'static str,
}

impl<'a> Call<'a> {
    pub fn count(&self) -> usize {
        self.arguments.count()
    }

    /// An argument; refused if the parser has truncated it.
    pub fn bytes(&self, index: usize) -> Result<&'a [u8], CommandError> {
        let (bytes, length) = (self.arguments.prefix(index), self.arguments.length(index));
        if bytes.len() == length {
            return Ok(bytes);
        }
        let limit = self.arguments.bytes_max();
        Err(CommandError::text(format!("ERR argument of {length} bytes exceeds the limit of {limit} bytes")))
    }

    /// A key; if it is too long, the error names the limit.
    pub fn key(&self, index: usize) -> Result<&'a [u8], CommandError> {
        let key = self.arguments.prefix(index);
        let bytes = self.arguments.length(index);
        if bytes > KEY_BYTES_MAX {
            return Err(SubmitError::KeyTooLong { bytes, limit: KEY_BYTES_MAX }.into());
        }
        Request::Get { key }.check()?;
        Ok(key)
    }

    /// A value; if it is too long, the error names the limit.
    pub fn value(&self, index: usize) -> Result<&'a [u8], CommandError> {
        let bytes = self.arguments.length(index);
        let value = self.arguments.prefix(index);
        if value.len() < bytes {
            let limit = self.arguments.bytes_max();
            return Err(SubmitError::ValueTooLong { bytes, limit }.into());
        }
        Ok(value)
    }

    pub fn integer(&self, index: usize) -> Result<i64, CommandError> {
        parse_integer(self.arguments.prefix(index)).ok_or(CommandError::NOT_AN_INTEGER)
    }

    /// Refuses a subcommand whose number of arguments is not `count`.
    pub fn check_subcommand(&self, count: usize) -> Result<(), CommandError> {
        if self.count() == count {
            return Ok(());
        }
        let subcommand = String::from_utf8_lossy(self.bytes(1)?).to_ascii_lowercase();
        Err(CommandError::arity(&format!("{}|{subcommand}", self.name)))
    }

    /// Whether an argument is this word, in upper or lower case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.prefix(index).eq_ignore_ascii_case(word.as_bytes())
    }
}
