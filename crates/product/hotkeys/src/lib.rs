//! Which keys are hot, and which servers hold copies of them (KVSwitch §4).
//!
//! ```text
//!   packet ─▶ hot key? ─ yes ─▶ counted in its entry ─▶ one of its holders, in turn ┐
//!                      └ no ──▶ HashPipe ─────────────▶ its owner ──────────────────┴▶ counted for its server
//!   end of a period:  entries' counts, HashPipe's keys ─▶ predicted loads ─┐
//!                     servers' loads ─▶ threshold T ───────────────────────┴▶ plan: who holds what ─▶ changes of the table
//! ```
//!
//! What counts and chooses per packet ([`HashPipe`], [`choose`]) is the reference for programs in the kernel: arrays of a fixed size, loops with a bound, no division by what a
//! packet says. What decides per period ([`plan`]) is a function of the table that is there and of what was counted; it counts in whole numbers, so that every leader decides alike.
//! What makes copies safe to read (rules H1 to H9) is no part of this: here is only where load should go.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

mod config;
mod counters;
mod hashpipe;
mod holders;
mod key;
mod plan;
mod predict;
mod recall;
mod threshold;

pub use config::{Config, ConfigError, KEYS_MAX, MILLION, STAGES_MAX, VALUES_MAX};
pub use counters::{Differences, imbalance};
pub use hashpipe::{HashPipe, Reading, Slot, add_up, stage_seeds};
pub use holders::{HOLDERS_MAX, Ring, choose, copies, place};
pub use key::HotKey;
pub use plan::{Change, Entry, Kind, Plan, Report, State, plan};
pub use predict::{MicroQueries, predict};
pub use recall::found;
pub use threshold::Threshold;
