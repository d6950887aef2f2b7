//! The table of commands.

use crate::error::CommandError;
use crate::handlers::{
    acl, authentication, bits, clients, connection, expiry, hashes, information, keys, moving, numbers,
    objects, publishing, scripts, server, settings, slow_log, strings, transactions,
};
use crate::other_types;
use crate::parser::Arguments;
use crate::plan::Handler;
use crate::security::{Refusal, SUBJECTS, Subject, User};

/// One command.
#[derive(Debug)]
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// Arguments with the name; at least so many if negative (as Redis counts).
    pub(crate) arity: i32,
    /// What it is, to others on the same keys and for `COMMAND`.
    pub(crate) kind: Kind,
    /// Number of the last argument that is a key (negative: from the end) and the step between keys; the first is [`Self::first_key`].
    pub(crate) keys: Option<(i32, i32)>,
    /// Waits for all earlier commands of its connection, and they do not wait for it.
    pub(crate) alone: bool,
    pub(crate) handler: Handler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Connection,
    /// Reads all keys: it waits for all earlier commands of its connection, and all later ones for it.
    Scan,
    /// Deletes all keys, and waits likewise.
    Flush,
    /// Begins or ends a transaction: it waits for all earlier commands of its connection, and all later ones for it.
    Transaction,
    /// Changes to what its connection listens: it waits for all earlier commands of its connection, and all later ones for it.
    Listen,
    /// Publishes something: it waits for earlier ones to the same channel.
    Publish,
    /// Runs a script; which of its arguments are keys the second one says.
    Script,
}

const ONE: Option<(i32, i32)> = Some((1, 1));
const TWO: Option<(i32, i32)> = Some((2, 1));
const ALL: Option<(i32, i32)> = Some((-1, 1));
const PAIRS: Option<(i32, i32)> = Some((-1, 2));

const fn on_keys(
    name: &'static str,
    arity: i32,
    kind: Kind,
    keys: Option<(i32, i32)>,
    handler: Handler,
) -> Command {
    Command { name, arity, kind, keys, alone: false, handler }
}

const fn read(name: &'static str, arity: i32, handler: Handler) -> Command {
    on_keys(name, arity, Kind::Read, ONE, handler)
}

const fn write(name: &'static str, arity: i32, handler: Handler) -> Command {
    on_keys(name, arity, Kind::Write, ONE, handler)
}

const fn other(name: &'static str, arity: i32, handler: Handler) -> Command {
    on_keys(name, arity, Kind::Connection, None, handler)
}

const fn alone(name: &'static str, arity: i32, handler: Handler) -> Command {
    Command { alone: true, ..other(name, arity, handler) }
}

const fn scan(name: &'static str, arity: i32, handler: Handler) -> Command {
    on_keys(name, arity, Kind::Scan, None, handler)
}

const fn transaction(name: &'static str, arity: i32, handler: Handler) -> Command {
    on_keys(name, arity, Kind::Transaction, None, handler)
}

const fn listen(name: &'static str, arity: i32, handler: Handler) -> Command {
    on_keys(name, arity, Kind::Listen, None, handler)
}

const fn script(name: &'static str, handler: Handler) -> Command {
    on_keys(name, -3, Kind::Script, None, handler)
}

const fn flush(name: &'static str, handler: Handler) -> Command {
    on_keys(name, -1, Kind::Flush, None, handler)
}

/// All commands, sorted by name.
pub(crate) static COMMANDS: &[Command] = &[
    other("acl", -2, acl::acl),
    write("append", 3, strings::append),
    other("auth", -2, authentication::auth),
    read("bitcount", -2, bits::bitcount),
    read("bitpos", -3, bits::bitpos),
    other("client", -2, clients::client),
    other("command", -1, server::command),
    other("config", -2, settings::config),
    on_keys("copy", -3, Kind::Write, TWO, moving::copy),
    scan("dbsize", 1, keys::dbsize),
    write("decr", 2, numbers::decr),
    write("decrby", 3, numbers::decrby),
    on_keys("del", -2, Kind::Write, ALL, strings::del),
    transaction("discard", 1, transactions::discard),
    read("dump", 2, objects::dump),
    other("echo", 2, connection::echo),
    script("eval", scripts::eval),
    script("eval_ro", scripts::eval_ro),
    script("evalsha", scripts::evalsha),
    script("evalsha_ro", scripts::evalsha_ro),
    transaction("exec", 1, transactions::exec),
    on_keys("exists", -2, Kind::Read, ALL, strings::exists),
    write("expire", -3, expiry::expire),
    write("expireat", -3, expiry::expireat),
    read("expiretime", 2, expiry::expiretime),
    flush("flushall", keys::flushall),
    flush("flushdb", keys::flushdb),
    read("get", 2, strings::get),
    read("getbit", 3, bits::getbit),
    write("getdel", 2, strings::getdel),
    write("getex", -2, strings::getex),
    read("getrange", 4, strings::getrange),
    write("getset", 3, strings::getset),
    write("hdel", -3, hashes::hdel),
    alone("hello", -1, connection::hello),
    read("hexists", 3, hashes::hexists),
    read("hget", 3, hashes::hget),
    read("hgetall", 2, hashes::hgetall),
    write("hincrby", 4, hashes::hincrby),
    write("hincrbyfloat", 4, hashes::hincrbyfloat),
    read("hkeys", 2, hashes::hkeys),
    read("hlen", 2, hashes::hlen),
    read("hmget", -3, hashes::hmget),
    write("hmset", -4, hashes::hmset),
    read("hrandfield", -2, hashes::hrandfield),
    read("hscan", -3, hashes::hscan),
    write("hset", -4, hashes::hset),
    write("hsetnx", 4, hashes::hsetnx),
    read("hstrlen", 3, hashes::hstrlen),
    read("hvals", 2, hashes::hvals),
    write("incr", 2, numbers::incr),
    write("incrby", 3, numbers::incrby),
    write("incrbyfloat", 3, numbers::incrbyfloat),
    other("info", -1, information::info),
    scan("keys", 2, keys::keys),
    on_keys("lcs", -3, Kind::Read, TWO, strings::lcs),
    on_keys("memory", -2, Kind::Read, TWO, objects::memory),
    on_keys("mget", -2, Kind::Read, ALL, strings::mget),
    other("monitor", 1, clients::monitor),
    on_keys("mset", -3, Kind::Write, PAIRS, strings::mset),
    on_keys("msetnx", -3, Kind::Write, PAIRS, strings::msetnx),
    transaction("multi", 1, transactions::multi),
    on_keys("object", -2, Kind::Read, TWO, objects::object),
    write("persist", 2, expiry::persist),
    write("pexpire", -3, expiry::pexpire),
    write("pexpireat", -3, expiry::pexpireat),
    read("pexpiretime", 2, expiry::pexpiretime),
    other("ping", -1, connection::ping),
    write("psetex", 4, strings::psetex),
    listen("psubscribe", -2, publishing::psubscribe),
    read("pttl", 2, expiry::pttl),
    on_keys("publish", 3, Kind::Publish, None, publishing::publish),
    other("pubsub", -2, publishing::pubsub),
    listen("punsubscribe", -1, publishing::punsubscribe),
    alone("quit", -1, connection::quit),
    scan("randomkey", 1, keys::randomkey),
    on_keys("rename", 3, Kind::Write, TWO, moving::rename),
    on_keys("renamenx", 3, Kind::Write, TWO, moving::renamenx),
    alone("reset", 1, connection::reset),
    write("restore", -4, objects::restore),
    other("role", 1, server::role),
    scan("scan", -2, keys::scan),
    other("script", -2, scripts::script),
    other("select", 2, connection::select),
    write("set", -3, strings::set),
    write("setbit", 4, bits::setbit),
    write("setex", 4, strings::setex),
    write("setnx", 3, strings::setnx),
    write("setrange", 4, strings::setrange),
    other("slowlog", -2, slow_log::slowlog),
    read("strlen", 2, strings::strlen),
    listen("subscribe", -2, publishing::subscribe),
    read("substr", 4, strings::getrange),
    other("time", 1, server::time),
    on_keys("touch", -2, Kind::Read, ALL, strings::exists),
    read("ttl", 2, expiry::ttl),
    read("type", 2, strings::key_type),
    on_keys("unlink", -2, Kind::Write, ALL, strings::del),
    listen("unsubscribe", -1, publishing::unsubscribe),
    transaction("unwatch", 1, transactions::unwatch),
    on_keys("watch", -2, Kind::Transaction, ALL, transactions::watch),
];

/// Longest part of a request that an error quotes.
const QUOTED_BYTES_MAX: usize = 128;

impl Command {
    /// By name, in capitals or not.
    pub(crate) fn find(name: &[u8]) -> Option<&'static Self> {
        let mut lower = [0; 16];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let at = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
        Some(&COMMANDS[at])
    }

    /// Its place in the table.
    pub(crate) fn number(&'static self) -> usize {
        (std::ptr::from_ref(self).addr() - COMMANDS.as_ptr().addr()) / size_of::<Self>()
    }

    /// The command that is called, if its number of arguments is right. `last`: the one before, which is often the same.
    pub(crate) fn resolve(
        arguments: Arguments<'_>,
        last: Option<&'static Self>,
    ) -> Result<&'static Self, CommandError> {
        let name = arguments.prefix(0);
        let again = last.filter(|command| command.name.as_bytes().eq_ignore_ascii_case(name));
        let command = again.or_else(|| Self::find(name)).ok_or_else(|| unknown(arguments))?;
        if command.takes(arguments.count()) { Ok(command) } else { Err(CommandError::arity(command.name)) }
    }

    /// Whether it may have so many arguments, its name included.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let count = arguments as i32;
        if self.arity >= 0 { count == self.arity } else { count >= -self.arity }
    }

    /// What a user is to be allowed beside its keys: the number of the subject, and whether GET is one of the options.
    pub(crate) fn asks(&'static self, arguments: Arguments<'_>) -> (usize, bool) {
        self.asks_of(arguments.count(), &|index| arguments.prefix(index))
    }

    /// The same of arguments that are so many, the name included.
    pub(crate) fn asks_of<'a>(
        &'static self,
        count: usize,
        argument: &dyn Fn(usize) -> &'a [u8],
    ) -> (usize, bool) {
        let subject = Subject::of_call(self.number(), (count > 1).then(|| argument(1)));
        (subject, (3..count).any(|index| argument(index).eq_ignore_ascii_case(b"get")))
    }

    /// Refuses what a user may not do: the command, its keys and its channels. Its arguments are so many, the name included.
    pub(crate) fn check<'a>(
        &'static self,
        user: &User,
        count: usize,
        argument: &dyn Fn(usize) -> &'a [u8],
    ) -> Result<(), Refusal<'a>> {
        let (subject, has_get) = self.asks_of(count, argument);
        user.check(subject, self.key_indexes(count, argument).map(argument), has_get)?;
        let (channels, is_pattern) = self.channel_indexes(count);
        let forbidden = channels.map(argument).find(|channel| !user.may_channel(channel, is_pattern));
        forbidden.map_or(Ok(()), |channel| Err(Refusal::Channel(channel)))
    }

    /// Whether its first argument says what it does.
    pub(crate) fn has_subcommands(&'static self) -> bool {
        SUBJECTS.iter().any(|subject| subject.is_of(&SUBJECTS[self.number()]))
    }

    /// Whether it is called although MULTI has begun, and not queued.
    pub(crate) fn is_called_at_once(&self) -> bool {
        matches!(self.name, "multi" | "exec" | "discard" | "watch" | "quit" | "reset")
    }

    /// Whether it waits while what writes is paused.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Flush | Kind::Publish) || self.name == "exec"
    }

    /// Whether it may change keys, by itself or by what it runs.
    pub(crate) fn changes_keys(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Flush | Kind::Script)
    }

    /// Whether a transaction may have it.
    pub(crate) fn check_queued(&self) -> Result<(), CommandError> {
        // These are transactions themselves, which are not executed as parts of one.
        let is_one = ["msetnx", "rename", "renamenx", "copy"].contains(&self.name);
        let is_plain =
            matches!(self.kind, Kind::Read | Kind::Write | Kind::Script | Kind::Publish) && !is_one;
        if is_plain || ["ping", "echo", "info", "command", "unwatch"].contains(&self.name) {
            return Ok(());
        }
        let name = self.name.to_ascii_uppercase();
        Err(CommandError::text(format!("ERR {name} is not allowed in transactions")))
    }

    /// Numbers of the arguments that are channels or patterns, which a user may not have a right to; and whether they are patterns.
    pub(crate) fn channel_indexes(&self, arguments: usize) -> (std::ops::Range<usize>, bool) {
        match self.name {
            "publish" => (1..2, false),
            "subscribe" => (1..arguments, false),
            "psubscribe" => (1..arguments, true),
            _ => (0..0, false),
        }
    }

    /// Whether a connection that listens may run it by RESP2.
    pub(crate) fn is_for_listeners(&self) -> bool {
        self.kind == Kind::Listen || ["ping", "quit", "reset"].contains(&self.name)
    }

    /// Numbers of the arguments that are keys; there are so many, the name included.
    pub(crate) fn key_indexes<'a>(
        &self,
        arguments: usize,
        argument: &dyn Fn(usize) -> &'a [u8],
    ) -> impl Iterator<Item = usize> + use<> {
        if self.kind == Kind::Script {
            return scripts::key_indexes(arguments, argument(2)).step_by(1);
        }
        let (last, step) = self.keys.unwrap_or((0, 1));
        let last = if last < 0 { arguments as i32 + last } else { last };
        let end = (last as usize + 1).min(arguments);
        (self.first_key().max(1)..end).step_by(step as usize)
    }

    /// Whether its first argument is its only key.
    pub(crate) fn has_one_key(&self) -> bool {
        self.keys == ONE
    }

    /// Number of the first argument that is a key, if there is one.
    pub(crate) fn first_key(&self) -> usize {
        // Behind a subcommand.
        if ["memory", "object"].contains(&self.name) { 2 } else { usize::from(self.keys.is_some()) }
    }
}

fn unknown(arguments: Arguments<'_>) -> CommandError {
    let quoted = |bytes: &[u8], limit: usize| bytes[..bytes.len().min(limit)].to_vec();
    let mut text = b"ERR unknown command '".to_vec();
    text.extend(quoted(arguments.prefix(0), QUOTED_BYTES_MAX));
    text.extend(b"', with args beginning with: ");
    let mut quoted_bytes = 0;
    for index in 1..arguments.count() {
        if quoted_bytes >= QUOTED_BYTES_MAX {
            break;
        }
        let argument = quoted(arguments.prefix(index), QUOTED_BYTES_MAX - quoted_bytes);
        quoted_bytes += argument.len() + 3;
        text.push(b'\'');
        text.extend(argument);
        text.extend(b"' ");
    }
    if other_types::has(arguments.prefix(0)) {
        text.extend(
            b"(values are strings and hashes here: there are no lists, sets, sorted sets or streams)",
        );
    }
    CommandError::bytes(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{Categories, SUBJECTS, Uses};

    #[test]
    fn the_table_is_sorted_and_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        for (number, command) in COMMANDS.iter().enumerate() {
            assert_eq!(command.number(), number);
            let found = Command::find(command.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, command.name);
        }
        assert!(Command::find(b"no-such-command-at-all").is_none() && Command::find(b"").is_none());
    }

    #[test]
    fn users_may_be_allowed_each_of_them_and_they_are_what_they_do() {
        let commands = SUBJECTS.iter().take_while(|subject| !subject.name.contains('|'));
        assert!(commands.clone().map(|subject| subject.name).eq(COMMANDS.iter().map(|command| command.name)));
        for (command, subject) in COMMANDS.iter().zip(commands) {
            let is = |category| subject.categories.overlaps(category);
            let writes = matches!(command.kind, Kind::Write | Kind::Flush);
            assert_eq!(writes, is(Categories::WRITE), "{}", command.name);
            let reads = matches!(command.kind, Kind::Read | Kind::Scan);
            assert_eq!(reads, is(Categories::READ), "{}", command.name);
            assert_eq!(command.kind == Kind::Transaction, is(Categories::TRANSACTION), "{}", command.name);
            let has_keys = matches!(command.kind, Kind::Read | Kind::Write) || command.name == "watch";
            assert_eq!(command.keys.is_some(), has_keys, "{}", command.name);
            let has_keys = has_keys || command.kind == Kind::Script;
            assert_eq!(has_keys, subject.uses != Uses::Nothing, "{}", command.name);
        }
    }

    #[test]
    fn keys_are_where_redis_says() {
        let keys = |name: &str, arguments| -> Vec<usize> {
            Command::find(name.as_bytes()).unwrap().key_indexes(arguments, &|_| b"2").collect()
        };
        assert_eq!(keys("get", 2), [1]);
        assert_eq!(keys("set", 7), [1]);
        assert_eq!(keys("mget", 4), [1, 2, 3]);
        assert_eq!(keys("mset", 5), [1, 3]);
        assert_eq!(keys("ping", 2), [0; 0]);
        assert_eq!(keys("eval", 7), [3, 4]);
        assert_eq!(keys("eval", 4), [3]);
    }

    #[test]
    fn the_document_lists_each_of_them_and_no_other() {
        let document = include_str!("../../../../docs/COMMANDS.md");
        let section = document.split("\n## ").find(|section| section.starts_with("What is there")).unwrap();
        let second = section.lines().filter_map(|line| line.split('|').nth(2));
        let mut listed: Vec<_> = second.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        listed.sort_unstable();
        let mut there: Vec<_> = COMMANDS.iter().map(|command| command.name.to_ascii_uppercase()).collect();
        there.sort_unstable();
        assert_eq!(listed, there);
    }
}
