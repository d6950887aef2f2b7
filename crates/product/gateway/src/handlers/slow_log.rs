//! SLOWLOG.

use super::{Planned, help, ok, unknown_subcommand};
use crate::error::CommandError;
use crate::plan::{Call, Context, Plan};
use crate::slow_log::Slow;
use nicekv_proto::number::parse_integer;

/// Entries that GET shows unless it says otherwise.
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
            context.reply.integer(context.server.slow_log.kept().entries.len() as i64);
            Ok(Plan::Replied)
        }
        b"reset" => {
            call.check_subcommand(2)?;
            context.server.slow_log.kept().entries.clear();
            ok(context)
        }
        b"help" => help(
            context,
            call,
            "SLOWLOG",
            &[
                (
                    "GET [<count>]",
                    "The last slow commands, 10 unless told otherwise, all by -1: number, time, microseconds, words, client, its name.",
                ),
                ("LEN", "How many there are."),
                ("RESET", "Forgets all of them."),
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
    let kept = context.server.slow_log.kept();
    let shown: Vec<&Slow> = kept.entries.iter().take(count).collect();
    let reply = &mut context.reply;
    reply.array(shown.len());
    for slow in shown {
        reply.array(6);
        [slow.number, slow.unix_s, slow.took_us].iter().for_each(|number| reply.integer(*number as i64));
        reply.array(slow.words.len());
        slow.words.iter().for_each(|word| reply.bulk(word));
        reply.bulk(slow.address.as_bytes());
        reply.bulk(&slow.name);
    }
    drop(kept);
    Ok(Plan::Replied)
}
