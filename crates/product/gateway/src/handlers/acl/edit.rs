//! Users are changed: for all threads of this gateway, and at once.

use super::{Planned, ok};
use crate::error::CommandError;
use crate::plan::{Call, Context, Plan};
use crate::security::{User, Users, is_name, shown};

/// `ACL SETUSER name [rule …]`: all rules, or none.
pub(super) fn setuser<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let name = call.bytes(2)?;
    if !is_name(name) {
        return Err(CommandError::fixed("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = || (3..call.count()).map(|index| call.arguments.prefix(index));
    let change = |users: &Users| {
        let mut user = users.get(name).map_or_else(|| User::new(name), |user| user.as_ref().clone());
        for rule in rules() {
            user.apply(rule).map_err(|error| {
                let rule = shown(rule);
                CommandError::text(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
            })?;
        }
        let users = users.with(user).ok_or(CommandError::fixed("ERR there are too many users"))?;
        Ok::<_, CommandError>((users, ()))
    };
    context.server.access.change(change)?;
    changed(context);
    ok(context)
}

/// `ACL DELUSER name …`.
pub(super) fn deluser<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let names = || (2..call.count()).map(|index| call.arguments.prefix(index));
    if names().any(|name| name == crate::security::DEFAULT) {
        return Err(CommandError::fixed("ERR The 'default' user cannot be removed"));
    }
    let count = context.server.access.change(|users| Ok::<_, CommandError>(users.without(names())))?;
    changed(context);
    context.reply.integer(count as i64);
    Ok(Plan::Replied)
}

/// `ACL LOAD`: the file again, or an error that names the lines, and all is as it was.
pub(super) fn load<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    if !context.server.access.has_file() {
        return Err(CommandError::fixed(
            "ERR This gateway is not configured to use an ACL file: start it with --acl-file or --password-file",
        ));
    }
    context.server.access.load().map_err(|error| {
        CommandError::text(format!(
            "ERR {error} WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        ))
    })?;
    changed(context);
    ok(context)
}

/// Others go by the users that there are now when they run their next command, and those who may not stay are closed.
fn changed(context: &mut Context<'_, '_>) {
    context.session.standing.follow_own_change(&context.server.access);
    context.server.threads.iter().for_each(crate::shared::ThreadState::wake);
}
