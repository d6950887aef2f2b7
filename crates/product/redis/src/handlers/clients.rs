//! CLIENT and MONITOR.

use super::connection::checked_name;
use super::{help, ok};
use crate::call::Call;
use crate::client_info::{ClientInfo, ClientType};
use crate::context::{Context, Handler, Planned};
use crate::error::{CommandError, unknown_subcommand};
use crate::plan::Plan;
use crate::table::SUBJECTS;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use nicekv_proto::Duration;
use nicekv_proto::number::parse_integer;

/// Subcommands, with their minimum and maximum number of arguments.
const SUBCOMMANDS: [(&str, usize, usize, Handler); 13] = [
    ("getname", 2, 2, getname),
    ("help", 2, 2, client_help),
    ("id", 2, 2, id),
    ("info", 2, 2, info),
    ("kill", 3, usize::MAX, kill),
    ("list", 2, usize::MAX, list),
    ("no-evict", 3, 3, no_evict),
    ("no-touch", 3, 3, no_touch),
    ("pause", 3, usize::MAX, pause),
    ("reply", 3, 3, reply),
    ("setinfo", 4, 4, setinfo),
    ("setname", 3, 3, setname),
    ("unpause", 2, 2, unpause),
];

pub(crate) fn client<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let found = SUBCOMMANDS.iter().find(|(name, ..)| call.is(1, name));
    let Some((name, least, most, handler)) = found else {
        return Err(unknown_subcommand("CLIENT", call.bytes(1)?));
    };
    if !(*least..=*most).contains(&call.count()) {
        return Err(CommandError::arity(&format!("client|{name}")));
    }
    handler(context, call)
}

fn client_help<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    help(
        context,
        call,
        "CLIENT",
        &[
            ("GETNAME", "The name of this connection."),
            ("ID", "The id of this connection."),
            ("INFO", "The line of LIST for this connection."),
            ("KILL <ip:port>", "Closes the connection from this address."),
            (
                "KILL <filter> <value> [...]",
                "Closes connections by ID, TYPE, USER, ADDR or LADDR; this one only if SKIPME is no.",
            ),
            ("LIST [TYPE <type> | ID <id> [<id> ...]]", "A line for each connection."),
            ("NO-EVICT ON|OFF", "Whether this connection is closed last when memory runs out."),
            ("NO-TOUCH ON|OFF", "Has no effect: keys have no time of last use."),
            ("PAUSE <milliseconds> [WRITE|ALL]", "Holds back all commands, or only writes, for this time."),
            ("REPLY ON|OFF|SKIP", "Whether this connection gets replies."),
            ("SETINFO LIB-NAME|LIB-VER <text>", "Accepted and ignored."),
            ("SETNAME <name>", "Names this connection."),
            ("UNPAUSE", "Ends a pause."),
        ],
    )
}

fn id<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.reply.integer(context.session.id as i64);
    Ok(Plan::Replied)
}

fn info<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let client = context.host.client(context.session, context.unix_ms);
    let text = client.line(context.unix_ms, "client|info");
    context.reply.verbatim(&format!("{text}\n"));
    Ok(Plan::Replied)
}

fn getname<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    let name = &context.session.name;
    context.reply.bulk_or_null((!name.is_empty()).then_some(name), None);
    Ok(Plan::Replied)
}

fn setname<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    context.session.name = checked_name(call.bytes(2)?)?.to_vec();
    ok(context)
}

fn setinfo<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    if !call.is(2, "lib-name") && !call.is(2, "lib-ver") {
        let option = String::from_utf8_lossy(call.bytes(2)?).into_owned();
        return Err(CommandError::text(format!("ERR Unrecognized option '{option}'")));
    }
    ok(context)
}

fn is_on(call: &Call<'_>) -> Result<bool, CommandError> {
    if call.is(2, "on") {
        return Ok(true);
    }
    if call.is(2, "off") { Ok(false) } else { Err(CommandError::SYNTAX) }
}

fn no_evict<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    context.host.spare_client(is_on(call)?);
    ok(context)
}

/// Has no effect, because keys have no time of last use.
fn no_touch<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    is_on(call)?;
    ok(context)
}

/// `CLIENT PAUSE milliseconds [WRITE | ALL]`.
fn pause<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    const NO_TIME: CommandError = CommandError::fixed("ERR timeout is not an integer or out of range");
    const TOO_MANY: CommandError = CommandError::fixed(
        "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
    );
    if call.count() > 4 {
        return Err(TOO_MANY);
    }
    let writes_only = call.count() == 4 && call.is(3, "write");
    if call.count() == 4 && !writes_only && !call.is(3, "all") {
        return Err(CommandError::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL"));
    }
    let time_ms = parse_integer(call.bytes(2)?).ok_or(NO_TIME)?;
    let time_ms = u64::try_from(time_ms).map_err(|_| CommandError::fixed("ERR timeout is negative"))?;
    context.host.pause(Duration::from_millis(time_ms), writes_only);
    ok(context)
}

fn unpause<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    context.host.end_pause();
    ok(context)
}

fn reply<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let mode = &mut context.session.reply_mode;
    if call.is(2, "on") {
        mode.turn_on();
        return ok(context);
    }
    if call.is(2, "off") {
        mode.turn_off();
    } else if call.is(2, "skip") {
        mode.skip();
    } else {
        return Err(CommandError::SYNTAX);
    }
    Ok(Plan::Replied)
}

fn kind(call: &Call<'_>, index: usize) -> Result<ClientType, CommandError> {
    let name = call.bytes(index)?;
    ClientType::named(name).ok_or_else(|| {
        CommandError::text(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(name)))
    })
}

/// `CLIENT LIST [TYPE type | ID id …]`.
fn list<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let all = context.host.clients();
    let shown: Vec<&ClientInfo> = match call.count() {
        2 => all.iter().collect(),
        4 if call.is(2, "type") => {
            let kind = kind(call, 3)?;
            all.iter().filter(|client| client.is_of(kind)).collect()
        }
        4.. if call.is(2, "id") => {
            let mut ids = Vec::new();
            for index in 3..call.count() {
                const INVALID: CommandError = CommandError::fixed("ERR Invalid client ID");
                ids.push(parse_integer(call.bytes(index)?).ok_or(INVALID)?);
            }
            all.iter().filter(|client| ids.contains(&(client.id as i64))).collect()
        }
        _ => return Err(CommandError::SYNTAX),
    };
    let mut text = String::new();
    for client in shown {
        let line = if client.id == context.session.id {
            let own = context.host.client(context.session, context.unix_ms);
            own.line(context.unix_ms, "client|list")
        } else {
            client.line(context.unix_ms, SUBJECTS[client.last_subject].name)
        };
        text.push_str(&line);
        text.push('\n');
    }
    context.reply.verbatim(&text);
    Ok(Plan::Replied)
}

/// Selects the connections to close.
#[derive(Debug, Default)]
struct Filter {
    id: Option<u64>,
    kind: Option<ClientType>,
    user: Option<Vec<u8>>,
    peer: Option<String>,
    local: Option<String>,
    takes_own: bool,
}

impl Filter {
    /// Parses the filters of CLIENT KILL.
    fn parse(context: &Context<'_, '_>, call: &Call<'_>) -> Result<Self, CommandError> {
        let mut filter = Self::default();
        for index in (2..call.count()).step_by(2) {
            if index + 1 == call.count() {
                return Err(CommandError::SYNTAX);
            }
            let value = call.bytes(index + 1)?;
            let text = || String::from_utf8_lossy(value).into_owned();
            if call.is(index, "id") {
                const TEXT: CommandError = CommandError::fixed("ERR client-id should be greater than 0");
                let id = parse_integer(value).and_then(|id| u64::try_from(id).ok());
                filter.id = Some(id.filter(|id| *id > 0).ok_or(TEXT)?);
            } else if call.is(index, "type") {
                filter.kind = Some(kind(call, index + 1)?);
            } else if call.is(index, "user") {
                if context.host.users().0.get(value).is_none() {
                    return Err(CommandError::text(format!("ERR No such user '{}'", text())));
                }
                filter.user = Some(value.to_vec());
            } else if call.is(index, "addr") {
                filter.peer = Some(text());
            } else if call.is(index, "laddr") {
                filter.local = Some(text());
            } else if call.is(index, "skipme") && call.is(index + 1, "yes") {
                filter.takes_own = false;
            } else if call.is(index, "skipme") && call.is(index + 1, "no") {
                filter.takes_own = true;
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(filter)
    }

    fn takes(&self, client: &ClientInfo, own: u64) -> bool {
        (self.takes_own || client.id != own)
            && self.id.is_none_or(|id| client.id == id)
            && self.kind.is_none_or(|kind| client.is_of(kind))
            && self.user.as_ref().is_none_or(|user| client.details.user == *user)
            && self.peer.as_ref().is_none_or(|peer| client.peer == *peer)
            && self.local.as_ref().is_none_or(|local| client.local == *local)
    }
}

/// `CLIENT KILL ip:port`, `CLIENT KILL filter value …`.
fn kill<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    let is_old = call.count() == 3;
    let filter = if is_old {
        let peer = String::from_utf8_lossy(call.bytes(2)?).into_owned();
        Filter { peer: Some(peer), takes_own: true, ..Filter::default() }
    } else {
        Filter::parse(context, call)?
    };
    let own = context.session.id;
    let mut taken = context.host.clients();
    taken.retain(|client| filter.takes(client, own));
    if is_old && taken.is_empty() {
        return Err(CommandError::fixed("ERR No such client"));
    }
    taken.iter().filter(|client| client.id != own).for_each(|client| context.host.kill_client(client.id));
    if is_old {
        context.reply.simple("OK");
    } else {
        context.reply.integer(taken.len() as i64);
    }
    let takes_own = taken.iter().any(|client| client.id == own);
    Ok(if takes_own { Plan::Close } else { Plan::Replied })
}

/// `MONITOR`: from now on, all commands are shown to this connection.
pub(crate) fn monitor<'a>(context: &mut Context<'_, '_>, _: &Call<'a>) -> Planned<'a> {
    if !core::mem::replace(&mut context.session.is_monitor, true) {
        context.host.join_monitors();
    }
    ok(context)
}
