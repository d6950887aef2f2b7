//! OBJECT, MEMORY, DUMP and RESTORE.

use super::help;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::dump::{self, DUMPED_BYTES_MAX, Damage};
use crate::error::{CommandError, unknown_subcommand};
use crate::finish::Finish;
use crate::object_reply::ObjectReply;
use crate::plan::{BuiltOperation, BuiltUpdate, Plan, PlannedRequest};
use alloc::format;
use nicekv_client::{Request, SubmitError};
use nicekv_proto::limits::HASH_BYTES_MAX;
use nicekv_proto::{Condition, Expiry, Form};

const NO_FREQUENCY: CommandError = CommandError::fixed(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime \
     LRU and LFU data will take some time to adjust.",
);
const NO_IDLE_TIME: CommandError = CommandError::fixed("ERR idle time not tracked: nothing is evicted by it");

/// `OBJECT ENCODING | REFCOUNT | IDLETIME | FREQ key`, `OBJECT HELP`.
pub(crate) fn object<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let reply = match call.bytes(1)?.to_ascii_lowercase().as_slice() {
        b"help" => {
            return help(
                context,
                call,
                "OBJECT",
                &[
                    ("ENCODING <key>", "The encoding that Redis would use for the value of a key."),
                    ("FREQ <key>", "How often a key is used: not tracked."),
                    ("IDLETIME <key>", "For how long a key was not used: not tracked."),
                    ("REFCOUNT <key>", "The reference count that Redis would report."),
                ],
            );
        }
        b"encoding" => ObjectReply::Encoding,
        b"refcount" => ObjectReply::References,
        b"idletime" => ObjectReply::Unknown(NO_IDLE_TIME),
        b"freq" => ObjectReply::Unknown(NO_FREQUENCY),
        _ => return Err(unknown_subcommand("OBJECT", call.bytes(1)?)),
    };
    call.check_subcommand(3)?;
    read(call, 2, reply)
}

/// `MEMORY USAGE key [SAMPLES count]`, `MEMORY HELP`.
pub(crate) fn memory<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.is(1, "help") {
        let lines =
            [("USAGE <key> [SAMPLES <count>]", "Approximate bytes of a key and its value on a node.")];
        return help(context, call, "MEMORY", &lines);
    }
    if !call.is(1, "usage") {
        return Err(unknown_subcommand("MEMORY", call.bytes(1)?));
    }
    if call.count() < 3 {
        return Err(CommandError::arity("memory|usage"));
    }
    for index in (3..call.count()).step_by(2) {
        if !call.is(index, "samples") || index + 1 == call.count() {
            return Err(CommandError::SYNTAX);
        }
        if call.integer(index + 1)? < 0 {
            return Err(CommandError::SYNTAX);
        }
    }
    read(call, 2, ObjectReply::Usage(call.key(2)?.len()))
}

/// `DUMP key`.
pub(crate) fn dump<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    read(call, 1, ObjectReply::Dump)
}

fn read<'a>(call: &Call<'a>, key: usize, reply: ObjectReply) -> Planned<'a> {
    let key = call.key(key)?;
    let request = if reply.reads() { Request::Get { key } } else { Request::Length { key } };
    Ok(Plan::request(request, Finish::Object(reply)))
}

/// `RESTORE key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`.
pub(crate) fn restore<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let (mut replaces, mut is_absolute, mut has_idle, mut has_frequency) = (false, false, false, false);
    let mut index = 4;
    while index < call.count() {
        let has_more = index + 1 < call.count();
        if call.is(index, "replace") {
            replaces = true;
        } else if call.is(index, "absttl") {
            is_absolute = true;
        } else if call.is(index, "idletime") && has_more && !has_frequency {
            within(call, index + 1, i64::MAX, "ERR Invalid IDLETIME value, must be >= 0")?;
            (has_idle, index) = (true, index + 1);
        } else if call.is(index, "freq") && has_more && !has_idle {
            within(call, index + 1, 255, "ERR Invalid FREQ value, must be >= 0 and <= 255")?;
            (has_frequency, index) = (true, index + 1);
        } else {
            return Err(CommandError::SYNTAX);
        }
        index += 1;
    }
    let (key, ttl_ms) = (call.key(1)?, within(call, 2, i64::MAX, "ERR Invalid TTL value, must be >= 0")?);
    let at_ms = if is_absolute { ttl_ms } else { ttl_ms.saturating_add(context.unix_ms) };
    let expiry = if ttl_ms == 0 { Expiry::Never } else { Expiry::At(at_ms) };
    let condition = if replaces { Condition::Always } else { Condition::IfAbsent };
    let (bytes, form) = dump::value(call.value(3)?).map_err(refused)?;
    let limit = match form {
        Form::Hash => HASH_BYTES_MAX,
        _ => context.host.value_limit(context.session.keyspace),
    };
    if bytes.len() > limit {
        return Err(match form {
            Form::Hash => CommandError::hash_too_long(limit),
            _ => SubmitError::ValueTooLong { bytes: bytes.len(), limit }.into(),
        });
    }
    let operation = match form {
        Form::Hash => BuiltOperation::SetHash(expiry),
        _ => BuiltOperation::Set(expiry),
    };
    let built = BuiltUpdate { key, condition, bytes: bytes.into_owned(), operation };
    Ok(Plan::Request(PlannedRequest::Built(built), Finish::Object(ObjectReply::Restored)))
}

/// An argument that is a number from 0 to `last`.
fn within(call: &Call<'_>, index: usize, last: i64, text: &'static str) -> Result<u64, CommandError> {
    let number = call.integer(index)?;
    let number = u64::try_from(number).ok().filter(|_| number <= last);
    number.ok_or(CommandError::fixed(text))
}

fn refused(damage: Damage) -> CommandError {
    match damage {
        Damage::Footer => CommandError::fixed("ERR DUMP payload version or checksum are wrong"),
        Damage::Form => CommandError::fixed("ERR Bad data format"),
        Damage::TooLong => {
            CommandError::text(format!("ERR value exceeds the limit of {DUMPED_BYTES_MAX} bytes of RESTORE"))
        }
    }
}
