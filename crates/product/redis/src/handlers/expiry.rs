//! Expiry times: the commands that set and read them, and the options of SET and GETEX.

use crate::call::Call;
use crate::context::{Context, Planned};
use crate::error::CommandError;
use crate::finish::{Finish, TimeUnit};
use crate::plan::Plan;
use alloc::format;
use alloc::string::String;
use nicekv_client::Request;
use nicekv_proto::{Condition, ExpireCondition, Operation};

/// The origin of a time in an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Now,
    UnixEpoch,
}

/// A time option of SET or GETEX.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeOption {
    argument: usize,
    unit: TimeUnit,
    anchor: Anchor,
}

impl TimeOption {
    pub(crate) fn at_ms(self, context: &Context<'_, '_>, call: &Call<'_>) -> Result<u64, CommandError> {
        expiry_ms(context, call, call.integer(self.argument)?, self.unit, self.anchor)
    }
}

/// The options of SET and GETEX.
#[derive(Debug, Default)]
pub(crate) struct SetOptions {
    pub(crate) condition: Condition,
    pub(crate) get: bool,
    pub(crate) keep: bool,
    pub(crate) persist: bool,
    pub(crate) time: Option<TimeOption>,
}

impl SetOptions {
    /// Parses the options of SET (`set`) or GETEX, beginning with argument `first`.
    pub(crate) fn parse(call: &Call<'_>, first: usize, set: bool) -> Result<Self, CommandError> {
        const TIMES: [(&str, TimeUnit, Anchor); 4] = [
            ("ex", TimeUnit::Seconds, Anchor::Now),
            ("px", TimeUnit::Milliseconds, Anchor::Now),
            ("exat", TimeUnit::Seconds, Anchor::UnixEpoch),
            ("pxat", TimeUnit::Milliseconds, Anchor::UnixEpoch),
        ];
        let mut options = Self::default();
        let mut index = first;
        while index < call.count() {
            let time = TIMES.iter().find(|(word, ..)| call.is(index, word));
            let Self { condition, keep, persist, time: before, .. } = &options;
            if let Some(&(_, unit, anchor)) = time {
                // The same time option may be repeated, but not combined with another one.
                let other = before.is_some_and(|before| (before.unit, before.anchor) != (unit, anchor));
                if *keep || *persist || other || index + 1 >= call.count() {
                    return Err(CommandError::SYNTAX);
                }
                options.time = Some(TimeOption { argument: index + 1, unit, anchor });
                index += 1;
            } else if set && call.is(index, "nx") && *condition != Condition::IfPresent {
                options.condition = Condition::IfAbsent;
            } else if set && call.is(index, "xx") && *condition != Condition::IfAbsent {
                options.condition = Condition::IfPresent;
            } else if set && call.is(index, "get") {
                options.get = true;
            } else if set && call.is(index, "keepttl") && before.is_none() {
                options.keep = true;
            } else if !set && call.is(index, "persist") && before.is_none() {
                options.persist = true;
            } else {
                return Err(CommandError::SYNTAX);
            }
            index += 1;
        }
        Ok(options)
    }
}

/// The expiry time of a new value in Unix milliseconds. The argument must be positive, and the
/// computation must not overflow.
pub(crate) fn expiry_ms(
    context: &Context<'_, '_>,
    call: &Call<'_>,
    time: i64,
    unit: TimeUnit,
    anchor: Anchor,
) -> Result<u64, CommandError> {
    let at_ms = if time > 0 { absolute_ms(context, time, unit, anchor) } else { None };
    at_ms.map(|at_ms| at_ms as u64).ok_or_else(|| CommandError::expire_time(call.name))
}

fn absolute_ms(context: &Context<'_, '_>, time: i64, unit: TimeUnit, anchor: Anchor) -> Option<i64> {
    let time_ms = match unit {
        TimeUnit::Seconds => time.checked_mul(1_000)?,
        TimeUnit::Milliseconds => time,
    };
    match anchor {
        Anchor::Now => time_ms.checked_add(context.unix_ms as i64),
        Anchor::UnixEpoch => Some(time_ms),
    }
}

pub(crate) fn expire<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set_expiry(context, call, TimeUnit::Seconds, Anchor::Now)
}

pub(crate) fn pexpire<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set_expiry(context, call, TimeUnit::Milliseconds, Anchor::Now)
}

pub(crate) fn expireat<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set_expiry(context, call, TimeUnit::Seconds, Anchor::UnixEpoch)
}

pub(crate) fn pexpireat<'a>(context: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    set_expiry(context, call, TimeUnit::Milliseconds, Anchor::UnixEpoch)
}

/// Sets the expiry time of a key. A time in the past is allowed: it deletes the key.
fn set_expiry<'a>(
    context: &mut Context<'_, '_>,
    call: &Call<'a>,
    unit: TimeUnit,
    anchor: Anchor,
) -> Planned<'a> {
    let condition = expire_condition(call)?;
    let at_ms = absolute_ms(context, call.integer(2)?, unit, anchor);
    let at_ms = at_ms.ok_or_else(|| CommandError::expire_time(call.name))?;
    let operation = Operation::Expire { at_ms: at_ms.max(0) as u64, condition };
    Ok(Plan::request(Request::update(call.key(1)?, operation), Finish::Applied))
}

fn expire_condition(call: &Call<'_>) -> Result<ExpireCondition, CommandError> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for index in 3..call.count() {
        let known = [("nx", &mut nx), ("xx", &mut xx), ("gt", &mut gt), ("lt", &mut lt)];
        match known.into_iter().find(|(word, _)| call.is(index, word)) {
            Some((_, flag)) => *flag = true,
            None => {
                let option = String::from_utf8_lossy(call.bytes(index)?).into_owned();
                return Err(CommandError::text(format!("ERR Unsupported option {option}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        const TEXT: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(CommandError::fixed(TEXT));
    }
    if gt && lt {
        return Err(CommandError::fixed("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(match (nx, xx, gt, lt) {
        (true, ..) => ExpireCondition::IfNone,
        (_, true, true, _) => ExpireCondition::IfSomeAndLater,
        (_, true, _, true) => ExpireCondition::IfSomeAndEarlier,
        (_, true, ..) => ExpireCondition::IfSome,
        (_, _, true, _) => ExpireCondition::IfLater,
        (_, _, _, true) => ExpireCondition::IfEarlier,
        _ => ExpireCondition::Always,
    })
}

pub(crate) fn persist<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::update(call.key(1)?, Operation::Persist), Finish::Applied))
}

pub(crate) fn ttl<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::TimeToLive(TimeUnit::Seconds)))
}

pub(crate) fn pttl<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::TimeToLive(TimeUnit::Milliseconds)))
}

pub(crate) fn expiretime<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::ExpireTime(TimeUnit::Seconds)))
}

pub(crate) fn pexpiretime<'a>(_: &mut Context<'_, '_>, call: &Call<'a>) -> Planned<'a> {
    Ok(Plan::request(Request::Length { key: call.key(1)? }, Finish::ExpireTime(TimeUnit::Milliseconds)))
}
