//! MULTI, EXEC, DISCARD, WATCH and UNWATCH ([`Multi`](crate::transaction::Multi)).

use super::ok;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::each_key::{EachKey, RequestFor};
use crate::error::CommandError;
use crate::exec::Exec;
use crate::finish::FinishEachKey;
use crate::plan::Plan;
use crate::resp::{ReplyBuffer, ReplyWriter};
use crate::transaction::Execution;
use alloc::boxed::Box;
use alloc::vec::Vec;
use nicekv_client::Request;

pub(crate) fn multi<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.multi.begin()?;
    ok(context)
}

/// `WATCH key …`: reads the versions that EXEC compares.
pub(crate) fn watch<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let session = &mut *context.session;
    if session.multi.is_queueing() {
        return Err(CommandError::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    let keys: Vec<&[u8]> = (1..call.count()).map(|index| call.key(index)).collect::<Result<_, _>>()?;
    session.multi.watch(session.keyspace, keys.into_iter())?;
    let keys = (1..call.count() as u32).collect();
    let request: RequestFor = |call, key| Request::Length { key: call.arguments.prefix(key) };
    let each = EachKey::new(session.keyspace, keys, request, FinishEachKey::Watched);
    Ok(Plan::Continue(Box::new(each)))
}

pub(crate) fn unwatch<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.multi.unwatch();
    ok(context)
}

pub(crate) fn exec<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let session = &mut *context.session;
    let protocol = session.protocol;
    let written = |write: &mut dyn FnMut(&mut ReplyWriter<'_>)| {
        let mut out = ReplyBuffer::default();
        write(&mut ReplyWriter { out: &mut out, protocol });
        out
    };
    match session.multi.execute(session.keyspace, written)? {
        Execution::Ready(reply) => {
            context.reply.out.append(reply);
            Ok(Plan::Replied)
        }
        Execution::Commands(commands) => {
            let caller = session.caller(context.unix_ms);
            Ok(Plan::Continue(Box::new(Exec::new(caller, commands))))
        }
    }
}

pub(crate) fn discard<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.multi.discard()?;
    ok(context)
}
