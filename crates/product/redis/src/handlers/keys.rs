//! Commands on all keys of a keyspace.

use super::random_number;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::key_scan::{Filter, KeyScan, Purpose};
use crate::plan::Plan;
use crate::random_key::RandomKey;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_client::Scan;
use nicekv_proto::KeyspaceId;
use nicekv_proto::number::parse_integer;
use nicekv_proto::scan::ScanWants;

/// Number of keys that a SCAN looks at by default.
const COUNT_DEFAULT: usize = 10;

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
pub(crate) fn scan<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const INVALID: CommandError = CommandError::fixed("ERR invalid cursor");
    let cursor = core::str::from_utf8(call.bytes(1)?).ok().and_then(|text| text.parse::<u64>().ok());
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
        _ => context.host.cursors().find(cursor, keyspace).ok_or(INVALID)?,
    };
    if !has_type {
        context.reply.array(2);
        context.reply.bulk(b"0");
        context.reply.array(0);
        return Ok(Plan::Replied);
    }
    let purpose = Purpose::Some { count, cursors: context.host.cursors() };
    list(KeyScan::new(keyspace, scan, purpose, filter))
}

/// `KEYS pattern`.
pub(crate) fn keys<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let filter = Filter { pattern: Some(call.bytes(1)?.into()), ..Filter::default() };
    list(KeyScan::of_all(context.session.keyspace, Purpose::All, filter))
}

/// `DBSIZE`.
pub(crate) fn dbsize<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    list(KeyScan::of_all(context.session.keyspace, Purpose::Size, Filter::default()))
}

/// `FLUSHDB [ASYNC | SYNC]`: in both modes, the reply comes when all keys that existed at the
/// beginning are deleted.
pub(crate) fn flushdb<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    flush(call, vec![context.session.keyspace])
}

/// `FLUSHALL [ASYNC | SYNC]`: flushes all keyspaces. If one of them cannot be flushed, deletes
/// nothing.
pub(crate) fn flushall<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if let Some((keyspace, has)) = context.host.not_flushable() {
        return Err(CommandError::text(format!(
            "ERR nothing was deleted: keyspace {} has {has}; FLUSHDB deletes the keys of one keyspace",
            keyspace.0
        )));
    }
    flush(call, context.host.keyspaces())
}

fn flush<'a>(call: &Call<'a>, mut keyspaces: Vec<KeyspaceId>) -> Planned<'a> {
    let is_known = call.count() == 1 || (call.count() == 2 && (call.is(1, "async") || call.is(1, "sync")));
    keyspaces.sort_unstable_by(|a, b| b.cmp(a));
    let Some(first) = keyspaces.pop().filter(|_| is_known) else { return Err(CommandError::SYNTAX) };
    list(KeyScan::of_all(first, Purpose::Flush { rest: keyspaces }, Filter::default()))
}

fn list<'a>(scan: KeyScan) -> Planned<'a> {
    Ok(Plan::Continue(Box::new(scan)))
}

/// `RANDOMKEY`.
pub(crate) fn randomkey<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let random = [random_number(context)?, random_number(context)?];
    Ok(Plan::Continue(Box::new(RandomKey::new(context.session.keyspace, random))))
}
