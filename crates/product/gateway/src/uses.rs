//! Which keys a command uses, and how: what those behind it may have to wait for (`unanswered`).

use crate::command::{Command, Kind};
use crate::limits::KEYS_SHARED_MAX;
use crate::parser::Arguments;

/// The keys of a command, as hashes: two keys with one hash only wait for each other needlessly.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) first: Option<u64>,
    pub(crate) others: Vec<u64>,
    /// It has too many to list.
    pub(crate) exclusive: bool,
    pub(crate) uses: Uses,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// It reads them, by requests of this turn.
    Reads {
        turn: u64,
    },
    Writes,
}

impl Keys {
    /// Of a command that is issued in this turn.
    pub(crate) fn of(
        command: &Command,
        arguments: Arguments<'_>,
        turn: u64,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Self {
        if matches!(command.kind, Kind::Scan | Kind::Flush | Kind::Transaction | Kind::Listen) {
            return Self { exclusive: true, ..Self::none() };
        }
        if command.kind == Kind::Publish {
            return Self { first: Some(hash(arguments.prefix(1))), ..Self::none() };
        }
        let uses = if command.kind == Kind::Read { Uses::Reads { turn } } else { Uses::Writes };
        if command.has_one_key() {
            return Self { first: Some(hash(arguments.prefix(1))), uses, ..Self::none() };
        }
        let indexes = || command.key_indexes(arguments.count(), &|index| arguments.prefix(index));
        if arguments.count() > KEYS_SHARED_MAX && indexes().nth(KEYS_SHARED_MAX).is_some() {
            return Self { exclusive: true, ..Self::none() };
        }
        let mut hashes = indexes().map(|index| hash(arguments.prefix(index)));
        Self { first: hashes.next(), others: hashes.collect(), exclusive: false, uses }
    }

    pub(crate) fn none() -> Self {
        Self { first: None, others: Vec::new(), exclusive: false, uses: Uses::Writes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && !self.exclusive
    }

    /// The first of them; `None` if there are none, or too many.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.first.iter().chain(&self.others).copied()
    }
}
