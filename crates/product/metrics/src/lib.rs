//! Prometheus metrics of every role, and the endpoint where they are read.
//!
//! ```text
//!   scraper ──HTTP──▶ [`serve`] (a thread of its own) ──asks──▶ node, switch, metadata service (inquiries)
//!                        │                            ──reads─▶ gateway, storage target (numbers that their threads write)
//!                        └─▶ page: samples by the [`catalogue`], kept for a moment
//! ```
//!
//! Roles do not know of metrics: they count what they count anyway, and say so when they are asked. Nobody is asked more often than a page is
//! made, however many read it, and who does not answer is left out and counted as not answering.

pub mod catalogue;
mod http;
mod page;
mod process;
mod roles;
mod targets;

pub use http::serve;
pub use page::Page;
pub use roles::Source;
