//! The command ACL.

use super::ok;
use crate::acl::{Users, check, hex};
use crate::call::Call;
use crate::categories::Categories;
use crate::context::{Context, Handler, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::plan::Plan;
use crate::table::{SUBJECTS, find};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;

mod edit;
mod log;

use edit::{deluser, load, setuser};
use log::log;

/// Default number of bits of ACL GENPASS.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4_096;

const HELP: [&str; 13] = [
    "ACL <subcommand> [<arg> …]. Subcommands are:",
    "CAT [<category>]: the categories, or the commands of one.",
    "DELUSER <username> …: remove users at this gateway, until ACL LOAD or a restart.",
    "DRYRUN <username> <command> [<arg> …]: whether the user may run this command.",
    "GENPASS [<bits>]: a random password.",
    "GETUSER <username>: flags, passwords (hashed) and rules of a user.",
    "LIST: all users, as lines of an ACL file.",
    "LOAD: read the gateway's file of users again.",
    "LOG [<count> | RESET]: the newest refusals, or clear them.",
    "SETUSER <username> [<rule> …]: create or change a user at this gateway, until ACL LOAD or a restart.",
    "USERS: the names of all users.",
    "WHOAMI: the name of this connection's user.",
    "HELP: this text.",
];

/// Subcommands, with their minimum and maximum number of arguments.
const SUBCOMMANDS: [(&str, usize, usize, Handler); 12] = [
    ("cat", 2, 3, cat),
    ("deluser", 3, usize::MAX, deluser),
    ("dryrun", 4, usize::MAX, dryrun),
    ("genpass", 2, 3, genpass),
    ("getuser", 3, 3, getuser),
    ("help", 2, 2, help),
    ("list", 2, 2, list),
    ("load", 2, 2, load),
    ("log", 2, 3, log),
    ("setuser", 3, usize::MAX, setuser),
    ("users", 2, 2, users),
    ("whoami", 2, 2, whoami),
];

pub(crate) fn acl<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.is(1, "save") {
        return Err(CommandError::fixed(
            "ERR ACL SAVE is refused: a gateway does not write its file; edit it, and send ACL LOAD to each gateway",
        ));
    }
    let found = SUBCOMMANDS.iter().find(|(name, ..)| call.is(1, name));
    let Some((name, least, most, run)) = found else { return Err(unknown_subcommand("ACL", call.bytes(1)?)) };
    if !(*least..=*most).contains(&call.count()) {
        return Err(CommandError::arity(&format!("acl|{name}")));
    }
    run(context, call)
}

fn whoami<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.reply.bulk(context.session.login.name());
    Ok(Plan::Replied)
}

fn users_now(context: &Context<'_, '_>) -> Arc<Users> {
    context.host.users().0
}

fn users<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let users = users_now(context);
    context.reply.array(users.all().len());
    users.all().for_each(|user| context.reply.bulk(&user.name));
    Ok(Plan::Replied)
}

fn list<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let users = users_now(context);
    context.reply.array(users.all().len());
    users.all().for_each(|user| context.reply.bulk(&user.describe()));
    Ok(Plan::Replied)
}

fn getuser<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let users = users_now(context);
    let reply = &mut context.reply;
    let Some(user) = users.get(call.bytes(2)?) else {
        reply.null();
        return Ok(Plan::Replied);
    };
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let passwords = user.passwords();
    reply.array(passwords.len());
    passwords.for_each(|hash| reply.bulk(hash.as_bytes()));
    for (field, rules) in
        [("commands", user.commands().into_bytes()), ("keys", user.keys()), ("channels", user.channels())]
    {
        reply.bulk(field.as_bytes());
        reply.bulk(&rules);
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(Plan::Replied)
}

fn cat<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let reply = &mut context.reply;
    if call.count() == 2 {
        reply.array(Categories::ALL.names().count());
        Categories::ALL.names().for_each(|name| reply.bulk(name.as_bytes()));
        return Ok(Plan::Replied);
    }
    let name = call.arguments.prefix(2);
    let category = Categories::named(name).ok_or_else(|| {
        let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
        CommandError::text(format!("ERR Unknown category '{name}'"))
    })?;
    let members = SUBJECTS.iter().filter(|subject| subject.categories.overlaps(category));
    reply.array(members.clone().count());
    members.for_each(|subject| reply.bulk(subject.name.as_bytes()));
    Ok(Plan::Replied)
}

fn genpass<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const TEXT: &str = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";
    let bits = if call.count() == 3 { call.integer(2)? } else { PASSWORD_BITS };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(CommandError::fixed(TEXT));
    }
    let length = (bits as usize).div_ceil(4);
    let mut random = vec![0; length.div_ceil(2)];
    context
        .host
        .fill_random(&mut random)
        .map_err(|error| CommandError::text(format!("ERR no random bytes: {error}")))?;
    context.reply.bulk(&hex(&random).as_bytes()[..length]);
    Ok(Plan::Replied)
}

/// `ACL DRYRUN user command …`: OK, or the refusal as a text.
fn dryrun<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let shown =
        |index| String::from_utf8_lossy(call.arguments.prefix(index)).chars().take(128).collect::<String>();
    let users = users_now(context);
    let user = users.get(call.arguments.prefix(2));
    let user = user.ok_or_else(|| CommandError::text(format!("ERR User '{}' not found", shown(2))))?;
    let command = find(call.arguments.prefix(3));
    let command =
        command.ok_or_else(|| CommandError::text(format!("ERR Command '{}' not found", shown(3))))?;
    let count = call.count() - 3;
    if !command.takes(count) {
        return Err(CommandError::arity(command.name));
    }
    let argument = |index: usize| call.arguments.prefix(index + 3);
    match check(user, command, count, &argument) {
        Ok(()) => return ok(context),
        Err(refusal) => context.reply.bulk(&refusal.describe(user)),
    }
    Ok(Plan::Replied)
}

fn help<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.reply.array(HELP.len());
    HELP.iter().for_each(|line| context.reply.simple(line));
    Ok(Plan::Replied)
}
