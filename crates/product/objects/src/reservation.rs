//! Reservation: time windows that storage targets promise, and how an initiator chooses among them (Replicast §II, §III).
//!
//! ```text
//!   initiator ──request: size, earliest──▶ all targets of a group
//!             ◀──bid: window, disk────────  each: Book::bid       tentative: time, memory and disk are reserved
//!   common_window or sequence
//!             ──accept: targets, window───▶ Book::accept          chosen targets: trimmed to what is used
//!                                           Book::cancel          the others: their time is free again
//!             ──data, within the window───▶ Book::finish          the whole chunk has arrived
//!   nothing arrives                         Book::lapse           time, memory and disk are free again
//! ```
//!
//! *Multicast* (Replicast-M) needs one window that several targets have in common, so bids are wider than what is used.
//! *Unicast* (Replicast-H) needs windows one after the other, so a request says when the initiator is free.
//!
//! *No clocks are compared.* A window travels as offsets from the receipt of the request ([`Offsets`]), which the initiator
//! knows within a round trip ([`Receipt`]). A window is a promise of resources only: data at another time, or none, delays
//! others and does no other harm.
//!
//! Both sides are plain state; the caller provides the time, in nanoseconds, and random numbers. Parameters are those of the
//! paper and its simulator ([`Config`]). Reading order: `window`, `config`, `bid`, `book` (the target's side), then `offers`,
//! `common_window`, `sequence` and `next_request` (the initiator's side).

mod bid;
mod book;
mod common_window;
mod config;
mod next_request;
mod offers;
mod sequence;
mod window;

pub use bid::{Backlog, Bid, BidError, BidId, Refused, Request};
pub use book::Book;
pub use common_window::{CommonWindow, common_window};
pub use config::{BIDS_MAX, Config, ConfigError, Delivery, Widths};
pub use next_request::next_request_ns;
pub use offers::{COPIES_MAX, Offer, sort_offers};
pub use sequence::{Pick, Picks, sequence};
pub use window::{Offsets, Receipt, Window};
