//! CONFIG: what tools look for, and the few things that can be set until the process ends.

use super::{Planned, help, ok, unknown_subcommand};
use crate::error::CommandError;
use crate::limits::ARGUMENT_BYTES_MAX;
use crate::plan::{Call, Context, Plan};
use crate::shared::ServerState;
use nicekv_proto::glob;
use nicekv_proto::number::parse_integer;

/// A parameter: its name, its value, and how it is set, if it can be.
struct Parameter {
    name: &'static str,
    value: fn(&ServerState) -> String,
    set: Option<Set>,
}

/// How a number is set: the least and the greatest of them, and where it goes.
#[derive(Clone, Copy)]
struct Set {
    least: i64,
    apply: fn(&ServerState, i64),
}

const fn fixed(name: &'static str, value: fn(&ServerState) -> String) -> Parameter {
    Parameter { name, value, set: None }
}

/// What Redis has for what is not here, or is always so.
static PARAMETERS: &[Parameter] = &[
    // Durability is the store's: no snapshots, every put is forced on its replicas.
    fixed("save", |_| String::new()),
    fixed("appendonly", |_| "no".into()),
    fixed("databases", |server| server.keyspaces.databases().to_string()),
    fixed("maxclients", |server| server.connections_max.to_string()),
    fixed("maxmemory", |_| "0".into()),
    fixed("maxmemory-policy", |_| "noeviction".into()),
    fixed("maxmemory-clients", |server| server.memory_bytes_max.to_string()),
    fixed("io-threads", |server| server.threads.len().to_string()),
    fixed("port", |server| server.port.to_string()),
    fixed("tls-port", |server| server.tls.as_ref().map_or(0, |(port, _)| *port).to_string()),
    fixed("protected-mode", |server| if server.is_protected { "yes" } else { "no" }.into()),
    fixed("proto-max-bulk-len", |_| ARGUMENT_BYTES_MAX.to_string()),
    fixed("timeout", |_| "0".into()),
    fixed("cluster-enabled", |_| "no".into()),
    fixed("notify-keyspace-events", |_| String::new()),
    fixed("latency-monitor-threshold", |_| "0".into()),
    fixed("hash-max-listpack-entries", |_| "512".into()),
    fixed("hash-max-listpack-value", |_| "64".into()),
    Parameter {
        name: "slowlog-log-slower-than",
        value: |server| server.settings.slow_us().to_string(),
        set: Some(Set { least: -1, apply: |server, number| server.settings.set_slow_us(number) }),
    },
    Parameter {
        name: "slowlog-max-len",
        value: |server| server.settings.slow_kept().to_string(),
        set: Some(Set { least: 0, apply: |server, number| server.settings.set_slow_kept(number as u64) }),
    },
];

/// `CONFIG GET pattern … | SET name value … | RESETSTAT | REWRITE | HELP`.
pub(crate) fn config<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    match call.bytes(1)?.to_ascii_lowercase().as_slice() {
        b"get" => get(context, call),
        b"set" => set(context, call),
        b"resetstat" => {
            call.check_subcommand(2)?;
            context.server.reset_totals();
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
                ("GET <pattern> [<pattern> ...]", "Parameters that match, with their values."),
                ("RESETSTAT", "Counts of INFO begin anew."),
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
    let matching: Vec<_> = PARAMETERS.iter().filter(is_named).collect();
    context.reply.map(matching.len());
    for parameter in matching {
        context.reply.bulk(parameter.name.as_bytes());
        context.reply.bulk((parameter.value)(context.server).as_bytes());
    }
    Ok(Plan::Replied)
}

/// All is checked before anything is set.
fn set<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if call.count() < 4 {
        return Err(CommandError::arity("config|set"));
    }
    if call.count() % 2 == 1 {
        return Err(CommandError::SYNTAX);
    }
    let mut all: Vec<&Parameter> = Vec::new();
    for index in (2..call.count()).step_by(2) {
        let parameter = PARAMETERS.iter().find(|parameter| call.is(index, parameter.name));
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
        changes.push(checked(parameter, call.bytes(index)?, context.server)?);
    }
    changes.into_iter().flatten().for_each(|(apply, number)| apply(context.server, number));
    ok(context)
}

type Change = (fn(&ServerState, i64), i64);

/// What is to be done to set it; nothing if it is so already.
fn checked(
    parameter: &Parameter,
    value: &[u8],
    server: &ServerState,
) -> Result<Option<Change>, CommandError> {
    let Some(Set { least, apply }) = parameter.set else {
        return match (parameter.value)(server).as_bytes() == value {
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
    Ok(Some((apply, number)))
}

fn failed(parameter: &Parameter, why: &str) -> CommandError {
    let name = parameter.name;
    CommandError::text(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}
