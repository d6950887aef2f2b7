//! The command AUTH.

use super::ok;
use crate::acl::{DEFAULT, Denial, DenialReason, PasswordHash};
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;

/// `AUTH [user] password`.
pub(crate) fn auth<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    match call.count() {
        2 => {
            if context.host.users().0.default_user().has_no_password() {
                return Err(CommandError::NO_PASSWORD);
            }
            log_in(context, call, DEFAULT, call.bytes(1)?)?;
        }
        3 => log_in(context, call, call.bytes(1)?, call.bytes(2)?)?,
        _ => return Err(CommandError::SYNTAX),
    }
    ok(context)
}

/// Logs the connection in. A failed login is logged, and delays the connection's next command.
pub(super) fn log_in(
    context: &mut Context<'_, '_>,
    call: &Call<'_>,
    user: &[u8],
    password: &[u8],
) -> Result<(), CommandError> {
    let password = PasswordHash::new(context.host.sha256(password));
    let (users, version) = context.host.users();
    if context.session.login.log_in(&users, version, user, password) {
        return Ok(());
    }
    let client = context.host.client(context.session, context.unix_ms).line(context.unix_ms, call.name);
    let object = call.arguments.prefix(0);
    let denial = Denial { reason: DenialReason::Auth, object, user, client: &client };
    context.host.note_denial(denial, context.unix_ms);
    Err(CommandError::WRONG_PASSWORD)
}
