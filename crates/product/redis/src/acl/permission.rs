//! Checks whether a user may run a command with these arguments.

use super::user::{Refusal, User};
use crate::command::Command;

/// Refuses what a user may not access: the command, its keys, or its channels. `count`: number of
/// arguments, including the name.
pub fn check<'a>(
    user: &User,
    command: &Command,
    count: usize,
    argument: &dyn Fn(usize) -> &'a [u8],
) -> Result<(), Refusal<'a>> {
    let (subject, has_get) = command.subject_of(count, argument);
    user.check(subject, command.key_indexes(count, argument).map(argument), has_get)?;
    let (channels, is_pattern) = command.channel_indexes(count);
    let forbidden = channels.map(argument).find(|channel| !user.may_use_channel(channel, is_pattern));
    forbidden.map_or(Ok(()), |channel| Err(Refusal::Channel(channel)))
}
