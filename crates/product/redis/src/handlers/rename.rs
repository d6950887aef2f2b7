//! RENAME, RENAMENX and COPY.

use super::connection::database;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::plan::Plan;
use crate::rename::{Rename, RenameKind};
use alloc::boxed::Box;

/// `RENAME key newkey`.
pub(crate) fn rename<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    plan(context, call, RenameKind::Rename)
}

/// `RENAMENX key newkey`.
pub(crate) fn renamenx<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    plan(context, call, RenameKind::RenameIfAbsent)
}

/// `COPY source destination [DB destination-db] [REPLACE]`: within one database, as in Redis Cluster.
pub(crate) fn copy<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (mut replaces, mut is_other, mut index) = (false, false, 3);
    while index < call.count() {
        if call.is(index, "replace") {
            replaces = true;
        } else if call.is(index, "db") && index + 1 < call.count() {
            let number = i32::try_from(call.integer(index + 1)?).map_err(|_| CommandError::NOT_AN_INTEGER)?;
            is_other = database(context, number)? != context.session.keyspace;
            index += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
        index += 1;
    }
    if is_other {
        return Err(CommandError::fixed("ERR Copying to another database is not allowed in cluster mode"));
    }
    if call.key(1)? == call.key(2)? {
        return Err(CommandError::fixed("ERR source and destination objects are the same"));
    }
    plan(context, call, RenameKind::Copy { replaces })
}

fn plan<'a>(context: &Context<'_, '_>, call: &Call<'a>, kind: RenameKind) -> Planned<'a> {
    let rename = Rename::new(context.session.keyspace, kind, call.key(1)?, call.key(2)?);
    Ok(Plan::Continue(Box::new(rename)))
}
