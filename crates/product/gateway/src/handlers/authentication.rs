//! Logging in.

use super::{Planned, ok};
use crate::error::CommandError;
use crate::plan::{Call, Context};
use crate::security::{DEFAULT, Denied, Reason};

/// `AUTH [user] password`.
pub(crate) fn auth<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    match call.count() {
        2 => {
            if context.server.access.users().0.default_user().has_no_password() {
                return Err(CommandError::NO_PASSWORD);
            }
            log_in(context, call, DEFAULT, call.bytes(1)?)?;
        }
        3 => log_in(context, call, call.bytes(1)?, call.bytes(2)?)?,
        _ => return Err(CommandError::SYNTAX),
    }
    ok(context)
}

/// Makes the connection this user's. One that fails is counted, and its connection rests before its next command.
pub(super) fn log_in(
    context: &mut Context<'_, '_>,
    call: &Call<'_>,
    user: &[u8],
    password: &[u8],
) -> Result<(), CommandError> {
    let access = &context.server.access;
    if context.session.standing.log_in(access, user, password) {
        return Ok(());
    }
    let client = context.session.describe(context.unix_ms, call.name);
    let object = call.arguments.prefix(0);
    access.note(Denied { reason: Reason::Auth, object, user, client: &client }, context.unix_ms);
    Err(CommandError::WRONG_PASSWORD)
}
