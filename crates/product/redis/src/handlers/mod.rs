//! The implementations of commands, by family.

pub(crate) mod acl;
pub(crate) mod authentication;
pub(crate) mod bits;
pub(crate) mod clients;
pub(crate) mod connection;
pub(crate) mod expiry;
pub(crate) mod hashes;
pub(crate) mod information;
pub(crate) mod keys;
pub(crate) mod numbers;
pub(crate) mod objects;
pub(crate) mod publishing;
pub(crate) mod rename;
pub(crate) mod scripts;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod slow_log;
pub(crate) mod strings;
pub(crate) mod transactions;

use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::plan::Plan;
use alloc::format;

fn ok<'a>(context: &mut Context<'_, '_>) -> Planned<'a> {
    context.reply.simple("OK");
    Ok(Plan::Replied)
}

/// The reply to `HELP`: the subcommands of `command` (its name in capitals), with descriptions.
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

/// A random number from the host.
fn random_number(context: &Context<'_, '_>) -> Result<u64, CommandError> {
    let mut bytes = [0; 8];
    context
        .host
        .fill_random(&mut bytes)
        .map_err(|error| CommandError::text(format!("ERR no random number: {error}")))?;
    Ok(u64::from_ne_bytes(bytes))
}
