//! The native client of NICEKV.
//!
//! A client knows its keyspaces: how keys become digests, and two address ranges each
//! ([`Vrings`](nicekv_proto::placement::Vrings)), one for reads and one for updates. It knows no nodes, partitions or
//! roles: switches find these.
//!
//! ```text
//!   submit ──────────────▶ ┌────────────┐ ──poll_transmit──▶ get: the key's address in the unicast ring
//!                          │ ClientCore │                    update: its address in the multicast ring
//!   poll_event ◀────────── └────────────┘ ◀─handle_datagram── reply of whichever replica answers
//!   (Completion)                  ▲
//!                                 └ handle_deadline: retries, timeouts
//! ```
//!
//! [`ClientCore`] is a state machine without socket, clock, thread or random source. Its driver passes input and the time to
//! `handle_*` and [`submit`](ClientCore::submit), and takes output from `poll_*`; the documentation of [`ClientCore`] lists
//! its duties. The feature `facade` adds the cloneable asynchronous handle `facade::Client`, whose requests reach the
//! driver's thread through a queue; `nicekv_runtime::start_client` makes one, with a thread and a socket.
//!
//! # Example
//!
//! A get, with the network and the replica played by hand:
//!
//! ```
//! use nicekv_client::{ClientCore, Config, OPERATION_TIMEOUT, Outcome, Request};
//! use nicekv_proto::placement::Vrings;
//! use nicekv_proto::{ClientId, Datagram, KeyspaceId, Now, Reply, Status};
//!
//! let client_id = ClientId::new(1_700_000_000_000, 7);
//! let mut client = ClientCore::new(Config::new(client_id, Vrings::on_loopback(7400)));
//! let now = Now { boot_ns: 1_000, unix_ms: 1_700_000_000_000 };
//!
//! // A request in, …
//! let get = Request::Get { key: b"color" };
//! let ticket = client.submit(now, KeyspaceId::DEFAULT, get, now.after(OPERATION_TIMEOUT))?;
//!
//! // … datagrams out, to be sent by the driver's socket …
//! let mut datagram = Vec::new();
//! let to = client.poll_transmit(&mut datagram).expect("the get is to be sent");
//! assert_eq!(to.ip().octets()[..2], [127, 10]);
//! let (header, _) = Datagram::decode(&datagram)?;
//!
//! // … a reply in, …
//! let reply = Reply { value: Some(b"blue"), ..Reply::bare(header.op, Status::Ok) };
//! reply.encode(&mut datagram);
//! client.handle_datagram(now, "127.0.0.1:7401".parse()?, &datagram);
//!
//! // … and a completion out.
//! let completion = client.poll_event().expect("the get is answered");
//! let answer = completion.result?;
//! assert_eq!(completion.ticket, ticket);
//! assert_eq!((answer.outcome, answer.value), (Outcome::Done, Some(&b"blue"[..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//!
//! * An update is retried with the *same* op id until it is answered or its deadline passes, so it takes effect at most once.
//! * The watermark that an update carries is never above an op that may still be retried (R10).
//! * An op keeps its id from its first datagram to its end, even if the client gets another id meanwhile.
//! * "Outcome unknown" is reported as such, never as failure: the update may have taken effect, or may still do so.
//! * No more datagrams are in flight than replicas answer soon. Further requests wait in the client, and are refused if
//!   they would wait beyond their deadlines.
//! * There is one buffer for each large value: a put's until it ends, or its caller's own ([`SharedBytes`]); a get's grows
//!   with the chunks that come, until its completion is taken.
//! * At most [`Config::in_flight_max`] ops are unfinished, and [`SEQUENCE_SPAN_MAX`] op ids lie between the oldest and the
//!   newest.
//!
//! # Modules, in reading order
//!
//! | module | holds |
//! | --- | --- |
//! | `client_core` | keyspaces, datagrams in and out |
//! | `in_flight` | the table of requests: op ids, retries, deadlines, completions |
//! | `exchange` | the protocol of one request: `multicast` (also chains) and `quorum` |
//! | `flow_control` | congestion window, round-trip times, silent destinations |
//! | `batching` | which requests share a datagram |
//! | `large` | values in chunks: a put, a read |
//! | `coordination` | requests that do not leave finding the node to the switch |
//! | `pubsub`, `scan`, `transaction`, `waiters` | helpers for callers, each on top of requests |
//! | `facade` | the asynchronous handle |
//!
//! Each depends only on those below it in the table and on `config`, `request` and `error`; `in_flight` on all of them up to
//! `coordination`.

#![cfg_attr(not(any(test, feature = "facade")), no_std)]
#![warn(missing_docs)]
extern crate alloc;

mod batching;
mod client_core;
mod config;
mod coordination;
mod counters;
mod error;
mod exchange;
#[cfg(feature = "facade")]
pub mod facade;
mod flow_control;
mod in_flight;
mod large;
mod pubsub;
mod random;
mod request;
mod scan;
mod timer_wheel;
pub mod transaction;
mod waiters;

pub use client_core::ClientCore;
pub use config::{
    Addressing, Config, IN_FLIGHT_MAX, Keyspace, LARGE_VALUE_BYTES_MAX, OPERATION_TIMEOUT, RetryPolicy,
    SEQUENCE_SPAN_MAX,
};
pub use coordination::Coordination;
pub use counters::Counters;
pub use error::{OperationError, SubmitError};
pub use large::SharedBytes;
pub use pubsub::{
    Confirmation, Confirmed, Message, SUBSCRIPTIONS_MAX, Subscribers, SubscriptionId, Subscriptions, Topic,
};
pub use request::{Answer, Completion, Outcome, Request, Ticket};
pub use scan::Scan;
pub use waiters::{Separated, Waiters};
