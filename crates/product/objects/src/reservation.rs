//! Time windows that storage targets promise, and how an initiator chooses among them (Replicast §II, §III).
//!
//! ```text
//!   initiator ──request: size, earliest──▶ the targets of a negotiating group
//!             ◀──bid: window, disk────────  each: Book::bid          tentative: time, memory and disk are set aside
//!   common_window or sequence
//!             ──accept: who, when─────────▶ Book::accept             the chosen, trimmed to what is used
//!                                           Book::cancel             the others: their time is free again
//!             ──data, from the window's left on──▶
//!                                           Book::finish             the whole chunk is there
//!   nothing comes                           Book::lapse              time, memory and disk are free again
//! ```
//!
//! *Multicast* (Replicast-M) needs one window that several targets have in common, so bids are wider than what is used. *Unicast* (Replicast-H) needs windows one after the
//! other, so targets are asked for a time at or after which the initiator is free.
//!
//! *Time is the receipt's.* A window travels as offsets from the receipt of the request ([`Offsets`]), which the initiator knows within a round trip ([`Receipt`]); no two clocks
//! are compared. A window is a promise of resources and nothing more: who sends at another time, or never, delays others, and that is all.
//!
//! Both sides are plain state: the caller has the clock, in nanoseconds, and draws what is chance. Parameters are those of the paper and of its simulator ([`Config`]).

mod again;
mod bid;
mod book;
mod common;
mod config;
mod offer;
mod sequence;
mod window;

pub use again::ask_again;
pub use bid::{Backlog, Bid, BidError, BidId, Refused, Request};
pub use book::Book;
pub use common::{Common, common_window};
pub use config::{BIDS_MAX, Config, ConfigError, Delivery, Widths};
pub use offer::{COPIES_MAX, Offer, sort};
pub use sequence::{Pick, Picks, sequence};
pub use window::{Offsets, Receipt, Window};
