//! Which keys are hot, and which servers hold copies of them (KVSwitch §4).
//!
//! ```text
//!   packet ─▶ hot key? ─ yes ─▶ counted in its entry ─▶ its holders, round robin ┐
//!                      └ no ──▶ HashPipe ─────────────▶ its owner ───────────────┴▶ counted for the server
//!   per period:  counts of entries and HashPipe ─▶ predicted loads ─┐
//!                loads of servers ─▶ threshold T ───────────────────┴▶ plan: holders ─▶ changes of the table
//! ```
//!
//! Per packet, [`HashPipe`] counts and [`choose_holder`] picks a holder. They are the reference for
//! the programs in the kernel: arrays of fixed size, bounded loops, no division by a value from a
//! packet. Per period, [`plan`] decides on changes. It is a pure function of the current table and
//! the counts, in integers, so that every leader decides alike. The rules that make copies safe to
//! read (H1 to H9) are elsewhere; this crate only decides where load should go.
//!
//! Reading order: `key`, `hashpipe` (counting), `predict` and `threshold` (what is hot), `holders`
//! (how many servers, which ones), `plan` (how the table changes). `loads` and `recall` measure the
//! result.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod config;
mod hashpipe;
mod holders;
mod key;
mod loads;
mod plan;
mod predict;
mod recall;
mod threshold;

pub use config::{Config, ConfigError, HOLDERS_MAX, KEYS_MAX, MILLION, STAGES_MAX, VALUES_MAX};
pub use hashpipe::{HashPipe, Reading, Slot, stage_seeds, sum_by_key};
pub use holders::{Ring, choose_holder, holder_count, place_holders};
pub use key::HotKey;
pub use loads::{CounterDeltas, imbalance};
pub use plan::{Change, ChangeKind, Entry, PeriodReport, Plan, State, plan};
pub use predict::{MicroQueries, predict};
pub use recall::recall;
pub use threshold::Threshold;
