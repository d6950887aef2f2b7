//! Which keys a command uses, and whether it writes them. Later commands of the connection that use
//! the same keys may have to wait (see `unanswered`).

use crate::limits::KEYS_SHARED_MAX;
use nicekv_redis::command::{Command, Kind};
use nicekv_redis::resp::Arguments;

/// The keys of a command, as hashes. If two keys collide, a command waits needlessly; nothing worse
/// happens.
#[derive(Debug)]
pub(crate) struct UsedKeys {
    pub(crate) first: Option<u64>,
    pub(crate) others: Vec<u64>,
    /// The command has too many keys to compare, or no fixed set of keys: it runs alone.
    pub(crate) exclusive: bool,
    pub(crate) usage: KeyUsage,
}

/// A command's access to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyUsage {
    /// It reads them, by requests of this turn of the event loop.
    Read {
        turn: u64,
    },
    Write,
}

impl UsedKeys {
    /// The keys of a command that is issued in turn `turn`.
    pub(crate) fn of(
        command: &Command,
        arguments: Arguments<'_>,
        turn: u64,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Self {
        if matches!(command.kind, Kind::Scan | Kind::Flush | Kind::Transaction | Kind::Subscription) {
            return Self { exclusive: true, ..Self::none() };
        }
        if command.kind == Kind::Publish {
            return Self { first: Some(hash(arguments.prefix(1))), ..Self::none() };
        }
        let usage = if command.kind == Kind::Read { KeyUsage::Read { turn } } else { KeyUsage::Write };
        if command.has_one_key() {
            return Self { first: Some(hash(arguments.prefix(1))), usage, ..Self::none() };
        }
        let indexes = || command.key_indexes(arguments.count(), &|index| arguments.prefix(index));
        if arguments.count() > KEYS_SHARED_MAX && indexes().nth(KEYS_SHARED_MAX).is_some() {
            return Self { exclusive: true, ..Self::none() };
        }
        let mut hashes = indexes().map(|index| hash(arguments.prefix(index)));
        Self { first: hashes.next(), others: hashes.collect(), exclusive: false, usage }
    }

    pub(crate) fn none() -> Self {
        Self { first: None, others: Vec::new(), exclusive: false, usage: KeyUsage::Write }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && !self.exclusive
    }

    /// The first key; `None` if the command has no key, or runs alone.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.first.iter().chain(&self.others).copied()
    }
}
