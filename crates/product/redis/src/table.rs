//! The command table. Dispatch, access control, `COMMAND`, the redaction of logs and
//! docs/COMMANDS.md are all derived from it.
//!
//! A row is: name, arity, kind, keys and how they are accessed, flags, arguments that are secret,
//! handler; ACL categories as in Redis, group, the version of Redis that introduced the command,
//! summary. Handlers are only named here and bound in `dispatch`, so that this module does not
//! depend on them.

use crate::categories::Categories;
use crate::command::{Command, Flags, Group, KeyAccess, KeySpec, Kind, Secrets, Subject};
use crate::error::CommandError;
use crate::resp::Arguments;
use crate::unsupported;
use alloc::vec::Vec;

/// Calls `$callback` with all rows, sorted by name, and with all subcommands.
#[rustfmt::skip]
macro_rules! for_each_command {
    ($callback:ident) => {
        $callback! {
            "acl" -2, Connection, NONE None, [] secret AclRules => acl::acl,
                [SLOW], Server "6.0.0" "Manage users";
            "append" 3, Write, ONE Write, [] => strings::append,
                [WRITE STRING FAST], String "2.0.0" "Append a value to a key";
            "auth" -2, Connection, NONE None, [NO_AUTH] secret All => authentication::auth,
                [FAST CONNECTION], Connection "1.0.0" "Authenticate to the server";
            "bitcount" -2, Read, ONE Read, [] => bits::bitcount,
                [READ BITMAP SLOW], Bitmap "2.6.0" "Count set bits in a string";
            "bitpos" -3, Read, ONE Read, [] => bits::bitpos,
                [READ BITMAP SLOW], Bitmap "2.8.7" "Find first bit set or clear in a string";
            "client" -2, Connection, NONE None, [NOT_PAUSED] => clients::client,
                [SLOW], Connection "2.4.0" "Manage client connections";
            "command" -1, Connection, NONE None, [IN_MULTI] => server::command,
                [SLOW CONNECTION], Server "2.8.13" "Describe commands";
            "config" -2, Connection, NONE None, [] => settings::config,
                [SLOW], Server "2.0.0" "Read and change parameters";
            "copy" -3, Write, TWO ReadWrite, [NOT_IN_MULTI] => rename::copy,
                [KEYSPACE WRITE SLOW], Generic "6.2.0" "Copy a key";
            "dbsize" 1, Scan, NONE None, [] => keys::dbsize,
                [KEYSPACE READ FAST], Server "1.0.0"
                "Return the number of keys in the selected database";
            "decr" 2, Write, ONE ReadWrite, [] => numbers::decr,
                [WRITE STRING FAST], String "1.0.0" "Decrement the integer value of a key by one";
            "decrby" 3, Write, ONE ReadWrite, [] => numbers::decrby,
                [WRITE STRING FAST], String "1.0.0"
                "Decrement the integer value of a key by the given number";
            "del" -2, Write, ALL Write, [] => strings::del,
                [KEYSPACE WRITE SLOW], Generic "1.0.0" "Delete a key";
            "discard" 1, Transaction, NONE None, [NEVER_QUEUED] => transactions::discard,
                [FAST TRANSACTION], Transactions "2.0.0" "Discard all commands issued after MULTI";
            "dump" 2, Read, ONE Read, [] => objects::dump,
                [KEYSPACE READ SLOW], Generic "2.6.0"
                "Return a serialized version of the value of a key";
            "echo" 2, Connection, NONE None, [IN_MULTI IN_SCRIPT] => connection::echo,
                [FAST CONNECTION], Connection "1.0.0" "Echo the given string";
            "eval" -3, Script, NONE ReadWrite, [] => scripts::eval,
                [SLOW SCRIPTING], Scripting "2.6.0" "Execute a Lua script server side";
            "eval_ro" -3, Script, NONE Read, [] => scripts::eval_ro,
                [SLOW SCRIPTING], Scripting "7.0.0" "Execute a read-only Lua script server side";
            "evalsha" -3, Script, NONE ReadWrite, [] => scripts::evalsha,
                [SLOW SCRIPTING], Scripting "2.6.0" "Execute a Lua script server side";
            "evalsha_ro" -3, Script, NONE Read, [] => scripts::evalsha_ro,
                [SLOW SCRIPTING], Scripting "7.0.0" "Execute a read-only Lua script server side";
            "exec" 1, Transaction, NONE None, [NEVER_QUEUED MAY_WRITE] => transactions::exec,
                [SLOW TRANSACTION], Transactions "1.2.0" "Execute all commands issued after MULTI";
            "exists" -2, Read, ALL Metadata, [] => strings::exists,
                [KEYSPACE READ FAST], Generic "1.0.0" "Determine if a key exists";
            "expire" -3, Write, ONE Write, [] => expiry::expire,
                [KEYSPACE WRITE FAST], Generic "1.0.0" "Set a key's time to live in seconds";
            "expireat" -3, Write, ONE Write, [] => expiry::expireat,
                [KEYSPACE WRITE FAST], Generic "1.2.0"
                "Set the expiration for a key as a UNIX timestamp";
            "expiretime" 2, Read, ONE Read, [] => expiry::expiretime,
                [KEYSPACE READ FAST], Generic "7.0.0" "Get the expiration Unix timestamp for a key";
            "flushall" -1, Flush, NONE None, [] => keys::flushall,
                [KEYSPACE WRITE SLOW DANGEROUS], Server "1.0.0"
                "Remove all keys from all databases";
            "flushdb" -1, Flush, NONE None, [] => keys::flushdb,
                [KEYSPACE WRITE SLOW DANGEROUS], Server "1.0.0"
                "Remove all keys from the current database";
            "get" 2, Read, ONE Read, [] => strings::get,
                [READ STRING FAST], String "1.0.0" "Get the value of a key";
            "getbit" 3, Read, ONE Read, [] => bits::getbit,
                [READ BITMAP FAST], Bitmap "2.2.0" "Return a bit of the value of a key";
            "getdel" 2, Write, ONE ReadWrite, [] => strings::getdel,
                [WRITE STRING FAST], String "6.2.0" "Get the value of a key and delete the key";
            "getex" -2, Write, ONE ReadWrite, [] => strings::getex,
                [WRITE STRING FAST], String "6.2.0"
                "Get the value of a key and optionally set its expiration";
            "getrange" 4, Read, ONE Read, [] => strings::getrange,
                [READ STRING SLOW], String "2.4.0" "Get a substring of the string stored at a key";
            "getset" 3, Write, ONE ReadWrite, [] => strings::getset,
                [WRITE STRING FAST], String "1.0.0"
                "Set the string value of a key and return its old value";
            "hdel" -3, Write, ONE Write, [] => hashes::hdel,
                [WRITE HASH FAST], Hash "2.0.0" "Delete one or more hash fields";
            "hello" -1, Connection, NONE None, [ALONE NO_AUTH] secret HelloPassword => connection::hello,
                [FAST CONNECTION], Connection "6.0.0" "Handshake with Redis";
            "hexists" 3, Read, ONE Metadata, [] => hashes::hexists,
                [READ HASH FAST], Hash "2.0.0" "Determine if a hash field exists";
            "hget" 3, Read, ONE Read, [] => hashes::hget,
                [READ HASH FAST], Hash "2.0.0" "Get the value of a hash field";
            "hgetall" 2, Read, ONE Read, [] => hashes::hgetall,
                [READ HASH SLOW], Hash "2.0.0" "Get all the fields and values in a hash";
            "hincrby" 4, Write, ONE ReadWrite, [] => hashes::hincrby,
                [WRITE HASH FAST], Hash "2.0.0"
                "Increment the integer value of a hash field by the given number";
            "hincrbyfloat" 4, Write, ONE ReadWrite, [] => hashes::hincrbyfloat,
                [WRITE HASH FAST], Hash "2.6.0"
                "Increment the float value of a hash field by the given amount";
            "hkeys" 2, Read, ONE Read, [] => hashes::hkeys,
                [READ HASH SLOW], Hash "2.0.0" "Get all the fields in a hash";
            "hlen" 2, Read, ONE Metadata, [] => hashes::hlen,
                [READ HASH FAST], Hash "2.0.0" "Get the number of fields in a hash";
            "hmget" -3, Read, ONE Read, [] => hashes::hmget,
                [READ HASH FAST], Hash "2.0.0" "Get the values of all the given hash fields";
            "hmset" -4, Write, ONE Write, [] => hashes::hmset,
                [WRITE HASH FAST], Hash "2.0.0" "Set multiple hash fields to multiple values";
            "hrandfield" -2, Read, ONE Read, [NOT_IN_SCRIPT] => hashes::hrandfield,
                [READ HASH SLOW], Hash "6.2.0" "Get one or multiple random fields from a hash";
            "hscan" -3, Read, ONE Read, [] => hashes::hscan,
                [READ HASH SLOW], Hash "2.8.0"
                "Incrementally iterate hash fields and associated values";
            "hset" -4, Write, ONE Write, [] => hashes::hset,
                [WRITE HASH FAST], Hash "2.0.0" "Set the string value of a hash field";
            "hsetnx" 4, Write, ONE Write, [] => hashes::hsetnx,
                [WRITE HASH FAST], Hash "2.0.0"
                "Set the value of a hash field, only if the field does not exist";
            "hstrlen" 3, Read, ONE Metadata, [] => hashes::hstrlen,
                [READ HASH FAST], Hash "3.2.0" "Get the length of the value of a hash field";
            "hvals" 2, Read, ONE Read, [] => hashes::hvals,
                [READ HASH SLOW], Hash "2.0.0" "Get all the values in a hash";
            "incr" 2, Write, ONE ReadWrite, [] => numbers::incr,
                [WRITE STRING FAST], String "1.0.0" "Increment the integer value of a key by one";
            "incrby" 3, Write, ONE ReadWrite, [] => numbers::incrby,
                [WRITE STRING FAST], String "1.0.0"
                "Increment the integer value of a key by the given amount";
            "incrbyfloat" 3, Write, ONE ReadWrite, [] => numbers::incrbyfloat,
                [WRITE STRING FAST], String "2.6.0"
                "Increment the float value of a key by the given amount";
            "info" -1, Connection, NONE None, [IN_MULTI] => information::info,
                [SLOW DANGEROUS], Server "1.0.0" "Get information and statistics about the server";
            "keys" 2, Scan, NONE None, [] => keys::keys,
                [KEYSPACE READ SLOW DANGEROUS], Generic "1.0.0"
                "Find all keys matching the given pattern";
            "lcs" -3, Read, TWO Read, [] => strings::lcs,
                [READ STRING SLOW], String "7.0.0" "Find the longest common subsequence";
            "memory" -2, Read, SECOND Metadata, [] => objects::memory,
                [READ SLOW], Server "4.0.0" "Report the memory of a key";
            "mget" -2, Read, ALL Read, [] => strings::mget,
                [READ STRING FAST], String "1.0.0" "Get the values of all the given keys";
            "monitor" 1, Connection, NONE None, [NOT_MONITORED] => clients::monitor,
                [ADMIN SLOW DANGEROUS], Server "1.0.0"
                "Listen for all requests received by the server in real time";
            "mset" -3, Write, PAIRS Write, [] => strings::mset,
                [WRITE STRING SLOW], String "1.0.1" "Set multiple keys to multiple values";
            "msetnx" -3, Write, PAIRS Write, [NOT_IN_MULTI] => strings::msetnx,
                [WRITE STRING SLOW], String "1.0.1"
                "Set multiple keys to multiple values, only if none of the keys exist";
            "multi" 1, Transaction, NONE None, [NEVER_QUEUED] => transactions::multi,
                [FAST TRANSACTION], Transactions "1.2.0" "Mark the start of a transaction block";
            "object" -2, Read, SECOND Metadata, [] => objects::object,
                [KEYSPACE READ SLOW], Generic "2.2.3" "Inspect the value of a key";
            "persist" 2, Write, ONE Write, [] => expiry::persist,
                [KEYSPACE WRITE FAST], Generic "2.2.0" "Remove the expiration from a key";
            "pexpire" -3, Write, ONE Write, [] => expiry::pexpire,
                [KEYSPACE WRITE FAST], Generic "2.6.0" "Set a key's time to live in milliseconds";
            "pexpireat" -3, Write, ONE Write, [] => expiry::pexpireat,
                [KEYSPACE WRITE FAST], Generic "2.6.0"
                "Set the expiration for a key as a UNIX timestamp in milliseconds";
            "pexpiretime" 2, Read, ONE Read, [] => expiry::pexpiretime,
                [KEYSPACE READ FAST], Generic "7.0.0"
                "Get the expiration Unix timestamp for a key in milliseconds";
            "ping" -1, Connection, NONE None, [IN_MULTI WHILE_SUBSCRIBED IN_SCRIPT] => connection::ping,
                [FAST CONNECTION], Connection "1.0.0" "Ping the server";
            "psetex" 4, Write, ONE Write, [] => strings::psetex,
                [WRITE STRING SLOW], String "2.6.0"
                "Set the value and expiration in milliseconds of a key";
            "psubscribe" -2, Subscription, NONE None, [WHILE_SUBSCRIBED PATTERNS] => publishing::psubscribe,
                [PUBSUB SLOW], PubSub "2.0.0"
                "Listen for messages of channels that match the given patterns";
            "pttl" 2, Read, ONE Read, [] => expiry::pttl,
                [KEYSPACE READ FAST], Generic "2.6.0"
                "Get the time to live for a key in milliseconds";
            "publish" 3, Publish, NONE None, [CHANNELS] => publishing::publish,
                [PUBSUB FAST], PubSub "2.0.0" "Post a message to a channel";
            "pubsub" -2, Connection, NONE None, [] => publishing::pubsub,
                [SLOW], PubSub "2.8.0" "Inspect channels and patterns";
            "punsubscribe" -1, Subscription, NONE None, [WHILE_SUBSCRIBED] => publishing::punsubscribe,
                [PUBSUB SLOW], PubSub "2.0.0"
                "Stop listening for messages of channels that match the given patterns";
            "quit" -1, Connection, NONE None, [ALONE NO_AUTH NEVER_QUEUED WHILE_SUBSCRIBED] => connection::quit,
                [FAST CONNECTION], Connection "1.0.0" "Close the connection";
            "randomkey" 1, Scan, NONE None, [] => keys::randomkey,
                [KEYSPACE READ SLOW], Generic "1.0.0" "Return a random key from the keyspace";
            "rename" 3, Write, TWO ReadWrite, [NOT_IN_MULTI] => rename::rename,
                [KEYSPACE WRITE SLOW], Generic "1.0.0" "Rename a key";
            "renamenx" 3, Write, TWO ReadWrite, [NOT_IN_MULTI] => rename::renamenx,
                [KEYSPACE WRITE FAST], Generic "1.0.0"
                "Rename a key, only if the new key does not exist";
            "reset" 1, Connection, NONE None, [ALONE NO_AUTH NEVER_QUEUED WHILE_SUBSCRIBED] => connection::reset,
                [FAST CONNECTION], Connection "6.2.0" "Reset the connection";
            "restore" -4, Write, ONE Write, [] => objects::restore,
                [KEYSPACE WRITE SLOW DANGEROUS], Generic "2.6.0"
                "Create a key from a serialized value";
            "role" 1, Connection, NONE None, [] => server::role,
                [ADMIN FAST DANGEROUS], Server "2.8.12"
                "Return the role of the instance in the context of replication";
            "scan" -2, Scan, NONE None, [] => keys::scan,
                [KEYSPACE READ SLOW], Generic "2.8.0" "Incrementally iterate the keys space";
            "script" -2, Connection, NONE None, [] => scripts::script,
                [SLOW], Scripting "2.6.0" "Manage cached scripts";
            "select" 2, Connection, NONE None, [] => connection::select,
                [FAST CONNECTION], Connection "1.0.0"
                "Change the selected database for the current connection";
            "set" -3, Write, ONE WriteAndReadIfGet, [] => strings::set,
                [WRITE STRING SLOW], String "1.0.0" "Set the string value of a key";
            "setbit" 4, Write, ONE ReadWrite, [] => bits::setbit,
                [WRITE BITMAP SLOW], Bitmap "2.2.0" "Set or clear a bit of the value of a key";
            "setex" 4, Write, ONE Write, [] => strings::setex,
                [WRITE STRING SLOW], String "2.0.0" "Set the value and expiration of a key";
            "setnx" 3, Write, ONE Write, [] => strings::setnx,
                [WRITE STRING FAST], String "1.0.0"
                "Set the value of a key, only if the key does not exist";
            "setrange" 4, Write, ONE Write, [] => strings::setrange,
                [WRITE STRING SLOW], String "2.2.0"
                "Overwrite part of a string at key starting at the specified offset";
            "slowlog" -2, Connection, NONE None, [] => slow_log::slowlog,
                [SLOW], Server "2.2.12" "Read the log of slow commands";
            "strlen" 2, Read, ONE Metadata, [] => strings::strlen,
                [READ STRING FAST], String "2.2.0" "Get the length of the value stored in a key";
            "subscribe" -2, Subscription, NONE None, [WHILE_SUBSCRIBED CHANNELS] => publishing::subscribe,
                [PUBSUB SLOW], PubSub "2.0.0" "Listen for messages published to the given channels";
            "substr" 4, Read, ONE Read, [] => strings::getrange,
                [READ STRING SLOW], String "1.0.0" "Get a substring of the string stored at a key";
            "time" 1, Connection, NONE None, [IN_SCRIPT] => server::time,
                [FAST], Server "2.6.0" "Return the current server time";
            "touch" -2, Read, ALL Metadata, [] => strings::exists,
                [KEYSPACE READ FAST], Generic "3.2.1" "Count existing keys";
            "ttl" 2, Read, ONE Read, [] => expiry::ttl,
                [KEYSPACE READ FAST], Generic "1.0.0" "Get the time to live for a key in seconds";
            "type" 2, Read, ONE Metadata, [] => strings::key_type,
                [KEYSPACE READ FAST], Generic "1.0.0" "Determine the type stored at key";
            "unlink" -2, Write, ALL Write, [] => strings::del,
                [KEYSPACE WRITE FAST], Generic "4.0.0" "Delete a key";
            "unsubscribe" -1, Subscription, NONE None, [WHILE_SUBSCRIBED] => publishing::unsubscribe,
                [PUBSUB SLOW], PubSub "2.0.0"
                "Stop listening for messages posted to the given channels";
            "unwatch" 1, Transaction, NONE None, [IN_MULTI] => transactions::unwatch,
                [FAST TRANSACTION], Transactions "2.2.0" "Forget about all watched keys";
            "watch" -2, Transaction, ALL Metadata, [NEVER_QUEUED] => transactions::watch,
                [FAST TRANSACTION], Transactions "2.2.0"
                "Watch the given keys to determine execution of the MULTI/EXEC block";
            subcommands:
            "acl|cat" None, [SLOW];
            "acl|deluser" None, [ADMIN SLOW DANGEROUS];
            "acl|dryrun" None, [ADMIN SLOW DANGEROUS];
            "acl|genpass" None, [SLOW];
            "acl|getuser" None, [ADMIN SLOW DANGEROUS];
            "acl|help" None, [SLOW];
            "acl|list" None, [ADMIN SLOW DANGEROUS];
            "acl|load" None, [ADMIN SLOW DANGEROUS];
            "acl|log" None, [ADMIN SLOW DANGEROUS];
            "acl|setuser" None, [ADMIN SLOW DANGEROUS];
            "acl|users" None, [ADMIN SLOW DANGEROUS];
            "acl|whoami" None, [SLOW];
            "client|getname" None, [SLOW CONNECTION];
            "client|help" None, [SLOW CONNECTION];
            "client|id" None, [SLOW CONNECTION];
            "client|info" None, [SLOW CONNECTION];
            "client|kill" None, [ADMIN SLOW DANGEROUS CONNECTION];
            "client|list" None, [ADMIN SLOW DANGEROUS CONNECTION];
            "client|no-evict" None, [ADMIN SLOW DANGEROUS CONNECTION];
            "client|no-touch" None, [SLOW CONNECTION];
            "client|pause" None, [ADMIN SLOW DANGEROUS CONNECTION];
            "client|reply" None, [SLOW CONNECTION];
            "client|setinfo" None, [SLOW CONNECTION];
            "client|setname" None, [SLOW CONNECTION];
            "client|unpause" None, [ADMIN SLOW DANGEROUS CONNECTION];
            "command|count" None, [SLOW CONNECTION];
            "command|docs" None, [SLOW CONNECTION];
            "command|getkeys" None, [SLOW CONNECTION];
            "command|info" None, [SLOW CONNECTION];
            "command|list" None, [SLOW CONNECTION];
            "config|get" None, [ADMIN SLOW DANGEROUS];
            "config|help" None, [SLOW];
            "config|resetstat" None, [ADMIN SLOW DANGEROUS];
            "config|rewrite" None, [ADMIN SLOW DANGEROUS];
            "config|set" None, [ADMIN SLOW DANGEROUS];
            "memory|help" None, [SLOW];
            "memory|usage" Metadata, [READ SLOW];
            "object|encoding" Metadata, [KEYSPACE READ SLOW];
            "object|freq" Metadata, [KEYSPACE READ SLOW];
            "object|help" None, [KEYSPACE SLOW];
            "object|idletime" Metadata, [KEYSPACE READ SLOW];
            "object|refcount" Metadata, [KEYSPACE READ SLOW];
            "pubsub|channels" None, [PUBSUB SLOW];
            "pubsub|numpat" None, [PUBSUB SLOW];
            "pubsub|numsub" None, [PUBSUB SLOW];
            "script|exists" None, [SLOW SCRIPTING];
            "script|flush" None, [SLOW SCRIPTING];
            "script|help" None, [SLOW SCRIPTING];
            "script|kill" None, [SLOW SCRIPTING];
            "script|load" None, [SLOW SCRIPTING];
            "slowlog|get" None, [ADMIN SLOW DANGEROUS];
            "slowlog|help" None, [SLOW];
            "slowlog|len" None, [ADMIN SLOW DANGEROUS];
            "slowlog|reset" None, [ADMIN SLOW DANGEROUS];
        }
    };
}
pub(crate) use for_each_command;

macro_rules! tables {
    (
        $($name:literal $arity:literal, $kind:ident, $keys:ident $access:ident, [$($flag:ident)*]
            $(secret $secret:ident)? => $handler:path,
            [$($category:ident)*], $group:ident $since:literal $summary:literal;)*
        subcommands:
        $($subcommand:literal $sub_access:ident, [$($sub_category:ident)*];)*
    ) => {
        /// All commands, sorted by name.
        pub static COMMANDS: &[Command] = &numbered([$(
            Command {
                number: 0,
                name: $name,
                arity: $arity,
                kind: Kind::$kind,
                keys: KeySpec::$keys,
                flags: Flags::of(&[$(Flags::$flag),*]),
                secrets: [$(Secrets::$secret,)? Secrets::None][0],
                group: Group::$group,
                since: $since,
                summary: $summary,
            },
        )*]);

        /// The commands in the same order, followed by the subcommands.
        pub static SUBJECTS: &[Subject] = &[
            $(Subject {
                name: $name,
                categories: Categories::of(&[$(Categories::$category),*]),
                access: KeyAccess::$access,
                needs_no_login: Flags::of(&[$(Flags::$flag),*]).has(Flags::NO_AUTH),
            },)*
            $(Subject {
                name: $subcommand,
                categories: Categories::of(&[$(Categories::$sub_category),*]),
                access: KeyAccess::$sub_access,
                needs_no_login: false,
            },)*
        ];
    };
}

const fn numbered<const N: usize>(mut commands: [Command; N]) -> [Command; N] {
    let mut number = 0;
    while number < N {
        commands[number].number = number;
        number += 1;
    }
    commands
}

for_each_command!(tables);

/// Maximum bytes of a request that an error quotes.
const QUOTED_BYTES_MAX: usize = 128;

/// The command with this name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; 16];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let at = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
    Some(&COMMANDS[at])
}

/// The command that is called, if it accepts this number of arguments. `last`: the previous
/// command, which is often the same.
pub fn resolve(
    arguments: Arguments<'_>,
    last: Option<&'static Command>,
) -> Result<&'static Command, CommandError> {
    let name = arguments.prefix(0);
    let again = last.filter(|command| command.name.as_bytes().eq_ignore_ascii_case(name));
    let command = again.or_else(|| find(name)).ok_or_else(|| unknown(arguments))?;
    if command.takes(arguments.count()) { Ok(command) } else { Err(CommandError::arity(command.name)) }
}

fn unknown(arguments: Arguments<'_>) -> CommandError {
    let quoted = |bytes: &[u8], limit: usize| bytes[..bytes.len().min(limit)].to_vec();
    let mut text: Vec<u8> = b"ERR unknown command '".to_vec();
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
    if unsupported::is_on_other_types(arguments.prefix(0)) {
        text.extend(
            b"(values are strings and hashes here: there are no lists, sets, sorted sets or streams)",
        );
    }
    CommandError::bytes(text)
}

impl Subject {
    /// Number of the subject with this name, in upper or lower case.
    pub fn find(name: &[u8]) -> Option<usize> {
        SUBJECTS.iter().position(|subject| subject.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Number of the subject of a call: the subcommand if it is known, otherwise the command, whose
    /// permission is the wider one.
    pub fn of_call(command: usize, subcommand: Option<&[u8]>) -> usize {
        let Some(subcommand) = subcommand else { return command };
        let is_it = |subject: &Self| {
            let parts = subject.name.split_once('|');
            parts.is_some_and(|(before, after)| {
                before == SUBJECTS[command].name && after.as_bytes().eq_ignore_ascii_case(subcommand)
            })
        };
        SUBJECTS.iter().position(is_it).unwrap_or(command)
    }

    /// Whether this subject is a subcommand of `command`.
    pub fn is_of(&self, command: &Self) -> bool {
        self.name.split_once('|').is_some_and(|(before, _)| before == command.name)
    }
}

impl Command {
    /// Number of the subject of a call, and whether GET is one of its options.
    pub fn subject(&self, arguments: Arguments<'_>) -> (usize, bool) {
        self.subject_of(arguments.count(), &|index| arguments.prefix(index))
    }

    /// The same, with `count` arguments including the name.
    pub fn subject_of<'a>(&self, count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> (usize, bool) {
        let subject = Subject::of_call(self.number, (count > 1).then(|| argument(1)));
        (subject, (3..count).any(|index| argument(index).eq_ignore_ascii_case(b"get")))
    }

    /// Whether the subject of a call is in the category `admin`.
    pub fn is_administrative(&self, arguments: Arguments<'_>) -> bool {
        SUBJECTS[self.subject(arguments).0].categories.overlaps(Categories::ADMIN)
    }

    /// Whether the first argument is a subcommand.
    pub fn has_subcommands(&self) -> bool {
        SUBJECTS.iter().any(|subject| subject.is_of(&SUBJECTS[self.number]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        for (number, command) in COMMANDS.iter().enumerate() {
            assert_eq!((command.number, SUBJECTS[number].name), (number, command.name));
            let found = find(command.name.to_ascii_uppercase().as_bytes()).unwrap();
            assert_eq!(found.name, command.name);
        }
        assert!(find(b"no-such-command-at-all").is_none() && find(b"").is_none());
    }

    #[test]
    fn categories_and_key_access_agree_with_the_kind() {
        for (command, subject) in COMMANDS.iter().zip(SUBJECTS) {
            let is = |category| subject.categories.overlaps(category);
            let writes = matches!(command.kind, Kind::Write | Kind::Flush);
            assert_eq!(writes, is(Categories::WRITE), "{}", command.name);
            let reads = matches!(command.kind, Kind::Read | Kind::Scan);
            assert_eq!(reads, is(Categories::READ), "{}", command.name);
            assert_eq!(command.kind == Kind::Transaction, is(Categories::TRANSACTION), "{}", command.name);
            let has_keys = matches!(command.kind, Kind::Read | Kind::Write) || command.name == "watch";
            assert_eq!(command.has_keys(), has_keys, "{}", command.name);
            let has_keys = has_keys || command.kind == Kind::Script;
            assert_eq!(has_keys, subject.access != KeyAccess::None, "{}", command.name);
        }
    }

    #[test]
    fn subjects_are_fast_or_slow_and_their_names_unique() {
        for (place, subject) in SUBJECTS.iter().enumerate() {
            let is = |category| subject.categories.overlaps(category);
            assert!(is(Categories::FAST) != is(Categories::SLOW), "{}", subject.name);
            assert_eq!(Subject::find(subject.name.as_bytes()), Some(place));
        }
    }

    #[test]
    fn an_unknown_subcommand_needs_the_right_to_the_command() {
        let config = Subject::find(b"CONFIG").unwrap();
        let name = |subcommand: Option<&[u8]>| SUBJECTS[Subject::of_call(config, subcommand)].name;
        assert_eq!((name(None), name(Some(b"GeT"))), ("config", "config|get"));
        assert_eq!(name(Some(b"put")), "config");
        assert_eq!(Subject::find(b"config|put"), None);
        let get = Subject::find(b"get").unwrap();
        assert_eq!(SUBJECTS[Subject::of_call(get, Some(b"get"))].name, "get");
        assert!(SUBJECTS[Subject::find(b"config|get").unwrap()].is_of(&SUBJECTS[config]));
    }

    #[test]
    fn keys_are_where_redis_says() {
        let keys = |name: &str, arguments| -> Vec<usize> {
            find(name.as_bytes()).unwrap().key_indexes(arguments, &|_| b"2").collect()
        };
        assert_eq!(keys("get", 2), [1]);
        assert_eq!(keys("set", 7), [1]);
        assert_eq!(keys("mget", 4), [1, 2, 3]);
        assert_eq!(keys("mset", 5), [1, 3]);
        assert_eq!(keys("ping", 2), [0; 0]);
        assert_eq!(keys("object", 3), [2]);
        assert_eq!(keys("eval", 7), [3, 4]);
        assert_eq!(keys("eval", 4), [3]);
    }

    #[test]
    fn commands_on_other_types_are_not_in_the_table() {
        assert!(unsupported::ON_OTHER_TYPES.iter().all(|name| find(name.as_bytes()).is_none()));
    }

    #[test]
    fn docs_list_each_command() {
        let document = include_str!("../../../../docs/COMMANDS.md");
        let section = document.split("\n## ").find(|section| section.starts_with("What is there")).unwrap();
        let second = section.lines().filter_map(|line| line.split('|').nth(2));
        let mut listed: Vec<_> = second.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        listed.sort_unstable();
        let mut all: Vec<_> = COMMANDS.iter().map(|command| command.name.to_ascii_uppercase()).collect();
        all.sort_unstable();
        assert_eq!(listed, all);
    }
}
