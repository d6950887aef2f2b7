//! The meaning of Redis commands, without sockets, clocks and threads.
//!
//! ```text
//!   bytes ─▶ resp::Parser ─▶ table (which command) ─▶ acl (may it run) ─▶ dispatch ─▶ Plan
//!                                                                                     │ requests
//!   bytes ◀─ resp::ReplyWriter ◀─ Finish, Continuation ◀── answers of the store ◀─────┘
//! ```
//!
//! A handler turns a command into a [`Plan`](plan::Plan): a reply, one request with the way to
//! finish it, or a [`Continuation`](continuation::Continuation) that makes one request after the
//! other. A plan is run by a host, which also provides what the handler needs to know of its
//! environment ([`Host`](host::Host)). There are two: the gateway, which sends requests to nodes,
//! and the interpreter of scripts, which runs them on the keys that a node lends to it.
//!
//! Commands, replies and errors follow Redis 7.0 as far as the store supports them;
//! docs/COMMANDS.md lists the differences. Patterns and numbers are in `nicekv-proto`, because
//! nodes evaluate them, too.

#![cfg_attr(not(test), no_std)]
#![allow(missing_docs, reason = "no user links this crate; names say what items are")]

extern crate alloc;

pub mod acl;
pub mod answered;
mod bits;
pub mod call;
mod categories;
pub mod client_info;
pub mod command;
pub mod context;
pub mod continuation;
pub mod dispatch;
mod dump;
pub mod each_key;
mod element;
mod encoding;
pub mod error;
pub mod exec;
pub mod finish;
mod handlers;
mod hash_reply;
pub mod host;
pub mod key_scan;
mod large_results;
mod lcs;
pub mod limits;
pub mod message;
mod object_reply;
pub mod pending_subscription;
pub mod plan;
mod random_key;
mod range;
pub mod redaction;
mod rename;
pub mod reply_mode;
pub mod resp;
pub mod script_reply;
pub mod session;
pub mod subscription;
pub mod table;
pub mod transaction;
mod unsupported;

/// The version of Redis whose behaviour is followed.
pub const REDIS_VERSION: &str = "7.0.15";
