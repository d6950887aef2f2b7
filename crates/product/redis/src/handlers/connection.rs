//! Commands about the connection itself.

use super::authentication::log_in;
use super::ok;
use crate::REDIS_VERSION;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::plan::Plan;
use crate::resp::Protocol;
use alloc::format;
use alloc::string::String;
use nicekv_proto::KeyspaceId;
use nicekv_proto::number::parse_integer;

const HELLO_NO_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

pub(crate) fn ping<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let is_subscriber = context.session.is_subscriber_only();
    match call.count() {
        1 | 2 if is_subscriber => {
            context.reply.array(2);
            context.reply.bulk(b"pong");
            context.reply.bulk(if call.count() == 2 { call.bytes(1)? } else { b"" });
        }
        1 => context.reply.simple("PONG"),
        2 => return echo(context, call),
        _ => return Err(CommandError::arity(call.name)),
    }
    Ok(Plan::Replied)
}

pub(crate) fn echo<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let bytes = call.bytes(1)?;
    context.reply.bulk_of(bytes, call.arguments.shared(bytes));
    Ok(Plan::Replied)
}

pub(crate) fn quit<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.reply.simple("OK");
    Ok(Plan::Close)
}

pub(crate) fn reset<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.name.clear();
    context.session.protocol = Protocol::Resp2;
    context.session.multi.end();
    context.session.subscriptions.reset();
    context.session.keyspace = KeyspaceId::DEFAULT;
    let (users, version) = context.host.users();
    context.session.login.reset(&users, version);
    context.session.reply_mode.turn_on();
    if core::mem::take(&mut context.session.is_monitor) {
        context.host.leave_monitors();
    }
    context.reply.simple("RESET");
    Ok(Plan::Replied)
}

/// `SELECT number`: a database is a keyspace.
pub(crate) fn select<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const TEXT: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";
    let number = i32::try_from(call.integer(1)?).map_err(|_| CommandError::fixed(TEXT))?;
    context.session.keyspace = database(context, number)?;
    ok(context)
}

/// The keyspace with this database number.
pub(super) fn database(context: &Context<'_, '_>, number: i32) -> Result<KeyspaceId, CommandError> {
    let keyspaces = context.host.keyspaces();
    let found = keyspaces.iter().find(|keyspace| i32::from(keyspace.0) == number);
    found.copied().ok_or_else(|| CommandError::no_such_database(&keyspaces))
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`.
pub(crate) fn hello<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let mut protocol = context.session.protocol;
    if call.count() > 1 {
        const TEXT: &str = "ERR Protocol version is not an integer or out of range";
        protocol = match parse_integer(call.bytes(1)?).ok_or(CommandError::fixed(TEXT))? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(CommandError::fixed("NOPROTO unsupported protocol version")),
        };
    }
    let mut name = None;
    let mut index = 2;
    while index < call.count() {
        let left = call.count() - index - 1;
        if call.is(index, "auth") && left >= 2 {
            log_in(context, call, call.bytes(index + 1)?, call.bytes(index + 2)?)?;
            index += 3;
        } else if call.is(index, "setname") && left >= 1 {
            name = Some(checked_name(call.bytes(index + 1)?)?);
            index += 2;
        } else {
            let option = String::from_utf8_lossy(call.bytes(index)?).into_owned();
            return Err(CommandError::text(format!("ERR Syntax error in HELLO option '{option}'")));
        }
    }
    if context.session.login.user().is_none() {
        return Err(CommandError::fixed(HELLO_NO_AUTH));
    }
    if let Some(name) = name {
        context.session.name = name.to_vec();
    }
    context.session.protocol = protocol;
    context.reply.protocol = protocol;
    write_hello(context);
    Ok(Plan::Replied)
}

fn write_hello(context: &mut Context<'_, '_>) {
    let version = if context.session.protocol == Protocol::Resp3 { 3 } else { 2 };
    let reply = &mut context.reply;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(version);
    reply.bulk(b"id");
    reply.integer(context.session.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}

pub(super) fn checked_name(name: &[u8]) -> Result<&[u8], CommandError> {
    const TEXT: &str = "ERR Client names cannot contain spaces, newlines or special characters.";
    let printable = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if printable { Ok(name) } else { Err(CommandError::fixed(TEXT)) }
}
