//! Commands about the server: what libraries and tools ask when they connect.

use super::{Planned, unknown_subcommand};
use crate::command::{COMMANDS, Command, Kind};
use crate::error::CommandError;
use crate::plan::{Call, Context, Plan};
use nicekv_proto::number::parse_integer;

/// `COMMAND [COUNT | INFO [name …] | DOCS [name …] | GETKEYS name [argument …] | LIST]`.
pub(crate) fn command<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let named = || (2..call.count()).map(|index| Command::find(call.arguments.prefix(index)));
    let total = COMMANDS.len();
    let reply = &mut context.reply;
    if call.count() == 1 || (call.is(1, "info") && call.count() == 2) {
        reply.array(total);
        COMMANDS.iter().for_each(|command| write_info(command, reply));
    } else if call.is(1, "info") {
        reply.array(call.count() - 2);
        named().for_each(|command| match command {
            Some(command) => write_info(command, reply),
            None => reply.null(),
        });
    } else if call.is(1, "count") && call.count() == 2 {
        reply.integer(total as i64);
    } else if call.is(1, "list") && call.count() == 2 {
        reply.array(total);
        COMMANDS.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    } else if call.is(1, "docs") {
        let all = call.count() == 2;
        let shown: Vec<_> = if all { COMMANDS.iter().collect() } else { named().flatten().collect() };
        reply.map(shown.len());
        for command in shown {
            reply.bulk(command.name.as_bytes());
            reply.map(2);
            reply.bulk(b"summary");
            reply.bulk(b"As in Redis 7.0, where the store has what it is about");
            reply.bulk(b"group");
            reply.bulk(match command.kind {
                Kind::Connection => b"connection",
                Kind::Scan => b"generic",
                Kind::Flush => b"server",
                Kind::Transaction => b"transactions",
                Kind::Listen | Kind::Publish => b"pubsub",
                Kind::Script => b"scripting",
                _ => b"string",
            });
        }
    } else if call.is(1, "getkeys") && call.count() > 3 {
        return get_keys(context, call);
    } else if ["count", "getkeys", "list"].iter().any(|name| call.is(1, name)) {
        let subcommand = String::from_utf8_lossy(call.bytes(1)?).to_ascii_lowercase();
        return Err(CommandError::arity(&format!("command|{subcommand}")));
    } else {
        return Err(unknown_subcommand("COMMAND", call.bytes(1)?));
    }
    Ok(Plan::Replied)
}

/// The arguments of a command that are keys.
fn get_keys<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let command = Command::find(call.arguments.prefix(2));
    let command = command.ok_or(CommandError::fixed("ERR Invalid command specified"))?;
    if command.keys.is_none() && command.kind != Kind::Script {
        return Err(CommandError::fixed("ERR The command has no key arguments"));
    }
    let count = call.count() - 2;
    if !command.takes(count) {
        return Err(CommandError::fixed("ERR Invalid number of arguments specified for command"));
    }
    let argument = |index: usize| call.arguments.prefix(index + 2);
    let mut keys: Vec<&[u8]> = command.key_indexes(count, &argument).map(argument).collect();
    if command.kind == Kind::Script {
        // As in Redis, one that has fewer than it says has none.
        keys.truncate(if parse_integer(argument(2)) == Some(keys.len() as i64) { keys.len() } else { 0 });
    } else if keys.is_empty() {
        return Err(CommandError::fixed("ERR Invalid arguments specified for command"));
    }
    context.reply.array(keys.len());
    keys.iter().for_each(|key| context.reply.bulk(key));
    Ok(Plan::Replied)
}

/// `ROLE`: as INFO says, a master without replicas of its own. The nodes replicate, and a gateway keeps no offset.
pub(crate) fn role<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.reply.array(3);
    context.reply.bulk(b"master");
    context.reply.integer(0);
    context.reply.array(0);
    Ok(Plan::Replied)
}

/// Name, arity, flags, first key, last key, step; no categories, tips, key specifications or subcommands.
fn write_info(command: &Command, reply: &mut crate::reply::ReplyWriter<'_>) {
    let (last, step) = command.keys.unwrap_or((0, 0));
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(1);
    reply.simple(match command.kind {
        Kind::Read | Kind::Scan => "readonly",
        Kind::Write | Kind::Flush => "write",
        Kind::Listen | Kind::Publish => "pubsub",
        Kind::Connection | Kind::Transaction => "fast",
        Kind::Script => "movablekeys",
    });
    reply.integer(command.first_key() as i64);
    reply.integer(last.into());
    reply.integer(step.into());
    (0..3).for_each(|_| reply.set(0));
    reply.array(0);
}

/// `TIME`: seconds and microseconds; the gateway's clock is asked once a turn, for milliseconds.
pub(crate) fn time<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let parts = [context.unix_ms / 1_000, context.unix_ms % 1_000 * 1_000];
    context.reply.array(parts.len());
    parts.iter().for_each(|part| context.reply.bulk(part.to_string().as_bytes()));
    Ok(Plan::Replied)
}
