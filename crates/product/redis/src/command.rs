//! A row of the command table: what the gateway knows about a command before it runs it.

use crate::categories::Categories;
use core::ops::Range;
use nicekv_proto::number::parse_integer;

/// One command.
#[derive(Debug)]
pub struct Command {
    /// Index in the table.
    pub number: usize,
    /// The name in lower case.
    pub name: &'static str,
    /// Number of arguments, including the name; if negative, the minimum (as in Redis).
    pub arity: i32,
    pub kind: Kind,
    pub keys: KeySpec,
    pub flags: Flags,
    /// Which arguments are passwords.
    pub secrets: Secrets,
    pub group: Group,
    /// Version of Redis in which the command appeared.
    pub since: &'static str,
    pub summary: &'static str,
}

/// A unit of access control: a command, or a subcommand such as `config|get`.
#[derive(Debug, PartialEq, Eq)]
pub struct Subject {
    /// The name in lower case.
    pub name: &'static str,
    pub categories: Categories,
    pub access: KeyAccess,
    /// Clients that have not authenticated may run it.
    pub needs_no_login: bool,
}

/// A command's effect on the order of a connection's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Connection,
    /// Reads all keys. It waits for all earlier commands of its connection, and later ones wait for
    /// it.
    Scan,
    /// Deletes all keys; waits like `Scan`.
    Flush,
    /// Begins or ends a transaction; waits like `Scan`.
    Transaction,
    /// Changes the subscriptions of its connection; waits like `Scan`.
    Subscription,
    /// Publishes a message; waits for earlier messages to the same channel.
    Publish,
    /// Runs a script; its second argument is the number of keys that follow.
    Script,
}

/// Which arguments are keys, as `COMMAND INFO` reports them. All fields are 0 if there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    pub first: usize,
    /// If negative, counted from the end.
    pub last: i32,
    pub step: usize,
}

impl KeySpec {
    pub const NONE: Self = Self { first: 0, last: 0, step: 0 };
    pub const ONE: Self = Self { first: 1, last: 1, step: 1 };
    pub const TWO: Self = Self { first: 1, last: 2, step: 1 };
    pub const ALL: Self = Self { first: 1, last: -1, step: 1 };
    /// Keys and values alternate.
    pub const PAIRS: Self = Self { first: 1, last: -1, step: 2 };
    /// One key after a subcommand.
    pub const SECOND: Self = Self { first: 2, last: 2, step: 1 };
}

/// How a command accesses its keys, for access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// It has no keys.
    None,
    /// It reveals no value: any permission on the key suffices.
    Metadata,
    Read,
    Write,
    ReadWrite,
    /// It writes; with the option GET it also reads.
    WriteAndReadIfGet,
}

/// Which arguments are passwords, to be hidden from logs and MONITOR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    None,
    /// All arguments.
    All,
    /// The rules of `ACL SETUSER`.
    AclRules,
    /// The two arguments after the option AUTH.
    HelloPassword,
}

/// Group in Redis' documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Bitmap,
    Connection,
    Generic,
    Hash,
    PubSub,
    Scripting,
    Server,
    String,
    Transactions,
}

impl Group {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap",
            Self::Connection => "connection",
            Self::Generic => "generic",
            Self::Hash => "hash",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
            Self::Server => "server",
            Self::String => "string",
            Self::Transactions => "transactions",
        }
    }
}

/// A set of properties of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// Waits for all earlier commands of its connection; later ones do not wait for it.
    pub const ALONE: Self = Self(1);
    /// Clients that have not authenticated may run it.
    pub const NO_AUTH: Self = Self(1 << 1);
    /// Runs at once even after MULTI.
    pub const NEVER_QUEUED: Self = Self(1 << 2);
    /// Allowed in transactions, although it has no keys.
    pub const IN_MULTI: Self = Self(1 << 3);
    /// Not allowed in transactions, because it is a transaction itself.
    pub const NOT_IN_MULTI: Self = Self(1 << 4);
    /// Allowed while a RESP2 connection has subscriptions.
    pub const WHILE_SUBSCRIBED: Self = Self(1 << 5);
    /// Allowed in scripts, although it has no keys.
    pub const IN_SCRIPT: Self = Self(1 << 6);
    /// Not allowed in scripts, because its reply is random.
    pub const NOT_IN_SCRIPT: Self = Self(1 << 7);
    /// A pause of writes holds it back, although its kind is not a write.
    pub const MAY_WRITE: Self = Self(1 << 8);
    /// No pause holds it back, so that it can end a pause.
    pub const NOT_PAUSED: Self = Self(1 << 9);
    /// Its arguments are channels.
    pub const CHANNELS: Self = Self(1 << 10);
    /// Its arguments are patterns of channels.
    pub const PATTERNS: Self = Self(1 << 11);
    /// Not shown by MONITOR.
    pub const NOT_MONITORED: Self = Self(1 << 12);

    pub const fn of(all: &[Self]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < all.len() {
            bits |= all[at].0;
            at += 1;
        }
        Self(bits)
    }

    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

impl Command {
    /// Whether the command accepts this number of arguments, including the name.
    pub fn takes(&self, arguments: usize) -> bool {
        let count = arguments as i32;
        if self.arity >= 0 { count == self.arity } else { count >= -self.arity }
    }

    /// Whether a pause of writes holds it back.
    pub fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Flush | Kind::Publish) || self.flags.has(Flags::MAY_WRITE)
    }

    /// Whether it may change keys, itself or through the script that it runs.
    pub fn changes_keys(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Flush | Kind::Script)
    }

    /// Whether a transaction may contain it.
    pub fn is_allowed_in_multi(&self) -> bool {
        let is_step = matches!(self.kind, Kind::Read | Kind::Write | Kind::Script | Kind::Publish);
        (is_step && !self.flags.has(Flags::NOT_IN_MULTI)) || self.flags.has(Flags::IN_MULTI)
    }

    /// Whether scripts may call it, on declared keys or on a channel.
    pub fn is_script_step(&self) -> bool {
        let is_step = matches!(self.kind, Kind::Read | Kind::Write | Kind::Publish);
        is_step && !self.flags.has(Flags::NOT_IN_SCRIPT)
    }

    /// Which arguments are channels or patterns, on which the user needs a permission, and whether
    /// they are patterns.
    pub fn channel_indexes(&self, arguments: usize) -> (Range<usize>, bool) {
        match self.kind {
            _ if self.flags.has(Flags::PATTERNS) => (1..arguments, true),
            Kind::Publish => (1..2, false),
            _ if self.flags.has(Flags::CHANNELS) => (1..arguments, false),
            _ => (0..0, false),
        }
    }

    /// Which of `arguments` arguments, including the name, are keys.
    pub fn key_indexes<'a>(
        &self,
        arguments: usize,
        argument: &dyn Fn(usize) -> &'a [u8],
    ) -> impl Iterator<Item = usize> + use<> {
        if self.kind == Kind::Script {
            let count = parse_integer(argument(2)).and_then(|count| usize::try_from(count).ok());
            return (3..count.unwrap_or(0).saturating_add(3).min(arguments)).step_by(1);
        }
        let KeySpec { first, last, step } = self.keys;
        let last = if last < 0 { arguments as i32 + last } else { last };
        (first.max(1)..(last as usize + 1).min(arguments)).step_by(step.max(1))
    }

    /// Whether its first argument is its only key.
    pub fn has_one_key(&self) -> bool {
        self.keys == KeySpec::ONE
    }

    pub fn has_keys(&self) -> bool {
        self.keys != KeySpec::NONE
    }
}
