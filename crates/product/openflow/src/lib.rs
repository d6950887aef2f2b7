//! OpenFlow 1.3 for a controller, as a pure core: [`wire`] encodes and decodes messages, [`session`]
//! leads the conversation with one switch, [`program`] compiles its tables to flows and groups,
//! [`controller`] makes the switch run them, and [`tally`] adds up what they count.
//!
//! OpenFlow is the substrate on which NICE was built (NICE §5): a controller writes flows and groups
//! into a switch that it does not run on.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod controller;
#[cfg(test)]
mod model;
pub mod program;
pub mod session;
pub mod tally;
pub mod wire;
