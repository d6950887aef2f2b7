//! Prometheus metrics of every role, and the HTTP endpoint that serves them.
//!
//! ```text
//!   scraper ──HTTP──▶ [`serve`] (a thread of its own) ──asks──▶ node, switch, metadata service (inquiries)
//!                        │                            ──reads─▶ gateway, storage target (counters that their threads write)
//!                        └─▶ page: samples by the [`catalogue`], cached briefly
//! ```
//!
//! Roles do not depend on this crate: they keep counters and answer inquiries. However many clients
//! read the page, each role is asked once per generated page. A role that does not answer is left
//! out, and is reported as not answering.

pub mod catalogue;
pub mod counters;
mod http;
mod page;
mod process;
mod roles;
mod samples;
mod targets;

pub use http::serve;
pub use page::Page;
pub use roles::Source;
