//! Commands for publishing and subscribing.

use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::finish::Finish;
use crate::plan::Plan;
use crate::subscription::SubscriptionRequest;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nicekv_client::{Request, SubmitError};
use nicekv_proto::glob;
use nicekv_proto::limits::{KEY_BYTES_MAX, PUBLISHED_BYTES_MAX};
use nicekv_proto::publish::ListenKind;

/// `PUBLISH channel message`.
pub(crate) fn publish<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let bytes = call.arguments.length(1) + call.arguments.length(2);
    if bytes > PUBLISHED_BYTES_MAX {
        return Err(SubmitError::MessageTooLong { bytes, limit: PUBLISHED_BYTES_MAX }.into());
    }
    let request = Request::Publish { channel: call.bytes(1)?, message: call.bytes(2)? };
    Ok(Plan::request(request, Finish::Integer))
}

fn change<'a>(context: &Context<'_, '_>, call: &Call<'a>, subscribes: bool, kind: ListenKind) -> Planned<'a> {
    if subscribes && !context.host.can_publish() {
        return Err(SubmitError::NeedsPrimary { what: "publishing" }.into());
    }
    let mut names = Vec::with_capacity(call.count() - 1);
    for index in 1..call.count() {
        let bytes = call.arguments.length(index);
        if bytes > KEY_BYTES_MAX {
            let text = format!("ERR channel of {bytes} bytes exceeds the limit of {KEY_BYTES_MAX} bytes");
            return Err(CommandError::text(text));
        }
        names.push(call.bytes(index)?.to_vec());
    }
    Ok(Plan::Subscribe(SubscriptionRequest { subscribes, kind, names }))
}

pub(crate) fn subscribe<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    change(context, call, true, ListenKind::Channel)
}

pub(crate) fn unsubscribe<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    change(context, call, false, ListenKind::Channel)
}

pub(crate) fn psubscribe<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    change(context, call, true, ListenKind::Pattern)
}

pub(crate) fn punsubscribe<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    change(context, call, false, ListenKind::Pattern)
}

/// `PUBSUB CHANNELS [pattern] | NUMSUB [channel …] | NUMPAT`: counts the connections of this
/// gateway only.
pub(crate) fn pubsub<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let counts = context.host.subscribers();
    let reply = &mut context.reply;
    match call.bytes(1)?.to_ascii_lowercase().as_slice() {
        b"channels" if call.count() <= 3 => {
            let pattern = if call.count() == 3 { call.bytes(2)? } else { b"*" };
            let is_shown = |(kind, name): &&(ListenKind, Vec<u8>)| {
                *kind == ListenKind::Channel && glob::matches(pattern, name)
            };
            let shown: Vec<_> = counts.keys().filter(is_shown).collect();
            reply.array(shown.len());
            shown.into_iter().for_each(|(_, name)| reply.bulk(name));
        }
        b"numsub" => {
            reply.array(2 * (call.count() - 2));
            for index in 2..call.count() {
                let channel = call.bytes(index)?;
                reply.bulk(channel);
                let count = counts.get(&(ListenKind::Channel, channel.to_vec()));
                reply.integer(count.map_or(0, |count| *count as i64));
            }
        }
        b"numpat" if call.count() == 2 => {
            let patterns = counts.keys().filter(|(kind, _)| *kind == ListenKind::Pattern);
            reply.integer(patterns.count() as i64);
        }
        b"numpat" => return Err(CommandError::arity("pubsub|numpat")),
        b"channels" => {
            let subcommand = String::from_utf8_lossy(call.bytes(1)?).into_owned();
            return Err(CommandError::text(format!(
                "ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try PUBSUB HELP."
            )));
        }
        _ => return Err(unknown_subcommand("PUBSUB", call.bytes(1)?)),
    }
    Ok(Plan::Replied)
}
