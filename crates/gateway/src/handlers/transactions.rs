//! Transactions, of which there are none yet: [`Refused`] says what follows from that.

use super::{Planned, ok};
use crate::error::CommandError;
use crate::plan::{Call, Context};
use crate::refused::Refused;

pub(crate) fn multi<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.refused = Refused::Multi;
    Err(CommandError::fixed("ERR MULTI is refused: there are no transactions yet"))
}

pub(crate) fn watch<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    if context.session.refused == Refused::Multi {
        return Err(CommandError::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    context.session.refused = Refused::Watch;
    Err(CommandError::fixed("ERR WATCH is refused: there are no transactions yet"))
}

pub(crate) fn unwatch<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.refused = Refused::Nothing;
    ok(context)
}

pub(crate) fn exec<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Err(match std::mem::take(&mut context.session.refused) {
        _ if call.count() > 1 => CommandError::fixed(
            "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        Refused::Multi => CommandError::fixed("EXECABORT Transaction discarded because of previous errors."),
        _ => CommandError::fixed("ERR EXEC without MULTI"),
    })
}

pub(crate) fn discard<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    match std::mem::take(&mut context.session.refused) {
        Refused::Multi => ok(context),
        _ => Err(CommandError::fixed("ERR DISCARD without MULTI")),
    }
}
