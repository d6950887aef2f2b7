//! The command CONFIG.

use super::{help, ok};
use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::host::Parameter;
use crate::plan::Plan;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nicekv_proto::glob;
use nicekv_proto::number::parse_integer;

/// `CONFIG GET pattern … | SET name value … | RESETSTAT | REWRITE | HELP`.
pub(crate) fn config<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    match call.bytes(1)?.to_ascii_lowercase().as_slice() {
        b"get" => get(context, call),
        b"set" => set(context, call),
        b"resetstat" => {
            call.check_subcommand(2)?;
            context.host.reset_statistics();
            ok(context)
        }
        b"rewrite" => {
            call.check_subcommand(2)?;
            Err(CommandError::fixed("ERR The server is running without a config file"))
        }
        b"help" => help(
            context,
            call,
            "CONFIG",
            &[
                ("GET <pattern> [<pattern> ...]", "Parameters that match a pattern, with their values."),
                ("RESETSTAT", "Resets the counters of INFO."),
                ("REWRITE", "Refused: a gateway does not write its file."),
                (
                    "SET <name> <value> [<name> <value> ...]",
                    "Sets parameters until the process ends, all of them or none.",
                ),
            ],
        ),
        _ => Err(unknown_subcommand("CONFIG", call.bytes(1)?)),
    }
}

fn get<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.count() < 3 {
        return Err(CommandError::arity("config|get"));
    }
    let is_named = |parameter: &&Parameter| {
        let matches = |index| {
            let pattern = call.arguments.prefix(index).to_ascii_lowercase();
            glob::matches(&pattern, parameter.name.as_bytes())
        };
        (2..call.count()).any(matches)
    };
    let parameters = context.host.parameters();
    let matching: Vec<_> = parameters.iter().filter(is_named).collect();
    context.reply.map(matching.len());
    for parameter in matching {
        context.reply.bulk(parameter.name.as_bytes());
        context.reply.bulk(parameter.value.as_bytes());
    }
    Ok(Plan::Replied)
}

/// `CONFIG SET`: checks all parameters before it sets any.
fn set<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.count() < 4 {
        return Err(CommandError::arity("config|set"));
    }
    if call.count() % 2 == 1 {
        return Err(CommandError::SYNTAX);
    }
    let parameters = context.host.parameters();
    let mut all: Vec<&Parameter> = Vec::new();
    for index in (2..call.count()).step_by(2) {
        let parameter = parameters.iter().find(|parameter| call.is(index, parameter.name));
        let Some(parameter) = parameter else {
            let name = String::from_utf8_lossy(call.bytes(index)?);
            let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
            return Err(CommandError::text(text));
        };
        if all.iter().any(|before| before.name == parameter.name) {
            return Err(failed(parameter, "duplicate parameter"));
        }
        all.push(parameter);
    }
    let mut changes = Vec::new();
    for (parameter, index) in all.into_iter().zip((3..call.count()).step_by(2)) {
        changes.extend(checked(parameter, call.bytes(index)?)?.map(|number| (parameter.name, number)));
    }
    changes.into_iter().for_each(|(name, number)| context.host.set_parameter(name, number));
    ok(context)
}

/// The number to set; `None` if the parameter already has this value.
fn checked(parameter: &Parameter, value: &[u8]) -> Result<Option<i64>, CommandError> {
    let Some(least) = parameter.least else {
        return match parameter.value.as_bytes() == value {
            true => Ok(None),
            false => Err(failed(parameter, "can't set immutable config")),
        };
    };
    let number = parse_integer(value);
    let number = number.ok_or_else(|| failed(parameter, "argument couldn't be parsed into an integer"))?;
    if number < least {
        let text = format!("argument must be between {least} and {} inclusive", i64::MAX);
        return Err(failed(parameter, &text));
    }
    Ok(Some(number))
}

fn failed(parameter: &Parameter, why: &str) -> CommandError {
    let name = parameter.name;
    CommandError::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}
