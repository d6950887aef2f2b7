//! What one connection listens to, and its commands that change that.

use crate::error::CommandError;
use crate::hub::Name;
use crate::reply::ReplyWriter;
use nicekv_client::OperationError;
use nicekv_proto::publish::ListenKind;
use std::collections::BTreeSet;

/// Bytes that a name costs beside its own.
const NAME_BYTES: usize = 64;

/// The names that a connection listens to.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    names: BTreeSet<Name>,
    bytes: usize,
    channels: usize,
    /// Those that RESET has given up, for the connection to say so.
    pub(crate) left: Vec<Name>,
}

impl Subscribed {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Of channels, and of patterns.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.channels, self.names.len() - self.channels)
    }

    /// False if it is there already.
    pub(crate) fn insert(&mut self, name: Name) -> bool {
        let (kind, bytes) = (name.0, name.1.len() + NAME_BYTES);
        let is_new = self.names.insert(name);
        if is_new {
            self.bytes += bytes;
            self.channels += usize::from(kind == ListenKind::Channel);
        }
        is_new
    }

    /// False if it is not there.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        let was_there = self.names.remove(name);
        if was_there {
            self.bytes -= name.1.len() + NAME_BYTES;
            self.channels -= usize::from(name.0 == ListenKind::Channel);
        }
        was_there
    }

    pub(crate) fn of_kind(&self, kind: ListenKind) -> impl Iterator<Item = &Name> {
        self.names.iter().filter(move |name| name.0 == kind)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Name> {
        self.names.iter()
    }

    /// RESET: it listens to nothing any more.
    pub(crate) fn reset(&mut self) {
        self.left.extend(std::mem::take(&mut self.names));
        (self.bytes, self.channels) = (0, 0);
    }

    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }
}

/// A command that changes what a connection listens to: names that are joined, or left.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) joins: bool,
    pub(crate) kind: ListenKind,
    pub(crate) names: Vec<Vec<u8>>,
}

impl Change {
    fn verb(&self) -> &'static str {
        match (self.joins, self.kind) {
            (true, ListenKind::Channel) => "subscribe",
            (true, ListenKind::Pattern) => "psubscribe",
            (false, ListenKind::Channel) => "unsubscribe",
            (false, ListenKind::Pattern) => "punsubscribe",
        }
    }
}

/// Such a command, until the store knows of all of it.
#[derive(Debug)]
pub(crate) struct Changing {
    change: Change,
    /// Names, in the order of the command, and to how many the connection listens with them, or without them.
    lines: Vec<(Option<Vec<u8>>, usize)>,
    /// Those that were changed.
    pub(crate) changed: Vec<Name>,
    left: usize,
    error: Option<CommandError>,
}

/// How it has ended: the names that it has changed, and whether they are joined now.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) names: Vec<Name>,
    pub(crate) joined: bool,
    /// The store could not be told: what was joined is to be left.
    pub(crate) failed: bool,
}

impl Changing {
    pub(crate) fn new(change: Change) -> Self {
        let (lines, changed, left, error) = Default::default();
        Self { change, lines, changed, left, error }
    }

    /// A name, and to how many the connection listens then; whether the store is to be told.
    pub(crate) fn add(&mut self, name: Option<Name>, total: usize, is_changed: bool) {
        self.left += usize::from(is_changed);
        self.lines.push((name.as_ref().map(|name| name.1.clone()), total));
        self.changed.extend(name.filter(|_| is_changed));
    }

    /// It cannot be done.
    pub(crate) fn fail(&mut self, error: CommandError) {
        self.error.get_or_insert(error);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The store knows of one of the names, or could not be told; true if that was the last. What is left is forgotten by itself.
    pub(crate) fn take(&mut self, result: Result<(), OperationError>) -> bool {
        self.left = self.left.saturating_sub(1);
        if let (true, Err(error)) = (self.change.joins, result) {
            let text = format!("ERR {error}: the channel's partition could not be told who listens");
            self.error.get_or_insert(CommandError::text(text));
        }
        self.is_over()
    }

    pub(crate) fn ended(&mut self) -> Changed {
        let names = std::mem::take(&mut self.changed);
        Changed { names, joined: self.change.joins, failed: self.error.is_some() }
    }

    pub(crate) fn memory(&self) -> usize {
        let of_lines = self.lines.iter().map(|(name, _)| NAME_BYTES + name.as_ref().map_or(0, Vec::len));
        2 * of_lines.sum::<usize>()
    }

    pub(crate) fn write(&self, reply: &mut ReplyWriter<'_>) {
        if let Some(error) = &self.error {
            return reply.error(error.as_bytes());
        }
        for (name, total) in &self.lines {
            reply.push(3);
            reply.bulk(self.change.verb().as_bytes());
            reply.bulk_or_null(name.as_deref(), None);
            reply.integer(*total as i64);
        }
    }
}
