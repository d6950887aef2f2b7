//! Commands about the server: what libraries and tools ask when they connect.

use super::{Planned, unknown_subcommand};
use crate::command::{COMMANDS, Command, Kind};
use crate::error::CommandError;
use crate::limits::ARGUMENT_BYTES_MAX;
use crate::plan::{Call, Context, Plan};
use nicekv_wire::glob;
use std::fmt::Write;

/// The Redis whose commands are followed.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// `INFO [section …]`.
pub(crate) fn info<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let all = call.count() == 1
        || (1..call.count()).any(|index| ["default", "all", "everything"].iter().any(|w| call.is(index, w)));
    let mut text = String::new();
    for (section, lines) in sections(context) {
        if all || (1..call.count()).any(|index| call.is(index, section)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write!(text, "# {section}\r\n").expect("a string takes everything");
            for (field, value) in lines {
                write!(text, "{field}:{value}\r\n").expect("a string takes everything");
            }
        }
    }
    context.reply.verbatim(&text);
    Ok(Plan::Replied)
}

type Section = (&'static str, Vec<(&'static str, String)>);

fn sections(context: &Context<'_, '_>) -> [Section; 5] {
    let state = context.server;
    let [wrong_passwords, denied_commands, denied_keys, denied_channels] = state.access.denied();
    let uptime_s = context.unix_ms.saturating_sub(state.started_unix_ms) / 1_000;
    [
        (
            "Server",
            vec![
                ("redis_version", REDIS_VERSION.into()),
                ("nicekv_version", env!("CARGO_PKG_VERSION").into()),
                ("redis_mode", "standalone".into()),
                ("gateway_threads", state.threads.len().to_string()),
                ("process_id", std::process::id().to_string()),
                ("tcp_port", state.port.to_string()),
                ("uptime_in_seconds", uptime_s.to_string()),
            ],
        ),
        (
            "Clients",
            vec![
                ("connected_clients", state.connections().to_string()),
                ("maxclients", state.connections_max.to_string()),
            ],
        ),
        (
            "Memory",
            vec![
                ("mem_clients_normal", state.memory_bytes().to_string()),
                ("maxmemory_clients", state.memory_bytes_max.to_string()),
                ("large_values_bytes", state.permits.held().to_string()),
                ("large_values_bytes_max", state.permits.bytes_max().to_string()),
                ("large_values_waiting", state.permits.waiting().to_string()),
            ],
        ),
        (
            "Stats",
            vec![
                ("total_connections_received", state.connections_total.get().to_string()),
                ("rejected_connections", state.connections_refused.get().to_string()),
                ("denied_connections", state.connections_denied.get().to_string()),
                ("evicted_clients", state.sum(|thread| &thread.connections_evicted).to_string()),
                (
                    "client_output_buffer_limit_disconnections",
                    state.sum(|thread| &thread.listeners_dropped).to_string(),
                ),
                ("stalled_clients", state.sum(|thread| &thread.connections_stalled).to_string()),
                ("total_commands_processed", state.sum(|thread| &thread.commands).to_string()),
                ("acl_access_denied_auth", wrong_passwords.to_string()),
                ("acl_access_denied_cmd", denied_commands.to_string()),
                ("acl_access_denied_key", denied_keys.to_string()),
                ("acl_access_denied_channel", denied_channels.to_string()),
                ("store_requests", state.sum(|thread| &thread.submitted).to_string()),
                ("store_requests_in_flight", state.sum(|thread| &thread.in_flight).to_string()),
                ("store_retries", state.sum(|thread| &thread.retries).to_string()),
                ("store_busy", state.sum(|thread| &thread.busy).to_string()),
            ],
        ),
        ("Replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]),
    ]
}

/// `CONFIG GET pattern …`: what tools look for, and nothing can be set.
pub(crate) fn config<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if !call.is(1, "get") {
        return Err(unknown_subcommand("CONFIG", call.bytes(1)?));
    }
    if call.count() < 3 {
        return Err(CommandError::arity("config|get"));
    }
    let databases = context.server.keyspaces.databases();
    let parameters = [
        // Durability is the store's: no snapshots, every put is forced on its replicas.
        ("save", String::new()),
        ("appendonly", "no".into()),
        ("databases", databases.to_string()),
        ("maxclients", context.server.connections_max.to_string()),
        ("maxmemory", "0".into()),
        ("maxmemory-clients", context.server.memory_bytes_max.to_string()),
        ("io-threads", context.server.threads.len().to_string()),
        ("port", context.server.port.to_string()),
        ("tls-port", context.server.tls.as_ref().map_or(0, |(port, _)| *port).to_string()),
        ("protected-mode", if context.server.is_protected { "yes" } else { "no" }.into()),
        ("proto-max-bulk-len", ARGUMENT_BYTES_MAX.to_string()),
        ("timeout", "0".into()),
    ];
    let matching: Vec<_> = parameters
        .iter()
        .filter(|(name, _)| {
            let is_named =
                |index| glob::matches(&call.arguments.prefix(index).to_ascii_lowercase(), name.as_bytes());
            (2..call.count()).any(is_named)
        })
        .collect();
    context.reply.map(matching.len());
    for (name, value) in matching {
        context.reply.bulk(name.as_bytes());
        context.reply.bulk(value.as_bytes());
    }
    Ok(Plan::Replied)
}

/// `COMMAND [COUNT | INFO [name …] | DOCS [name …] | LIST]`.
pub(crate) fn command<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let named = || (2..call.count()).map(|index| Command::find(call.arguments.prefix(index)));
    let total = COMMANDS.len();
    let reply = &mut context.reply;
    if call.count() == 1 || (call.is(1, "info") && call.count() == 2) {
        reply.array(total);
        COMMANDS.iter().for_each(|command| write_info(command, reply));
    } else if call.is(1, "info") {
        reply.array(call.count() - 2);
        named().for_each(|command| match command {
            Some(command) => write_info(command, reply),
            None => reply.null(),
        });
    } else if call.is(1, "count") && call.count() == 2 {
        reply.integer(total as i64);
    } else if call.is(1, "list") && call.count() == 2 {
        reply.array(total);
        COMMANDS.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    } else if call.is(1, "docs") {
        let all = call.count() == 2;
        let shown: Vec<_> = if all { COMMANDS.iter().collect() } else { named().flatten().collect() };
        reply.map(shown.len());
        for command in shown {
            reply.bulk(command.name.as_bytes());
            reply.map(2);
            reply.bulk(b"summary");
            reply.bulk(b"As in Redis 7.0, where the store has what it is about");
            reply.bulk(b"group");
            reply.bulk(match command.kind {
                Kind::Connection => b"connection",
                Kind::Scan => b"generic",
                Kind::Flush => b"server",
                Kind::Transaction => b"transactions",
                Kind::Listen | Kind::Publish => b"pubsub",
                Kind::Script => b"scripting",
                _ => b"string",
            });
        }
    } else if call.is(1, "count") || call.is(1, "list") {
        let subcommand = String::from_utf8_lossy(call.bytes(1)?).to_ascii_lowercase();
        return Err(CommandError::arity(&format!("command|{subcommand}")));
    } else {
        return Err(unknown_subcommand("COMMAND", call.bytes(1)?));
    }
    Ok(Plan::Replied)
}

/// Name, arity, flags, first key, last key, step; no categories, tips, key specifications or subcommands.
fn write_info(command: &Command, reply: &mut crate::reply::ReplyWriter<'_>) {
    let (last, step) = command.keys.unwrap_or((0, 0));
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(1);
    reply.simple(match command.kind {
        Kind::Read | Kind::Scan => "readonly",
        Kind::Write | Kind::Flush => "write",
        Kind::Listen | Kind::Publish => "pubsub",
        Kind::Connection | Kind::Transaction => "fast",
        Kind::Script => "movablekeys",
    });
    reply.integer(command.first_key() as i64);
    reply.integer(last.into());
    reply.integer(step.into());
    (0..3).for_each(|_| reply.set(0));
    reply.array(0);
}

/// `TIME`: seconds and microseconds; the gateway's clock is asked once a turn, for milliseconds.
pub(crate) fn time<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let parts = [context.unix_ms / 1_000, context.unix_ms % 1_000 * 1_000];
    context.reply.array(parts.len());
    parts.iter().for_each(|part| context.reply.bulk(part.to_string().as_bytes()));
    Ok(Plan::Replied)
}
