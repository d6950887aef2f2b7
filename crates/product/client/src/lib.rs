//! The native client of NICEKV.
//!
//! A client knows a digest and two address ranges ([`Vrings`](nicekv_proto::placement::Vrings)) and nothing of nodes, partitions or roles:
//!
//! ```text
//!            submit ──▶ ┌───────────┐ ──poll_transmit──▶ get: one unicast vnode, update: one multicast vnode
//!   Completion ◀──────  │ ClientCore│
//!            poll_event └───────────┘ ◀─handle_datagram─ replies, from whichever replica
//! ```
//!
//! [`ClientCore`] is pure: no socket, clock, thread or random source. It belongs to one thread. The `facade` feature adds a cloneable
//! asynchronous handle, `facade::Client`, whose requests reach that thread through a queue.
//!
//! What all requests have in common is in `in_flight`; what is said to replicas, and what their answers mean, in `exchange`, one
//! module per protocol. What is too long for a datagram goes in fragments, and values that are too long for a message ([`Config::message_value_bytes_max`]) in chunks, of which `large` takes care. One client serves several keyspaces, each by its own protocol and through its own pair of vrings.
//!
//! Invariants:
//! * An update is retried with the *same* op id until it is answered or its deadline passes, so it takes effect at most once.
//! * The watermark that an update carries is never above an op that may still be retried (R10).
//! * An op has one id from its first datagram to its end, also when its client gets another one meanwhile.
//! * "Outcome unknown" is reported as such, never as failure: the update may have taken effect, or may still do so.
//! * No more datagrams are under way than replicas answer soon (`congestion`); what is beyond waits here, and is refused if it would
//!   wait longer than its caller.
//! * Of a large value there is one buffer: a put's until its end, or its caller's own ([`SharedBytes`]), a get's as far as chunks have come, until its completion was taken.
//! * At most [`Config::in_flight_max`] ops are unfinished and [`SEQUENCE_SPAN_MAX`] op ids lie between the oldest and the newest.

#![cfg_attr(not(any(test, feature = "facade")), no_std)]
extern crate alloc;

mod bundler;
mod client_core;
mod company;
mod config;
mod congestion;
mod coordination;
mod counters;
mod destinations;
mod directed;
mod error;
mod exchange;
#[cfg(feature = "facade")]
pub mod facade;
mod heard;
mod hub;
mod in_flight;
mod large;
mod lengths;
mod line;
mod random;
mod request;
mod round_trip;
mod scan;
mod sequences;
mod slot;
mod subscriptions;
mod summary;
pub mod transaction;
mod turns;
mod waiters;
mod wheel;

pub use client_core::ClientCore;
pub use config::{
    Addressing, Config, IN_FLIGHT_MAX, Keyspace, LARGE_VALUE_BYTES_MAX, OPERATION_TIMEOUT, RetryPolicy,
    SEQUENCE_SPAN_MAX,
};
pub use coordination::Coordination;
pub use counters::Counters;
pub use error::{OperationError, SubmitError};
pub use heard::Message;
pub use hub::{Confirmed, Subscribers, Topic};
pub use large::SharedBytes;
pub use request::{Answer, Completion, Outcome, Request, Ticket};
pub use scan::Scan;
pub use subscriptions::{Confirmation, SUBSCRIPTIONS_MAX, SubscriptionId, Subscriptions};
pub use waiters::{Separated, Waiters};
