//! Scripts in a history: their effects, written from the specification, independently of the code
//! that runs them.

use crate::model::{Action, Change, Register, When};
use alloc::format;
use alloc::vec::Vec;
use nicekv_proto::OpId;

/// A script on two keys, which may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Returns the first key's value, and stores it in the second key. If the first key is absent,
    /// deletes the second.
    Copy,
    /// Adds 1 to the number in the first key, stores the time of the call in the second key, and
    /// returns the sum. If the first key holds [`LIMIT`](Self::LIMIT) or more, or no number, only
    /// returns -1.
    Count,
    /// Stores a value in the second key, and fails.
    Fail,
}

impl Program {
    /// The number up to which [`Self::Count`] counts.
    pub const LIMIT: i64 = 6;

    /// Whether the script may change anything.
    pub(crate) fn changes(self) -> bool {
        self != Self::Fail
    }

    /// Executes the script on the keys `from` and `to`. Returns the reply in RESP2.
    pub(crate) fn execute(
        self,
        (op, unix_ms): (OpId, u64),
        keys: &mut [Register],
        (from, to): (usize, usize),
    ) -> Vec<u8> {
        let value = keys[from].execute(&Action::Get).1.value;
        let mut change = |key: usize, change: Change| {
            let action = Action::Update { op, condition: When::Always, return_old: false, change };
            keys[key] = keys[key].execute(&action).0;
        };
        match self {
            Self::Copy => {
                let reply = match &value {
                    Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                    None => b"$-1\r\n".to_vec(),
                };
                change(to, value.map_or(Change::Delete, Change::Set));
                reply
            }
            Self::Count => {
                let count = value.map_or(Some(0), |value| crate::model::number(&value));
                let Some(count) = count.filter(|count| *count < Self::LIMIT) else {
                    return b":-1\r\n".to_vec();
                };
                change(from, Change::Increment(1));
                change(to, Change::Set(format!("{unix_ms}").into_bytes()));
                format!(":{}\r\n", count + 1).into_bytes()
            }
            Self::Fail => b"-ERR it fails\r\n".to_vec(),
        }
    }
}
