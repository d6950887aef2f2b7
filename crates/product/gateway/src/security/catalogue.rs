//! What may be allowed to a user, or not: commands and subcommands, with the categories that they have in Redis.

use super::categories::Categories;

/// A command, or a subcommand as `config|get`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// In lower case.
    pub(crate) name: &'static str,
    pub(crate) categories: Categories,
    pub(crate) uses: Uses,
    /// Whoever is not logged in may run it, too.
    pub(crate) is_for_strangers: bool,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    /// It has none.
    Nothing,
    /// It shows no value: any right to the key will do.
    Looks,
    Reads,
    Writes,
    Both,
    /// It writes, and with GET reads, too.
    Set,
}

const fn subject(name: &'static str, categories: Categories, uses: Uses) -> Subject {
    Subject { name, categories, uses, is_for_strangers: false }
}

const fn for_strangers(name: &'static str, categories: Categories) -> Subject {
    Subject { is_for_strangers: true, ..subject(name, categories, Uses::Nothing) }
}

const KEYSPACE: Categories = Categories::KEYSPACE;
const READ: Categories = Categories::READ;
const WRITE: Categories = Categories::WRITE;
const STRING: Categories = Categories::STRING;
const HASH: Categories = Categories::HASH;
const BITMAP: Categories = Categories::BITMAP;
const PUBSUB: Categories = Categories::PUBSUB;
const ADMIN: Categories = Categories::ADMIN;
const FAST: Categories = Categories::FAST;
const SLOW: Categories = Categories::SLOW;
const DANGEROUS: Categories = Categories::DANGEROUS;
const CONNECTION: Categories = Categories::CONNECTION;
const TRANSACTION: Categories = Categories::TRANSACTION;
const SCRIPTING: Categories = Categories::SCRIPTING;
use Uses::{Both, Looks, Nothing, Reads, Set, Writes};

/// The commands, in the order of the table of commands, and then the subcommands.
pub(crate) static SUBJECTS: &[Subject] = &[
    subject("acl", SLOW, Nothing),
    subject("append", WRITE.and(STRING).and(FAST), Writes),
    for_strangers("auth", FAST.and(CONNECTION)),
    subject("bitcount", READ.and(BITMAP).and(SLOW), Reads),
    subject("bitpos", READ.and(BITMAP).and(SLOW), Reads),
    subject("client", SLOW, Nothing),
    subject("command", SLOW.and(CONNECTION), Nothing),
    subject("config", SLOW, Nothing),
    subject("copy", KEYSPACE.and(WRITE).and(SLOW), Both),
    subject("dbsize", KEYSPACE.and(READ).and(FAST), Nothing),
    subject("decr", WRITE.and(STRING).and(FAST), Both),
    subject("decrby", WRITE.and(STRING).and(FAST), Both),
    subject("del", KEYSPACE.and(WRITE).and(SLOW), Writes),
    subject("discard", FAST.and(TRANSACTION), Nothing),
    subject("dump", KEYSPACE.and(READ).and(SLOW), Reads),
    subject("echo", FAST.and(CONNECTION), Nothing),
    subject("eval", SLOW.and(SCRIPTING), Both),
    subject("eval_ro", SLOW.and(SCRIPTING), Reads),
    subject("evalsha", SLOW.and(SCRIPTING), Both),
    subject("evalsha_ro", SLOW.and(SCRIPTING), Reads),
    subject("exec", SLOW.and(TRANSACTION), Nothing),
    subject("exists", KEYSPACE.and(READ).and(FAST), Looks),
    subject("expire", KEYSPACE.and(WRITE).and(FAST), Writes),
    subject("expireat", KEYSPACE.and(WRITE).and(FAST), Writes),
    subject("expiretime", KEYSPACE.and(READ).and(FAST), Reads),
    subject("flushall", KEYSPACE.and(WRITE).and(SLOW).and(DANGEROUS), Nothing),
    subject("flushdb", KEYSPACE.and(WRITE).and(SLOW).and(DANGEROUS), Nothing),
    subject("get", READ.and(STRING).and(FAST), Reads),
    subject("getbit", READ.and(BITMAP).and(FAST), Reads),
    subject("getdel", WRITE.and(STRING).and(FAST), Both),
    subject("getex", WRITE.and(STRING).and(FAST), Both),
    subject("getrange", READ.and(STRING).and(SLOW), Reads),
    subject("getset", WRITE.and(STRING).and(FAST), Both),
    subject("hdel", WRITE.and(HASH).and(FAST), Writes),
    for_strangers("hello", FAST.and(CONNECTION)),
    subject("hexists", READ.and(HASH).and(FAST), Looks),
    subject("hget", READ.and(HASH).and(FAST), Reads),
    subject("hgetall", READ.and(HASH).and(SLOW), Reads),
    subject("hincrby", WRITE.and(HASH).and(FAST), Both),
    subject("hincrbyfloat", WRITE.and(HASH).and(FAST), Both),
    subject("hkeys", READ.and(HASH).and(SLOW), Reads),
    subject("hlen", READ.and(HASH).and(FAST), Looks),
    subject("hmget", READ.and(HASH).and(FAST), Reads),
    subject("hmset", WRITE.and(HASH).and(FAST), Writes),
    subject("hrandfield", READ.and(HASH).and(SLOW), Reads),
    subject("hscan", READ.and(HASH).and(SLOW), Reads),
    subject("hset", WRITE.and(HASH).and(FAST), Writes),
    subject("hsetnx", WRITE.and(HASH).and(FAST), Writes),
    subject("hstrlen", READ.and(HASH).and(FAST), Looks),
    subject("hvals", READ.and(HASH).and(SLOW), Reads),
    subject("incr", WRITE.and(STRING).and(FAST), Both),
    subject("incrby", WRITE.and(STRING).and(FAST), Both),
    subject("incrbyfloat", WRITE.and(STRING).and(FAST), Both),
    subject("info", SLOW.and(DANGEROUS), Nothing),
    subject("keys", KEYSPACE.and(READ).and(SLOW).and(DANGEROUS), Nothing),
    subject("lcs", READ.and(STRING).and(SLOW), Reads),
    subject("memory", READ.and(SLOW), Looks),
    subject("mget", READ.and(STRING).and(FAST), Reads),
    subject("monitor", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("mset", WRITE.and(STRING).and(SLOW), Writes),
    subject("msetnx", WRITE.and(STRING).and(SLOW), Writes),
    subject("multi", FAST.and(TRANSACTION), Nothing),
    subject("object", KEYSPACE.and(READ).and(SLOW), Looks),
    subject("persist", KEYSPACE.and(WRITE).and(FAST), Writes),
    subject("pexpire", KEYSPACE.and(WRITE).and(FAST), Writes),
    subject("pexpireat", KEYSPACE.and(WRITE).and(FAST), Writes),
    subject("pexpiretime", KEYSPACE.and(READ).and(FAST), Reads),
    subject("ping", FAST.and(CONNECTION), Nothing),
    subject("psetex", WRITE.and(STRING).and(SLOW), Writes),
    subject("psubscribe", PUBSUB.and(SLOW), Nothing),
    subject("pttl", KEYSPACE.and(READ).and(FAST), Reads),
    subject("publish", PUBSUB.and(FAST), Nothing),
    subject("pubsub", SLOW, Nothing),
    subject("punsubscribe", PUBSUB.and(SLOW), Nothing),
    for_strangers("quit", FAST.and(CONNECTION)),
    subject("randomkey", KEYSPACE.and(READ).and(SLOW), Nothing),
    subject("rename", KEYSPACE.and(WRITE).and(SLOW), Both),
    subject("renamenx", KEYSPACE.and(WRITE).and(FAST), Both),
    for_strangers("reset", FAST.and(CONNECTION)),
    subject("restore", KEYSPACE.and(WRITE).and(SLOW).and(DANGEROUS), Writes),
    subject("role", ADMIN.and(FAST).and(DANGEROUS), Nothing),
    subject("scan", KEYSPACE.and(READ).and(SLOW), Nothing),
    subject("script", SLOW, Nothing),
    subject("select", FAST.and(CONNECTION), Nothing),
    subject("set", WRITE.and(STRING).and(SLOW), Set),
    subject("setbit", WRITE.and(BITMAP).and(SLOW), Both),
    subject("setex", WRITE.and(STRING).and(SLOW), Writes),
    subject("setnx", WRITE.and(STRING).and(FAST), Writes),
    subject("setrange", WRITE.and(STRING).and(SLOW), Writes),
    subject("slowlog", SLOW, Nothing),
    subject("strlen", READ.and(STRING).and(FAST), Looks),
    subject("subscribe", PUBSUB.and(SLOW), Nothing),
    subject("substr", READ.and(STRING).and(SLOW), Reads),
    subject("time", FAST, Nothing),
    subject("touch", KEYSPACE.and(READ).and(FAST), Looks),
    subject("ttl", KEYSPACE.and(READ).and(FAST), Reads),
    subject("type", KEYSPACE.and(READ).and(FAST), Looks),
    subject("unlink", KEYSPACE.and(WRITE).and(FAST), Writes),
    subject("unsubscribe", PUBSUB.and(SLOW), Nothing),
    subject("unwatch", FAST.and(TRANSACTION), Nothing),
    subject("watch", FAST.and(TRANSACTION), Looks),
    subject("acl|cat", SLOW, Nothing),
    subject("acl|deluser", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|dryrun", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|genpass", SLOW, Nothing),
    subject("acl|getuser", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|help", SLOW, Nothing),
    subject("acl|list", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|load", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|log", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|setuser", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|users", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("acl|whoami", SLOW, Nothing),
    subject("client|getname", SLOW.and(CONNECTION), Nothing),
    subject("client|help", SLOW.and(CONNECTION), Nothing),
    subject("client|id", SLOW.and(CONNECTION), Nothing),
    subject("client|info", SLOW.and(CONNECTION), Nothing),
    subject("client|kill", ADMIN.and(SLOW).and(DANGEROUS).and(CONNECTION), Nothing),
    subject("client|list", ADMIN.and(SLOW).and(DANGEROUS).and(CONNECTION), Nothing),
    subject("client|no-evict", ADMIN.and(SLOW).and(DANGEROUS).and(CONNECTION), Nothing),
    subject("client|no-touch", SLOW.and(CONNECTION), Nothing),
    subject("client|pause", ADMIN.and(SLOW).and(DANGEROUS).and(CONNECTION), Nothing),
    subject("client|reply", SLOW.and(CONNECTION), Nothing),
    subject("client|setinfo", SLOW.and(CONNECTION), Nothing),
    subject("client|setname", SLOW.and(CONNECTION), Nothing),
    subject("client|unpause", ADMIN.and(SLOW).and(DANGEROUS).and(CONNECTION), Nothing),
    subject("command|count", SLOW.and(CONNECTION), Nothing),
    subject("command|docs", SLOW.and(CONNECTION), Nothing),
    subject("command|getkeys", SLOW.and(CONNECTION), Nothing),
    subject("command|info", SLOW.and(CONNECTION), Nothing),
    subject("command|list", SLOW.and(CONNECTION), Nothing),
    subject("config|get", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("config|help", SLOW, Nothing),
    subject("config|resetstat", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("config|rewrite", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("config|set", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("memory|help", SLOW, Nothing),
    subject("memory|usage", READ.and(SLOW), Looks),
    subject("object|encoding", KEYSPACE.and(READ).and(SLOW), Looks),
    subject("object|freq", KEYSPACE.and(READ).and(SLOW), Looks),
    subject("object|help", KEYSPACE.and(SLOW), Nothing),
    subject("object|idletime", KEYSPACE.and(READ).and(SLOW), Looks),
    subject("object|refcount", KEYSPACE.and(READ).and(SLOW), Looks),
    subject("pubsub|channels", PUBSUB.and(SLOW), Nothing),
    subject("pubsub|numpat", PUBSUB.and(SLOW), Nothing),
    subject("pubsub|numsub", PUBSUB.and(SLOW), Nothing),
    subject("script|exists", SLOW.and(SCRIPTING), Nothing),
    subject("script|flush", SLOW.and(SCRIPTING), Nothing),
    subject("script|help", SLOW.and(SCRIPTING), Nothing),
    subject("script|kill", SLOW.and(SCRIPTING), Nothing),
    subject("script|load", SLOW.and(SCRIPTING), Nothing),
    subject("slowlog|get", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("slowlog|help", SLOW, Nothing),
    subject("slowlog|len", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
    subject("slowlog|reset", ADMIN.and(SLOW).and(DANGEROUS), Nothing),
];

impl Subject {
    /// By a name in any case; its number.
    pub(crate) fn find(name: &[u8]) -> Option<usize> {
        SUBJECTS.iter().position(|subject| subject.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The number of a subcommand of the command with this number; of an unknown one that of the command, whose right is the wider one.
    pub(crate) fn of_call(command: usize, subcommand: Option<&[u8]>) -> usize {
        let Some(subcommand) = subcommand else { return command };
        let is_it = |subject: &Self| {
            let parts = subject.name.split_once('|');
            parts.is_some_and(|(before, after)| {
                before == SUBJECTS[command].name && after.as_bytes().eq_ignore_ascii_case(subcommand)
            })
        };
        SUBJECTS.iter().position(is_it).unwrap_or(command)
    }

    /// Whether it is a subcommand of this command.
    pub(crate) fn is_of(&self, command: &Self) -> bool {
        self.name.split_once('|').is_some_and(|(before, _)| before == command.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_found_and_unknown_ones_are_their_commands() {
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
    fn every_one_is_fast_or_slow_and_no_name_is_twice() {
        for (place, subject) in SUBJECTS.iter().enumerate() {
            let (fast, slow) = (subject.categories.overlaps(FAST), subject.categories.overlaps(SLOW));
            assert!(fast != slow, "{}", subject.name);
            assert_eq!(Subject::find(subject.name.as_bytes()), Some(place));
        }
    }
}
