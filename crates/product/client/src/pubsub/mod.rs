//! Publish and subscribe: what this client subscribes to, for whom, and the messages that come.
//!
//! ```text
//!   Subscribers    which listeners want a channel or pattern, and which of their commands wait to be confirmed
//!        │ count changes
//!        ▼
//!   Subscriptions  announces each channel and pattern to the nodes, and again before they forget it
//!        │ requests (Listen)
//!        ▼
//!   ClientCore ──▶ Inbox   messages, each once, until the driver takes them
//! ```

mod inbox;
mod subscribers;
mod subscriptions;

pub(crate) use inbox::Inbox;
pub use inbox::Message;
pub use subscribers::{Confirmed, Subscribers, Topic};
pub use subscriptions::{Confirmation, SUBSCRIPTIONS_MAX, SubscriptionId, Subscriptions};
