//! The subscriptions of a connection, and the commands that change them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use nicekv_client::Topic;
use nicekv_proto::publish::ListenKind;

/// Bytes of memory of a subscription in addition to its name.
pub(crate) const NAME_BYTES: usize = 64;

/// The channels and patterns to which a connection is subscribed.
#[derive(Debug, Default)]
pub struct Subscriptions {
    names: BTreeSet<Topic>,
    bytes: usize,
    channels: usize,
    /// Names that RESET has unsubscribed, and that the store still has to be notified of.
    pub left: Vec<Topic>,
}

impl Subscriptions {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of channels, and the number of patterns.
    pub fn counts(&self) -> (usize, usize) {
        (self.channels, self.names.len() - self.channels)
    }

    /// Adds a subscription. Returns false if it already existed.
    pub fn insert(&mut self, name: Topic) -> bool {
        let (kind, bytes) = (name.0, name.1.len() + NAME_BYTES);
        let is_new = self.names.insert(name);
        if is_new {
            self.bytes += bytes;
            self.channels += usize::from(kind == ListenKind::Channel);
        }
        is_new
    }

    /// Removes a subscription. Returns false if it did not exist.
    pub fn remove(&mut self, name: &Topic) -> bool {
        let was_there = self.names.remove(name);
        if was_there {
            self.bytes -= name.1.len() + NAME_BYTES;
            self.channels -= usize::from(name.0 == ListenKind::Channel);
        }
        was_there
    }

    pub fn of_kind(&self, kind: ListenKind) -> impl Iterator<Item = &Topic> {
        self.names.iter().filter(move |name| name.0 == kind)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.names.iter()
    }

    /// RESET: ends all subscriptions.
    pub fn reset(&mut self) {
        self.left.extend(core::mem::take(&mut self.names));
        (self.bytes, self.channels) = (0, 0);
    }

    pub fn memory(&self) -> usize {
        self.bytes
    }
}

/// A SUBSCRIBE or UNSUBSCRIBE, as parsed by its handler.
#[derive(Clone, Debug)]
pub struct SubscriptionRequest {
    pub subscribes: bool,
    pub kind: ListenKind,
    /// If empty, UNSUBSCRIBE ends all subscriptions of this kind.
    pub names: Vec<Vec<u8>>,
}

impl SubscriptionRequest {
    pub(crate) fn verb(&self) -> &'static str {
        match (self.subscribes, self.kind) {
            (true, ListenKind::Channel) => "subscribe",
            (true, ListenKind::Pattern) => "psubscribe",
            (false, ListenKind::Channel) => "unsubscribe",
            (false, ListenKind::Pattern) => "punsubscribe",
        }
    }
}

/// The names that a command has subscribed or unsubscribed, after the store has confirmed them.
#[derive(Debug)]
pub struct SubscriptionChange {
    pub names: Vec<Topic>,
    pub subscribes: bool,
    /// The store did not confirm a name: new subscriptions have to be ended.
    pub failed: bool,
}
