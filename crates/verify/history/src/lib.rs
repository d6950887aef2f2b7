//! Linearizability, one key at a time: what clients saw, and whether a register could have answered
//! so. Simulated and real clusters are judged by the same code.
//!
//! A history is a set of [`Call`]s. It is linearizable if some order of them respects real time (a
//! call that returned before another was made comes first) and, executed one after the other on a
//! register ([`model`]), gives every call the answer that it got. A call without an answer stays
//! open-ended: it may take effect at any later time, or never.
//!
//! ```text
//!   calls ─▶ timeline: sorted, narrowed, indistinguishable ops made equal ─▶ search: event by event ─▶ Verdict
//!                                                                                  └─▶ frontier: what the register may hold now
//! ```
//!
//! [`together`] judges several keys at once, for transactions.

#![cfg_attr(not(test), no_std)]
extern crate alloc;
#[cfg(test)]
extern crate self as nicekv_history;

mod frontier;
pub mod model;
pub mod program;
mod search;
mod timeline;
pub mod together;

pub use model::{Action, Answer, Register};
pub use search::{CONFIGURATIONS_MAX, STEPS_MAX, Verdict, check};

/// A client's operation on the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    pub action: Action,
    /// Time of the call, on any clock that orders all calls and answers of the history.
    pub called: u64,
    /// Time and content of the answer; `None` if the outcome is unknown.
    pub answered: Option<(u64, Answer)>,
}
