//! Commands on all keys.

use super::Planned;
use crate::choosing::Choosing;
use crate::error::CommandError;
use crate::plan::{Call, Context, Plan};
use crate::scanning::{Filter, Purpose, Scanning};
use nicekv_client::Scan;
use nicekv_proto::KeyspaceId;
use nicekv_proto::number::parse_integer;
use nicekv_proto::scan::ScanWants;
use nicekv_runtime::random;

/// Keys that a SCAN looks at unless it says otherwise.
const COUNT_DEFAULT: usize = 10;

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(crate) fn scan<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const INVALID: CommandError = CommandError::fixed("ERR invalid cursor");
    let cursor = std::str::from_utf8(call.bytes(1)?).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or(INVALID)?;
    let (mut filter, mut count, mut has_type) = (Filter::default(), COUNT_DEFAULT, true);
    let mut index = 2;
    while index < call.count() {
        if index + 1 == call.count() {
            return Err(CommandError::SYNTAX);
        }
        if call.is(index, "match") {
            filter.pattern = Some(call.bytes(index + 1)?.into());
        } else if call.is(index, "count") {
            let given = parse_integer(call.bytes(index + 1)?).ok_or(CommandError::NOT_AN_INTEGER)?;
            count = usize::try_from(given).ok().filter(|count| *count > 0).ok_or(CommandError::SYNTAX)?;
        } else if call.is(index, "type") {
            filter.is_hash = Some(call.is(index + 1, "hash"));
            has_type = call.is(index + 1, "hash") || call.is(index + 1, "string");
        } else {
            return Err(CommandError::SYNTAX);
        }
        index += 2;
    }
    let keyspace = context.session.keyspace;
    let scan = match cursor {
        0 => Scan::new(ScanWants::Keys, None).split_into(1),
        _ => context.server.cursors.at(cursor, keyspace).ok_or(INVALID)?,
    };
    if !has_type {
        context.reply.array(2);
        context.reply.bulk(b"0");
        context.reply.array(0);
        return Ok(Plan::Replied);
    }
    let purpose = Purpose::Some { count, cursors: context.server.cursors.clone() };
    list(Scanning::new(keyspace, scan, purpose, filter))
}

/// `KEYS pattern`.
pub(crate) fn keys<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let filter = Filter { pattern: Some(call.bytes(1)?.into()), ..Filter::default() };
    list(Scanning::of_all(context.session.keyspace, Purpose::All, filter))
}

/// `DBSIZE`.
pub(crate) fn dbsize<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    list(Scanning::of_all(context.session.keyspace, Purpose::Size, Filter::default()))
}

/// `FLUSHDB [ASYNC | SYNC]`: each ends when all is deleted that was there when it began.
pub(crate) fn flushdb<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    flush(call, vec![context.session.keyspace])
}

/// `FLUSHALL [ASYNC | SYNC]`: FLUSHDB of all keyspaces; it deletes nothing if one of them cannot be flushed.
pub(crate) fn flushall<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if let Some((keyspace, has)) = context.server.keyspaces.not_flushable() {
        return Err(CommandError::text(format!(
            "ERR nothing was deleted: keyspace {} has {has}; FLUSHDB deletes the keys of one keyspace",
            keyspace.0
        )));
    }
    flush(call, context.server.keyspaces.all())
}

fn flush<'a>(call: &Call<'a>, mut keyspaces: Vec<KeyspaceId>) -> Planned<'a> {
    let is_known = call.count() == 1 || (call.count() == 2 && (call.is(1, "async") || call.is(1, "sync")));
    keyspaces.sort_unstable_by(|a, b| b.cmp(a));
    let Some(first) = keyspaces.pop().filter(|_| is_known) else { return Err(CommandError::SYNTAX) };
    list(Scanning::of_all(first, Purpose::Flush { rest: keyspaces }, Filter::default()))
}

fn list<'a>(scanning: Scanning) -> Planned<'a> {
    Ok(Plan::Asking(Box::new(scanning)))
}

/// `RANDOMKEY`.
pub(crate) fn randomkey<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let number = || random().map_err(|error| CommandError::text(format!("ERR no random number: {error}")));
    Ok(Plan::Asking(Box::new(Choosing::new(context.session.keyspace, [number()?, number()?]))))
}
