//! The stages of the pipeline, each a file. In the order in which a frame meets them:
//!
//! ```text
//!   parse   what the frame is: for a vring, others' traffic, or nothing
//!   admit   whether its sender may send that
//!   learn   where stations are, for others' traffic
//!   match   which hosts receive it ([`crate::Router`])
//!   split   a scan, at the borders of records
//!   rewrite a copy for each of them (with parsing, since it needs the same offsets)
//! ```
//!
//! A switch behind a socket ([`crate::SocketSwitch`]) is given datagrams, so it has no parsing, learning and rewriting, and stamps
//! the sender's address instead.

pub(crate) mod admit;
pub(crate) mod learn;
pub(crate) mod parse;
pub(crate) mod split;
