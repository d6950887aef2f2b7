//! What each command does, by family.

pub(crate) mod acl;
pub(crate) mod authentication;
pub(crate) mod bits;
pub(crate) mod clients;
pub(crate) mod connection;
pub(crate) mod expiry;
pub(crate) mod hashes;
pub(crate) mod information;
pub(crate) mod keys;
pub(crate) mod moving;
pub(crate) mod numbers;
pub(crate) mod objects;
pub(crate) mod publishing;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod slow_log;
pub(crate) mod strings;
pub(crate) mod transactions;

use crate::error::CommandError;
use crate::plan::{Call, Context, Plan};

/// The Redis whose commands are followed.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

type Planned<'a> = Result<Plan<'a>, CommandError>;

fn ok<'a>(context: &mut Context<'_, '_>) -> Planned<'a> {
    context.reply.simple("OK");
    Ok(Plan::Replied)
}

/// `HELP` of a command, which is in capitals: its subcommands, with what they do.
fn help<'a>(
    context: &mut Context<'_, '_>,
    call: &Call<'_>,
    command: &str,
    lines: &[(&str, &str)],
) -> Planned<'a> {
    call.check_subcommand(2)?;
    let reply = &mut context.reply;
    reply.array(2 * lines.len() + 3);
    reply.simple(&format!("{command} <subcommand> [<argument> ...]. Subcommands are:"));
    for (form, text) in lines.iter().chain(&[("HELP", "These lines.")]) {
        reply.simple(form);
        reply.simple(&format!("    {text}"));
    }
    Ok(Plan::Replied)
}

/// As Redis refuses a subcommand of `command`, which is in capitals.
pub(crate) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> CommandError {
    let shown = String::from_utf8_lossy(&subcommand[..subcommand.len().min(128)]);
    CommandError::text(format!("ERR unknown subcommand '{shown}'. Try {command} HELP."))
}
