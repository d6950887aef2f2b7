//! EVAL, EVALSHA and SCRIPT.

use super::ok;
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::exec::Exec;
use crate::plan::Plan;
use crate::script_reply::Digest;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nicekv_client::SubmitError;
use nicekv_client::transaction::{Script, Transaction};
use nicekv_proto::limits::TRANSACTION_BYTES_MAX;

const NO_SCRIPT: CommandError = CommandError::fixed("NOSCRIPT No matching script. Please use EVAL.");

type Arguments<'a> = Vec<&'a [u8]>;

pub(crate) fn eval<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    by_source(context, call, false)
}

pub(crate) fn eval_ro<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    by_source(context, call, true)
}

pub(crate) fn evalsha<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    by_digest(context, call, false)
}

pub(crate) fn evalsha_ro<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    by_digest(context, call, true)
}

fn by_source<'a>(context: &mut Context<'_, '_>, call: &Call<'a>, is_read_only: bool) -> Planned<'a> {
    let source = source(call, 1)?;
    let (keys, arguments) = parts(call)?;
    let digest = context.host.add_script(source);
    run(
        context,
        Script { unix_ms: context.unix_ms, is_read_only, source, keys: &keys, arguments: &arguments },
        &digest,
    )
}

fn by_digest<'a>(context: &mut Context<'_, '_>, call: &Call<'a>, is_read_only: bool) -> Planned<'a> {
    let (keys, arguments) = parts(call)?;
    let (digest, source) = context.host.find_script(call.arguments.prefix(1)).ok_or(NO_SCRIPT)?;
    let script = Script {
        unix_ms: context.unix_ms,
        is_read_only,
        source: &source,
        keys: &keys,
        arguments: &arguments,
    };
    run(context, script, &digest)
}

/// Plans a script: it is one op, which locks its keys.
fn run<'a>(context: &mut Context<'_, '_>, script: Script<'_>, digest: &Digest) -> Planned<'a> {
    if script.keys.is_empty() && context.session.multi.is_queueing() {
        return Err(CommandError::fixed("ERR scripts without keys are not allowed in transactions"));
    }
    let mut transaction = Transaction::default();
    let steps = transaction.run(&script, digest)?;
    let caller = context.session.caller(context.unix_ms);
    Ok(Plan::Continue(Box::new(Exec::of_script(caller, transaction, steps))))
}

/// The source of a script, if it fits into an op.
fn source<'a>(call: &Call<'a>, index: usize) -> Result<&'a [u8], CommandError> {
    let (bytes, limit) = (call.arguments.length(index), TRANSACTION_BYTES_MAX);
    if bytes > limit {
        return Err(SubmitError::TransactionTooLong { bytes, limit }.into());
    }
    call.bytes(index)
}

/// The keys and the arguments of a script.
fn parts<'a>(call: &Call<'a>) -> Result<(Arguments<'a>, Arguments<'a>), CommandError> {
    let count = call.integer(2)?;
    if count > call.count() as i64 - 3 {
        return Err(CommandError::fixed("ERR Number of keys can't be greater than number of args"));
    }
    let count =
        usize::try_from(count).map_err(|_| CommandError::fixed("ERR Number of keys can't be negative"))?;
    let keys = (3..3 + count).map(|index| call.key(index)).collect::<Result<_, _>>()?;
    let arguments = (3 + count..call.count()).map(|index| call.bytes(index)).collect::<Result<_, _>>()?;
    Ok((keys, arguments))
}

/// `SCRIPT LOAD source | EXISTS digest … | FLUSH [ASYNC | SYNC] | KILL | HELP`.
pub(crate) fn script<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let host = context.host;
    match (call.bytes(1)?.to_ascii_lowercase().as_slice(), call.count()) {
        (b"load", 3) => {
            let digest = host.add_script(source(call, 2)?);
            context.reply.bulk(&digest);
        }
        (b"exists", 3..) => {
            context.reply.array(call.count() - 2);
            for index in 2..call.count() {
                context.reply.integer(host.has_script(call.arguments.prefix(index)).into());
            }
        }
        (b"flush", 2 | 3) => {
            if call.count() == 3 && !call.is(2, "async") && !call.is(2, "sync") {
                return Err(CommandError::fixed("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
            }
            host.forget_scripts();
            return ok(context);
        }
        // Scripts are bounded and end by themselves, so there is never one to kill.
        (b"kill", 2) => return Err(CommandError::fixed("NOTBUSY No scripts in execution right now.")),
        (b"help", 2) => {
            context.reply.array(HELP.len());
            HELP.iter().for_each(|line| context.reply.simple(line));
        }
        (known @ (b"load" | b"exists" | b"flush" | b"kill" | b"help"), _) => {
            return Err(CommandError::arity(&format!("script|{}", String::from_utf8_lossy(known))));
        }
        _ => return Err(unknown_subcommand("SCRIPT", call.arguments.prefix(1))),
    }
    Ok(Plan::Replied)
}

const HELP: &[&str] = &[
    "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "EXISTS <sha1> [<sha1> ...]",
    "    For each digest, whether the gateway knows the script.",
    "FLUSH [ASYNC|SYNC]",
    "    Removes all scripts from the gateway's cache.",
    "KILL",
    "    Replies that no script is running: each is bounded, and ends by itself.",
    "LOAD <script>",
    "    Adds a script to the gateway's cache, and replies with its digest.",
    "HELP",
    "    Prints this help.",
];
