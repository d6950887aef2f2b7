//! The stream between the metadata controller and a switch agent.
//!
//! ```text
//!  controller                                 agent
//!      │ Install{term, tables} ────────────────▶│  term < the newest seen: Refused
//!      │                                        │  generation < installed in this term: Failed
//!      │                                        │  validate, build, flip (make-before-break)
//!      │◀──────────── Installed{term, generation}│  no packet goes by the old tables any more
//!      │◀──────────── Failed{generation, reason} │  the old tables are in force
//!      │ Update{term, base, one table} ────────▶│  base is not what this term installed: Failed; else as Install
//!      │ Read, Write, ResetRegister{term} ─────▶│
//!      │◀──────────────── Register{cells} ──────│
//!      │ Status{term} ─────────────────────────▶│
//!      │◀─────────── Status{generation, tables…} │
//!      │ Lookup{term, addresses} ──────────────▶│  for an operator, see `lookup`
//!      │◀─────────────── Found{generation, …} ──│
//!      │ SetHot{term, keyspaces} ──────────────▶│  what is counted from now on
//!      │ ChangeHot{term, removed, set} ────────▶│  as a whole, or not at all
//!      │◀─────────── HotChanged, HotFailed ─────│
//!      │ ReadHot{term} ────────────────────────▶│  what was counted since the last one
//!      │◀─────────────────── Hot{reading} ──────│
//! ```
//!
//! Invariants: requests of older terms change nothing (R13), and a request of a newer term fences the older
//! ones off even if it fails; within a term the generation never goes back; a request may be repeated (a lost
//! answer): the same tables under the same generation are answered alike. A started agent has no tables and
//! its switch drops vring traffic until the first install. Hot entries are no part of a generation: they only steer, and are changed by differences. A term is obeyed only after it is remembered
//! ([`TermMemory`]), so that the agent's own restart brings no older controller back. Messages are postcard, one
//! per frame of the stream; bytes after a message are an error.

mod agent;
mod hot;
mod lookup;
mod message;

pub use agent::{NoMemory, SwitchAgent, TermMemory};
pub use lookup::{Found, Lookup, Met, Sight, Sighting};
pub use message::{CONTROL_MESSAGE_BYTES_MAX, ControlError, ControlReply, ControlRequest, decode, encode};
