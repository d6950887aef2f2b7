//! Transactions ([`Multi`](crate::transaction::Multi)).

use super::{Planned, ok};
use crate::error::CommandError;
use crate::executing::Executing;
use crate::gathering::FinishMany;
use crate::plan::{Call, Context, Many, Plan, RequestFor};
use crate::reply::ReplyWriter;
use crate::rope::Rope;
use crate::transaction::Execution;
use nicekv_client::Request;

pub(crate) fn multi<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.multi.begin()?;
    ok(context)
}

/// `WATCH key …`: reads the versions that the keys are to have at EXEC.
pub(crate) fn watch<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let session = &mut *context.session;
    if session.multi.is_queueing() {
        return Err(CommandError::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    let keys: Vec<&[u8]> = (1..call.count()).map(|index| call.key(index)).collect::<Result<_, _>>()?;
    session.multi.watch(session.keyspace, keys.into_iter())?;
    let keys = (1..call.count() as u32).collect();
    let request: RequestFor = |call, key| Request::Length { key: call.arguments.prefix(key) };
    Ok(Plan::Many(Many { keys, request, finish: FinishMany::Watched }))
}

pub(crate) fn unwatch<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.multi.unwatch();
    ok(context)
}

pub(crate) fn exec<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let session = &mut *context.session;
    let protocol = session.protocol;
    let written = |write: &mut dyn FnMut(&mut ReplyWriter<'_>)| {
        let mut out = Rope::default();
        write(&mut ReplyWriter { out: &mut out, protocol });
        out
    };
    match session.multi.execute(session.keyspace, written)? {
        Execution::Ready(reply) => {
            context.reply.out.append(reply);
            Ok(Plan::Replied)
        }
        Execution::Steps(steps) => {
            let caller = session.caller(context.unix_ms);
            Ok(Plan::Asking(Box::new(Executing::new(caller, steps))))
        }
    }
}

pub(crate) fn discard<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.session.multi.discard()?;
    ok(context)
}
