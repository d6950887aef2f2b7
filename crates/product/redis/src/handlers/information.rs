//! INFO.

use crate::call::Call;
use crate::context::{Context, Planned};
use crate::plan::Plan;
use alloc::string::String;
use core::fmt::Write;

/// Sections in the order of Redis, and whether they are shown by default.
const SECTIONS: [(&str, bool); 13] = [
    ("Server", true),
    ("Clients", true),
    ("Memory", true),
    ("Persistence", true),
    ("Stats", true),
    ("Replication", true),
    ("CPU", true),
    ("Modules", true),
    ("Commandstats", false),
    ("Errorstats", true),
    ("Latencystats", false),
    ("Cluster", true),
    ("Keyspace", true),
];

/// `INFO [section …]`.
pub(crate) fn info<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let is_asked = |name: &str| (1..call.count()).any(|index| call.is(index, name));
    let default = call.count() == 1 || is_asked("default");
    let all = is_asked("all") || is_asked("everything");
    let mut text = String::new();
    for (name, is_default) in SECTIONS {
        if !(all || (default && is_default) || is_asked(name)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        write!(text, "# {name}\r\n").expect("writing to a string cannot fail");
        for (field, value) in context.host.info_section(name, context.unix_ms) {
            write!(text, "{field}:{value}\r\n").expect("writing to a string cannot fail");
        }
    }
    context.reply.verbatim(&text);
    Ok(Plan::Replied)
}
