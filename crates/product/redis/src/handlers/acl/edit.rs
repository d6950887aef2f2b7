//! ACL SETUSER, DELUSER and LOAD. Changes apply to all connections of the gateway at once.

use super::ok;
use crate::acl::{DEFAULT, User, Users, is_name, shown_rule};
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::plan::Plan;
use alloc::format;

/// `ACL SETUSER name [rule …]`: applies all rules, or none.
pub(super) fn setuser<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let name = call.bytes(2)?;
    if !is_name(name) {
        return Err(CommandError::fixed("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = || (3..call.count()).map(|index| call.arguments.prefix(index));
    let sha256 = |bytes: &[u8]| context.host.sha256(bytes);
    context.host.change_users(&mut |users: &Users| {
        let mut user = users.get(name).map_or_else(|| User::new(name), |user| user.as_ref().clone());
        for rule in rules() {
            user.apply(rule, &sha256).map_err(|error| {
                let rule = shown_rule(rule);
                CommandError::text(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
            })?;
        }
        users.with(user).ok_or(CommandError::fixed("ERR there are too many users"))
    })?;
    changed(context);
    ok(context)
}

/// `ACL DELUSER name …`.
pub(super) fn deluser<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let names = || (2..call.count()).map(|index| call.arguments.prefix(index));
    if names().any(|name| name == DEFAULT) {
        return Err(CommandError::fixed("ERR The 'default' user cannot be removed"));
    }
    let mut count = 0;
    context.host.change_users(&mut |users| {
        let (left, removed) = users.without(names());
        count = removed;
        Ok(left)
    })?;
    changed(context);
    context.reply.integer(count as i64);
    Ok(Plan::Replied)
}

/// `ACL LOAD`: reads the file again. If it has errors, the error names the lines, and nothing
/// changes.
pub(super) fn load<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    if !context.host.has_user_file() {
        return Err(CommandError::fixed(
            "ERR This gateway is not configured to use an ACL file: start it with --acl-file or --password-file",
        ));
    }
    context.host.load_users().map_err(|error| {
        CommandError::text(format!(
            "ERR {error} WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        ))
    })?;
    changed(context);
    ok(context)
}

/// Applies the change to this connection, which keeps its user. Other connections follow before
/// their next command, and are closed if they may not stay.
fn changed(context: &mut Context<'_, '_>) {
    let (users, version) = context.host.users();
    context.session.login.follow_own_change(&users, version);
}
