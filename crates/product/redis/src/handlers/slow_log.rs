//! The command SLOWLOG.

use super::{help, ok};
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::plan::Plan;
use nicekv_proto::number::parse_integer;

/// Number of entries that GET shows by default.
const COUNT_DEFAULT: usize = 10;

/// `SLOWLOG GET [count] | LEN | RESET | HELP`.
pub(crate) fn slowlog<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    match call.bytes(1)?.to_ascii_lowercase().as_slice() {
        b"get" if call.count() <= 3 => get(context, call),
        b"get" => Err(CommandError::fixed(
            "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        )),
        b"len" => {
            call.check_subcommand(2)?;
            context.reply.integer(context.host.slow_entry_count() as i64);
            Ok(Plan::Replied)
        }
        b"reset" => {
            call.check_subcommand(2)?;
            context.host.forget_slow_entries();
            ok(context)
        }
        b"help" => help(
            context,
            call,
            "SLOWLOG",
            &[
                (
                    "GET [<count>]",
                    "The newest slow commands (default 10, -1: all): number, time, microseconds, arguments, client, its name.",
                ),
                ("LEN", "The number of slow commands in the log."),
                ("RESET", "Clears the log."),
            ],
        ),
        _ => Err(unknown_subcommand("SLOWLOG", call.bytes(1)?)),
    }
}

fn get<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const RANGE: CommandError = CommandError::fixed("ERR count should be greater than or equal to -1");
    let count = match call.count() {
        2 => COUNT_DEFAULT,
        _ => match parse_integer(call.bytes(2)?).ok_or(RANGE)? {
            -1 => usize::MAX,
            count => usize::try_from(count).map_err(|_| RANGE)?,
        },
    };
    let entries = context.host.slow_entries(count);
    let reply = &mut context.reply;
    reply.array(entries.len());
    for slow in entries {
        reply.array(6);
        [slow.number, slow.unix_s, slow.took_us].iter().for_each(|number| reply.integer(*number as i64));
        reply.array(slow.arguments.len());
        slow.arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(slow.address.as_bytes());
        reply.bulk(&slow.name);
    }
    Ok(Plan::Replied)
}
