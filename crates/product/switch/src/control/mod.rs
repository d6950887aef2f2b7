//! The control protocol between the metadata controller and a switch agent.
//!
//! ```text
//!  controller                                 agent
//!      │ Install{term, tables} ────────────────▶│  term < the newest seen: Refused
//!      │                                        │  generation < installed in this term: Failed
//!      │                                        │  validate, build, flip (make-before-break)
//!      │◀──────────── Installed{term, generation}│  no packet uses the old tables any more
//!      │◀──────────── Failed{generation, reason} │  the old tables stay in force
//!      │ Update{term, base, one table} ────────▶│  base is not what this term installed: Failed; else as Install
//!      │ Read, Write, ResetRegister{term} ─────▶│
//!      │◀──────────────── Register{cells} ──────│
//!      │ Status{term} ─────────────────────────▶│
//!      │◀─────────── Status{generation, tables…} │
//!      │ Lookup{term, addresses} ──────────────▶│  for operators, see `lookup`
//!      │◀─────────────── Found{generation, …} ──│
//!      │ SetHot{term, keyspaces} ──────────────▶│  configures hot-key detection
//!      │ ChangeHot{term, removed, set} ────────▶│  as a whole, or not at all
//!      │◀─────────── HotChanged, HotFailed ─────│
//!      │ ReadHot{term} ────────────────────────▶│  counts since the last reading
//!      │◀─────────────────── Hot{reading} ──────│
//! ```
//!
//! Invariants:
//! - Requests of older terms change nothing (R13). A request of a newer term fences off older
//!   terms, even if it fails. A term is obeyed only after it is stored ([`TermStore`]), so that a
//!   restart of the agent does not let an older controller back in.
//! - Within a term the generation never goes back.
//! - Requests may be repeated, if a reply was lost: the same tables under the same generation get
//!   the same reply.
//! - A started agent has no tables, and its switch drops vring traffic until the first install.
//! - Hot entries do not belong to a generation: they only steer, and are changed by differences.
//!
//! Messages are postcard, one in each frame of the stream; bytes after a message are an error.

mod agent;
mod hot_index;
mod lookup;
mod message;

pub use agent::{NoTermStore, SwitchAgent, TermStore};
pub use lookup::{ClientTrace, Found, Lookup, Met, TracedDatagram};
pub use message::{CONTROL_MESSAGE_BYTES_MAX, ControlError, ControlReply, ControlRequest, decode, encode};
