//! COMMAND, ROLE and TIME, which libraries and tools call when they connect.

use crate::call::Call;
use crate::command::{Command, Kind};
use crate::context::{Context, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::plan::Plan;
use crate::resp::ReplyWriter;
use crate::table::{COMMANDS, find};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use nicekv_proto::number::parse_integer;

/// `COMMAND [COUNT | INFO [name …] | DOCS [name …] | GETKEYS name [argument …] | LIST]`.
pub(crate) fn command<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let named = || (2..call.count()).map(|index| find(call.arguments.prefix(index)));
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
            reply.map(3);
            for (field, text) in
                [("summary", command.summary), ("since", command.since), ("group", command.group.name())]
            {
                reply.bulk(field.as_bytes());
                reply.bulk(text.as_bytes());
            }
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

/// `COMMAND GETKEYS`: the arguments of a call that are keys.
fn get_keys<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let command = find(call.arguments.prefix(2));
    let command = command.ok_or(CommandError::fixed("ERR Invalid command specified"))?;
    if !command.has_keys() && command.kind != Kind::Script {
        return Err(CommandError::fixed("ERR The command has no key arguments"));
    }
    let count = call.count() - 2;
    if !command.takes(count) {
        return Err(CommandError::fixed("ERR Invalid number of arguments specified for command"));
    }
    let argument = |index: usize| call.arguments.prefix(index + 2);
    let mut keys: Vec<&[u8]> = command.key_indexes(count, &argument).map(argument).collect();
    if command.kind == Kind::Script {
        // As in Redis, a script call with fewer keys than it declares has none.
        keys.truncate(if parse_integer(argument(2)) == Some(keys.len() as i64) { keys.len() } else { 0 });
    } else if keys.is_empty() {
        return Err(CommandError::fixed("ERR Invalid arguments specified for command"));
    }
    context.reply.array(keys.len());
    keys.iter().for_each(|key| context.reply.bulk(key));
    Ok(Plan::Replied)
}

/// `ROLE`: as in INFO, a master without replicas. Nodes replicate; a gateway has no replication
/// offset.
pub(crate) fn role<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.reply.array(3);
    context.reply.bulk(b"master");
    context.reply.integer(0);
    context.reply.array(0);
    Ok(Plan::Replied)
}

/// An entry of COMMAND INFO: name, arity, flags, first key, last key, step. Categories, tips, key
/// specifications and subcommands are left empty.
fn write_info(command: &Command, reply: &mut ReplyWriter<'_>) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(1);
    reply.simple(match command.kind {
        Kind::Read | Kind::Scan => "readonly",
        Kind::Write | Kind::Flush => "write",
        Kind::Subscription | Kind::Publish => "pubsub",
        Kind::Connection | Kind::Transaction => "fast",
        Kind::Script => "movablekeys",
    });
    reply.integer(command.keys.first as i64);
    reply.integer(command.keys.last.into());
    reply.integer(command.keys.step as i64);
    (0..3).for_each(|_| reply.set(0));
    reply.array(0);
}

/// `TIME`: seconds and microseconds. The gateway reads its clock once a turn, in milliseconds.
pub(crate) fn time<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let parts = [context.unix_ms / 1_000, context.unix_ms % 1_000 * 1_000];
    context.reply.array(parts.len());
    parts.iter().for_each(|part| context.reply.bulk(part.to_string().as_bytes()));
    Ok(Plan::Replied)
}
