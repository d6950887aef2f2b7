//! Scripts of a history: what a node is to make of them, written from what they are to mean, not from what runs them.

use crate::model::{Action, Change, Register, When};
use alloc::format;
use alloc::vec::Vec;
use nicekv_proto::OpId;

/// A script on two keys, which may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Tells the first key's value, and stores it in the second one: there is none there if there is none.
    Copy,
    /// Adds 1 to the first key's number unless it is [`LIMIT`](Self::LIMIT) already, or no number; then it stores the time of its call in the second one, and tells the sum. Else it tells -1.
    Count,
    /// Stores something in the second key, and fails.
    Fail,
}

impl Program {
    /// So far [`Self::Count`] counts.
    pub const LIMIT: i64 = 6;

    /// Whether it may change something.
    pub(crate) fn changes(self) -> bool {
        self != Self::Fail
    }

    /// What becomes of the keys of `from` and `to`, and the reply by RESP2.
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
