//! The commands of a connection that are not answered yet, oldest first, and the keys that they use.
//!
//! ```text
//!                         complete ─▶ the front is answered ─▶ output
//!                                     │
//!     [SET k1 …][GET k2 ✓][GET k3 …][GET k3 …] ◀─ push
//! ```
//!
//! Commands run at the same time, unless they have a key in common: then the later one waits for the earlier one. So a connection sees its
//! own writes, and nothing that it wrote later. Reads of one key that are issued in one turn do not wait for each other: they share
//! a request (`requests`). One of a later turn waits, or it could show an older value than the one before it.
//!
//! A command on very many keys is not compared key by key: it waits for all before it, and all behind it wait.

use crate::answered::Answered;
use crate::asking::Asking;
use crate::error::CommandError;
use crate::errors;
use crate::gathering::Gathering;
use crate::ledger::{Begun, Done};
use crate::plan::Finish;
use crate::reply::{Protocol, ReplyWriter};
use crate::requests::HashedMap;
use crate::rope::Rope;
use crate::subscribing::{Changed, Changing};
use crate::uses::{Keys, Uses};
use crate::words::Said;
use nicekv_client::OperationError;
use nicekv_client::Outcome;
use nicekv_proto::OpId;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// What most replies have beside the value: the kind, a length, line ends.
const REPLY_FRAME_BYTES: usize = 12;

#[derive(Debug)]
pub(crate) enum State {
    One(Finish),
    Many(Box<Gathering>),
    Asking(Box<dyn Asking>),
    /// 1 if all of a transaction was done, 0 if nothing was, as something that is required was not so.
    AllOrNone,
    Changing(Box<Changing>),
    Ready(Rope),
}

impl State {
    fn memory(&self) -> usize {
        match self {
            Self::One(finish) => finish.memory(),
            Self::Many(gathering) => size_of::<Gathering>() + gathering.memory(),
            Self::Asking(asking) => asking.memory(),
            Self::Changing(changing) => size_of::<Changing>() + changing.memory(),
            Self::Ready(reply) => reply.own_bytes(),
            Self::AllOrNone => 0,
        }
    }

    /// Whether it may need a large value, which is to be granted.
    fn wants_value(&self) -> bool {
        match self {
            Self::One(finish) => finish.wants_value(),
            Self::Many(gathering) => gathering.wants_values(),
            Self::Asking(_) => true,
            Self::AllOrNone | Self::Changing(_) | Self::Ready(_) => false,
        }
    }
}

#[derive(Debug)]
struct Pending {
    keys: Keys,
    state: State,
    /// None of what was refused before it could begin.
    begun: Option<Begun>,
    /// It has no reply.
    is_quiet: bool,
}

/// Where the front's reply goes, and how it is written.
pub(crate) struct Output<'a> {
    pub(crate) bytes: &'a mut Rope,
    pub(crate) protocol: Protocol,
    pub(crate) unix_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    queue: VecDeque<Pending>,
    /// Number of the command at the front.
    first: u64,
    /// How many use each key, and how: all alike, as the others wait.
    keys_in_use: HashedMap<(u32, Uses)>,
    /// A command on very many keys is among them; it is the last.
    exclusive: bool,
    /// Bytes of replies that wait behind an unfinished command.
    ready_bytes: usize,
    /// How many may need a large value.
    wanting: usize,
    /// Bytes that the commands hold beyond their places in the queue.
    held_bytes: usize,
    /// What a WATCH has read that is answered.
    watched: Option<Option<Vec<OpId>>>,
    /// The command that is added next, and whether it has no reply.
    next: (Option<Begun>, bool),
    /// Those that have been answered, and are not counted yet.
    done: Vec<Done>,
    pub(crate) said: Said,
}

impl Unanswered {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the next reply is that of a read.
    pub(crate) fn awaits_read(&self) -> bool {
        self.queue.front().is_some_and(|pending| matches!(pending.keys.uses, Uses::Reads { .. }))
    }

    /// Number of the command that is pushed next.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// How many requests of the last command, which has several, are answered.
    pub(crate) fn answered_of_last(&self) -> usize {
        match self.queue.back() {
            Some(Pending { state: State::Many(gathering), .. }) => gathering.answered(),
            other => unreachable!("{other:?} has several requests"),
        }
    }

    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// The versions of a WATCH that was answered since this was called last; none of one that has failed.
    pub(crate) fn take_watched(&mut self) -> Option<Option<Vec<OpId>>> {
        self.watched.take()
    }

    /// Number of the oldest command.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether one of them may need a large value, so that what comes behind may have to wait until that was granted.
    pub(crate) fn may_want(&self) -> bool {
        self.wanting > 0
    }

    fn state(&self, command: u64) -> Option<&State> {
        Some(&self.queue.get(usize::try_from(command.checked_sub(self.first)?).ok()?)?.state)
    }

    /// Whether this command needs a value, and not only how long it is.
    pub(crate) fn wants_value(&self, command: u64) -> bool {
        self.state(command).is_some_and(State::wants_value)
    }

    /// The command's requests that have not been answered, if it has several.
    pub(crate) fn outstanding(&self, command: u64) -> Option<usize> {
        match self.state(command)? {
            State::Many(gathering) => Some(gathering.outstanding()),
            State::Asking(asking) => asking.reading(),
            _ => None,
        }
    }

    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        let key_bytes = size_of::<(u64, (u32, Uses))>() + 1;
        self.held_bytes
            + self.said.memory()
            + self.queue.capacity() * size_of::<Pending>()
            + self.keys_in_use.capacity() * key_bytes * 8 / 7
    }

    /// Gives back what it has not filled.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.keys_in_use.shrink_to_fit();
        self.said.shrink();
    }

    /// Whether a command on these keys has to wait for some of these.
    pub(crate) fn blocks(&self, keys: &Keys) -> bool {
        if keys.exclusive {
            return !self.queue.is_empty();
        }
        let shares = |uses| uses == keys.uses && uses != Uses::Writes;
        let waits = |key| self.keys_in_use.get(&key).is_some_and(|(_, uses)| !shares(*uses));
        (self.exclusive && !keys.is_empty()) || keys.iter().any(waits)
    }

    /// The command that is added next; `is_quiet`: it has no reply.
    pub(crate) fn begin(&mut self, begun: Begun, is_quiet: bool) {
        self.next = (Some(begun), is_quiet);
    }

    /// What is added next is none; `is_quiet`: it has no reply.
    pub(crate) fn begin_none(&mut self, is_quiet: bool) {
        self.next = (None, is_quiet);
    }

    /// Hands out each that was answered, with what was said.
    pub(crate) fn account(&mut self, mut each: impl FnMut(Done, &Said)) {
        self.done.drain(..).for_each(|done| each(done, &self.said));
        match self.queue.front() {
            None => self.said.forget(None),
            Some(Pending { begun: Some(Begun { said: Some(at), .. }), .. }) => self.said.forget(Some(*at)),
            // None was to be logged when it began.
            Some(_) => {}
        }
    }

    /// Adds a command that has requests.
    pub(crate) fn push(&mut self, keys: Keys, state: State) {
        for key in keys.iter() {
            self.keys_in_use.entry(key).or_insert((0, keys.uses)).0 += 1;
        }
        self.exclusive |= keys.exclusive;
        self.wanting += usize::from(state.wants_value());
        let (begun, is_quiet) = (self.next.0.take(), self.next.1);
        self.held_bytes += keys.others.capacity() * size_of::<u64>() + state.memory();
        self.queue.push_back(Pending { keys, state, begun, is_quiet });
    }

    /// Adds a command that has its reply already.
    pub(crate) fn push_ready(&mut self, reply: Rope, output: &mut Rope) {
        if let Some(begun) = self.next.0.take() {
            let has_failed = errors::count() > begun.errors;
            self.done.push(Done { begun, has_failed });
        }
        let reply = if self.next.1 { Rope::default() } else { reply };
        if self.queue.is_empty() {
            output.append(reply);
            self.first += 1;
            return;
        }
        self.ready_bytes += reply.len();
        self.push(Keys::none(), State::Ready(reply));
    }

    /// Takes the answer to one request of a command.
    pub(crate) fn complete(&mut self, command: u64, part: usize, answered: Answered<'_>, output: Output<'_>) {
        let index = (command - self.first) as usize;
        let state = &mut self.queue[index].state;
        self.held_bytes -= state.memory();
        let is_last = match state {
            State::Many(gathering) => gathering.take(part, answered),
            State::Asking(asking) => asking.take(part as u32, answered),
            State::One(_) | State::AllOrNone | State::Changing(_) | State::Ready(_) => true,
        };
        self.held_bytes += state.memory();
        if !is_last {
            return;
        }
        self.finish(index, Some(answered), output);
    }

    /// One request of the last command was not sent.
    pub(crate) fn fail(&mut self, error: CommandError, output: Output<'_>) {
        let index = self.queue.len() - 1;
        let State::Many(gathering) = &mut self.queue[index].state else {
            unreachable!("it has several requests")
        };
        if gathering.fail(error) {
            self.finish(index, None, output);
        }
    }

    /// The command that asks in turns, if it is not answered yet.
    pub(crate) fn asking(&mut self, command: u64) -> Option<&mut dyn Asking> {
        let index = usize::try_from(command.checked_sub(self.first)?).ok()?;
        match &mut self.queue.get_mut(index)?.state {
            State::Asking(asking) => Some(asking.as_mut()),
            _ => None,
        }
    }

    /// A part of the command that asks in turns was not asked for.
    pub(crate) fn fail_asking(&mut self, command: u64, part: u32, error: CommandError, output: Output<'_>) {
        let Some(asking) = self.asking(command) else { return };
        asking.fail(part, error);
        if asking.is_over() {
            self.finish((command - self.first) as usize, None, output);
        }
    }

    /// The store knows of one name of a command that changes what is listened to, or could not be told; how the command has ended, if that was the last.
    pub(crate) fn take_change(
        &mut self,
        command: u64,
        result: Result<(), OperationError>,
        output: Output<'_>,
    ) -> Option<Changed> {
        let index = usize::try_from(command.checked_sub(self.first)?).ok()?;
        let State::Changing(changing) = &mut self.queue.get_mut(index)?.state else { return None };
        let memory = changing.memory();
        if !changing.take(result) {
            return None;
        }
        let changed = changing.ended();
        debug_assert_eq!(memory, changing.memory(), "its lines are written yet");
        self.finish(index, None, output);
        Some(changed)
    }

    /// Writes the reply of a command and sends off what is ready at the front.
    fn finish(&mut self, index: usize, answered: Option<Answered<'_>>, output: Output<'_>) {
        let Pending { keys, state, begun, is_quiet } = &mut self.queue[index];
        let (begun, is_quiet) = (begun.take(), *is_quiet);
        let keys = std::mem::replace(keys, Keys::none());
        self.held_bytes -= keys.others.capacity() * size_of::<u64>() + state.memory();
        let state = std::mem::replace(state, State::Ready(Rope::default()));
        self.wanting -= usize::from(state.wants_value());
        self.release(&keys);
        // The oldest command's reply is written to its place, a later one's waits.
        let mut waiting = Rope::default();
        let is_written = index == 0 && !is_quiet;
        let out = if is_written { &mut *output.bytes } else { &mut waiting };
        let errors_before = errors::count();
        if !is_written {
            let copied = answered.filter(|answered| answered.kept.is_none());
            let value = copied.and_then(|answered| answered.result.ok()?.value);
            out.reserve_exact(value.map_or(0, <[u8]>::len) + REPLY_FRAME_BYTES);
        }
        let mut reply = ReplyWriter { out, protocol: output.protocol };
        match (state, answered) {
            (State::One(finish), Some(answered)) => finish.write(answered, output.unix_ms, &mut reply),
            (State::Many(mut gathering), _) => {
                if let Some(versions) = gathering.take_versions() {
                    self.watched = Some(versions);
                }
                gathering.write(&mut reply);
            }
            (State::AllOrNone, Some(answered)) => match answered.result {
                Ok(answer) => reply.integer((answer.outcome != Outcome::ConditionFailed).into()),
                Err(error) => reply.error(CommandError::of_transaction(error).as_bytes()),
            },
            (State::Asking(asking), _) => asking.write(&mut reply),
            (State::Changing(changing), _) => changing.write(&mut reply),
            _ => unreachable!("a command is answered once"),
        }
        let has_failed = errors::count() > errors_before;
        self.done.extend(begun.map(|begun| Done { begun, has_failed }));
        if is_quiet {
            waiting = Rope::default();
        }
        self.ready_bytes += waiting.len();
        self.held_bytes += waiting.own_bytes();
        self.queue[index].state = State::Ready(waiting);
        while let Some(Pending { state: State::Ready(reply), .. }) = self.queue.front_mut() {
            let reply = std::mem::take(reply);
            self.ready_bytes -= reply.len();
            self.held_bytes -= reply.own_bytes();
            output.bytes.append(reply);
            self.queue.pop_front();
            self.first += 1;
        }
    }

    fn release(&mut self, keys: &Keys) {
        self.exclusive &= !keys.exclusive;
        for key in keys.iter() {
            if let Entry::Occupied(mut used) = self.keys_in_use.entry(key) {
                used.get_mut().0 -= 1;
                if used.get().0 == 0 {
                    used.remove();
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "unanswered_tests.rs"]
mod tests;
