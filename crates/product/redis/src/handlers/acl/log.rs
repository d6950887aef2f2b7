//! The command ACL LOG.

use super::ok;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::plan::Plan;
use nicekv_proto::number::parse_integer;

/// Number of entries shown by default.
const COUNT_DEFAULT: usize = 10;

/// `ACL LOG [count | RESET]`.
pub(super) fn log<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.count() == 3 && call.is(2, "reset") {
        context.host.forget_denials();
        return ok(context);
    }
    let count = match call.count() {
        2 => COUNT_DEFAULT,
        // As in Redis, a negative count shows nothing.
        _ => parse_integer(call.bytes(2)?).ok_or(CommandError::NOT_AN_INTEGER)?.max(0) as usize,
    };
    let entries = context.host.denials(count);
    let reply = &mut context.reply;
    reply.array(entries.len());
    for entry in entries {
        reply.map(10);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        for (field, value) in [
            ("reason", entry.reason.name().as_bytes()),
            ("context", b"toplevel"),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            reply.bulk(field.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double(context.unix_ms.saturating_sub(entry.created_unix_ms) as f64 / 1_000.0);
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
        for (field, value) in [
            ("entry-id", entry.number),
            ("timestamp-created", entry.created_unix_ms),
            ("timestamp-last-updated", entry.updated_unix_ms),
        ] {
            reply.bulk(field.as_bytes());
            reply.integer(value as i64);
        }
    }
    Ok(Plan::Replied)
}
