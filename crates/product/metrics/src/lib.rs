//! Prometheus metrics of every role, and the HTTP endpoint that serves them.
//!
//! ```text
//!   scraper ──HTTP──▶ [`serve`] (a thread of its own) ──asks──▶ node, switch, metadata service (inquiries)
//!                        │                            ──reads─▶ gateway, storage target (counters that their threads write)
//!                        └─▶ page: samples by the [`catalogue`], cached briefly
//! ```
//!
//! Roles know nothing of metrics: they count what they need and answer when they are asked. However many clients read the page, roles are
//! asked once per generated page. A role that does not answer is left out and reported as not answering.

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
