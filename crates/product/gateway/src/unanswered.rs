//! The unanswered commands of a connection, oldest first, and the keys they use.
//!
//! ```text
//!                          complete ─▶ the front is answered ─▶ output
//!                                      │
//!      [SET k1 …][GET k2 ✓][GET k3 …][GET k3 …] ◀─ push
//! ```
//!
//! Commands run concurrently, unless they have a key in common: then the later one waits for the
//! earlier one. So a command sees the effects of its connection's earlier commands, and none of
//! later ones. Reads of one key that are issued in the same turn do not wait for each other: they
//! share a request (`requests`). A read of a later turn waits; otherwise it could return an older
//! value than the read before it.
//!
//! The keys of a command on very many keys are not compared: it waits for all commands before it,
//! and all later ones wait for it.

use crate::key_conflicts::{KeyUsage, UsedKeys};
use crate::logged_arguments::LoggedArguments;
use crate::requests::HashedMap;
use nicekv_client::OperationError;
use nicekv_redis::answered::Answered;
use nicekv_redis::continuation::{Continuation, Effect};
use nicekv_redis::error::CommandError;
use nicekv_redis::finish::Finish;
use nicekv_redis::resp::{ErrorCounts, Protocol, ReplyBuffer, ReplyWriter};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;

/// Bytes that most replies have in addition to the value: the type, a length, line ends.
const REPLY_FRAME_BYTES: usize = 12;

/// A command that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The command's number in the command table.
    pub(crate) called: usize,
    pub(crate) since_ns: u64,
    /// Offset of its arguments in the slow log's buffer, if they were kept.
    pub(crate) logged: Option<u64>,
}

/// A command whose reply is complete.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) begun: Begun,
    pub(crate) has_failed: bool,
}

/// The state of a command that has no reply yet.
#[derive(Debug)]
pub(crate) enum State {
    /// The answer to its only request.
    Request(Finish),
    /// Answers to several requests.
    Continue(Box<dyn Continuation>),
    /// Its reply is complete, and waits for the replies of earlier commands.
    Ready(ReplyBuffer),
}

impl State {
    fn memory(&self) -> usize {
        match self {
            Self::Request(finish) => finish.memory(),
            Self::Continue(continuation) => size_of_val(&**continuation) + continuation.memory(),
            Self::Ready(reply) => reply.own_bytes(),
        }
    }

    /// Whether the command may read a large value.
    fn wants_values(&self) -> bool {
        match self {
            Self::Request(finish) => finish.wants_value(),
            Self::Continue(continuation) => continuation.wants_values(),
            Self::Ready(_) => false,
        }
    }
}

#[derive(Debug)]
struct Pending {
    keys: UsedKeys,
    state: State,
    /// The bytes of `state` that `held_bytes` includes.
    counted_bytes: usize,
    /// `None` for a command that was refused before it began.
    begun: Option<Begun>,
    /// CLIENT REPLY has suppressed its reply.
    is_silent: bool,
}

/// Where replies are written, and in which format.
pub(crate) struct Output<'a> {
    pub(crate) bytes: &'a mut ReplyBuffer,
    pub(crate) protocol: Protocol,
    pub(crate) unix_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    queue: VecDeque<Pending>,
    /// Sequence number of the oldest command.
    first: u64,
    /// For each key: how many commands use it, and how. All use it in the same way, because others
    /// wait.
    keys_in_use: HashedMap<(u32, KeyUsage)>,
    /// The last command runs alone, because it has very many keys.
    exclusive: bool,
    /// Bytes of complete replies that wait behind an unfinished command.
    ready_bytes: usize,
    /// Number of commands that may read a large value.
    wanting: usize,
    /// Heap bytes that the commands hold, in addition to the queue's own memory.
    held_bytes: usize,
    /// The command that `push` adds next, and whether its reply is suppressed.
    next: (Option<Begun>, bool),
    /// Finished commands that are not yet in the statistics.
    finished: Vec<Finished>,
    /// Error replies that are not yet in the statistics.
    errors: Option<Box<ErrorCounts>>,
    pub(crate) logged: LoggedArguments,
}

impl Unanswered {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the oldest command is a read.
    pub(crate) fn awaits_read(&self) -> bool {
        self.queue.front().is_some_and(|pending| matches!(pending.keys.usage, KeyUsage::Read { .. }))
    }

    /// Sequence number of the command that is added next.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Sequence number of the oldest command.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether some command may read a large value, so that later commands may have to wait for its
    /// grant.
    pub(crate) fn may_want_values(&self) -> bool {
        self.wanting > 0
    }

    fn index(&self, command: u64) -> Option<usize> {
        let index = usize::try_from(command.checked_sub(self.first)?).ok()?;
        (index < self.queue.len()).then_some(index)
    }

    fn state(&self, command: u64) -> Option<&State> {
        Some(&self.queue[self.index(command)?].state)
    }

    /// Whether this command needs whole values, not only their lengths.
    pub(crate) fn wants_values(&self, command: u64) -> bool {
        self.state(command).is_some_and(State::wants_values)
    }

    /// Whether several requests of this command may read large values concurrently.
    pub(crate) fn reads_several(&self, command: u64) -> bool {
        matches!(self.state(command), Some(State::Continue(continuation)) if continuation.reads_several())
    }

    /// How many requests of this command may be reading a large value.
    pub(crate) fn in_flight(&self, command: u64) -> usize {
        match self.state(command) {
            Some(State::Continue(continuation)) if continuation.reads_several() => continuation.in_flight(),
            _ => 1,
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        let key_bytes = size_of::<(u64, (u32, KeyUsage))>() + 1;
        self.held_bytes
            + self.logged.memory()
            + self.queue.capacity() * size_of::<Pending>()
            + self.keys_in_use.capacity() * key_bytes * 8 / 7
    }

    /// Frees unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.queue.shrink_to_fit();
        self.keys_in_use.shrink_to_fit();
        self.logged.shrink();
    }

    /// Whether a command on these keys has to wait for the commands in the queue.
    pub(crate) fn blocks(&self, keys: &UsedKeys) -> bool {
        if keys.exclusive {
            return !self.queue.is_empty();
        }
        let shares = |usage| usage == keys.usage && usage != KeyUsage::Write;
        let waits = |key| self.keys_in_use.get(&key).is_some_and(|(_, usage)| !shares(*usage));
        (self.exclusive && !keys.is_empty()) || keys.iter().any(waits)
    }

    /// Announces the command that `push` adds next. `is_silent`: its reply is suppressed.
    pub(crate) fn begin(&mut self, begun: Begun, is_silent: bool) {
        self.next = (Some(begun), is_silent);
    }

    /// Announces that the command that is added next is refused before it begins.
    pub(crate) fn begin_refused(&mut self, is_silent: bool) {
        self.next = (None, is_silent);
    }

    /// Calls `each` for the finished commands, with the logged arguments, and forgets the commands.
    pub(crate) fn account(&mut self, mut each: impl FnMut(Finished, &LoggedArguments)) {
        self.finished.drain(..).for_each(|finished| each(finished, &self.logged));
        match self.queue.front() {
            None => self.logged.forget(None),
            Some(Pending { begun: Some(Begun { logged: Some(at), .. }), .. }) => {
                self.logged.forget(Some(*at));
            }
            // No arguments were kept when the command began.
            Some(_) => {}
        }
    }

    /// Error replies since the last call.
    pub(crate) fn take_errors(&mut self) -> Option<Box<ErrorCounts>> {
        self.errors.take()
    }

    /// Collects the errors that a reply contains, for the statistics. Returns whether there were
    /// any.
    pub(crate) fn note_errors(&mut self, reply: &mut ReplyBuffer) -> bool {
        let Some(errors) = reply.take_errors() else { return false };
        match &mut self.errors {
            Some(all) => all.merge(&errors),
            None => self.errors = Some(errors),
        }
        true
    }

    /// Adds a command that waits for answers.
    pub(crate) fn push(&mut self, keys: UsedKeys, state: State) {
        for key in keys.iter() {
            self.keys_in_use.entry(key).or_insert((0, keys.usage)).0 += 1;
        }
        self.exclusive |= keys.exclusive;
        self.wanting += usize::from(state.wants_values());
        let (begun, is_silent) = (self.next.0.take(), self.next.1);
        let counted_bytes = state.memory();
        self.held_bytes += keys.others.capacity() * size_of::<u64>() + counted_bytes;
        self.queue.push_back(Pending { keys, state, counted_bytes, begun, is_silent });
    }

    /// Adds a command whose reply is complete.
    pub(crate) fn push_ready(&mut self, mut reply: ReplyBuffer, output: &mut ReplyBuffer) {
        let has_failed = self.note_errors(&mut reply);
        self.finished.extend(self.next.0.take().map(|begun| Finished { begun, has_failed }));
        let reply = if self.next.1 { ReplyBuffer::default() } else { reply };
        if self.queue.is_empty() {
            output.append(reply);
            self.first += 1;
            return;
        }
        self.ready_bytes += reply.len();
        self.push(UsedKeys::none(), State::Ready(reply));
    }

    /// Updates `held_bytes` to the memory that a command's state occupies now.
    fn recount(&mut self, index: usize) {
        let Pending { state, counted_bytes, .. } = &mut self.queue[index];
        let bytes = state.memory();
        self.held_bytes = self.held_bytes - *counted_bytes + bytes;
        *counted_bytes = bytes;
    }

    /// Processes the answer to one request of a command. If that finishes the command, returns how
    /// the command changes the connection.
    pub(crate) fn complete(
        &mut self,
        command: u64,
        part: u32,
        answered: Answered<'_>,
        output: Output<'_>,
    ) -> Option<Effect> {
        let index = self.index(command).expect("answers are for unanswered commands");
        if let State::Continue(continuation) = &mut self.queue[index].state {
            let is_over = continuation.take(part, answered);
            self.recount(index);
            if !is_over {
                return None;
            }
        }
        Some(self.finish(index, Some(answered), output))
    }

    /// The store has confirmed one name of a SUBSCRIBE or UNSUBSCRIBE, or the request for it
    /// failed.
    pub(crate) fn confirm(
        &mut self,
        command: u64,
        result: Result<(), OperationError>,
        output: Output<'_>,
    ) -> Option<Effect> {
        self.continuation(command)?;
        self.complete(command, 0, Answered::confirmed(result), output)
    }

    /// The continuation of a command; `None` if the command is finished.
    pub(crate) fn continuation(&mut self, command: u64) -> Option<&mut dyn Continuation> {
        let index = self.index(command)?;
        match &mut self.queue[index].state {
            State::Continue(continuation) => Some(continuation.as_mut()),
            _ => None,
        }
    }

    /// A request of the command could not be sent: the command fails.
    pub(crate) fn fail(
        &mut self,
        command: u64,
        part: u32,
        error: CommandError,
        output: Output<'_>,
    ) -> Option<Effect> {
        let continuation = self.continuation(command)?;
        continuation.fail(part, error);
        let is_over = continuation.is_over();
        let index = self.index(command)?;
        self.recount(index);
        is_over.then(|| self.finish(index, None, output))
    }

    /// Completes the reply of a command, then moves complete replies from the front of the queue to
    /// the output.
    fn finish(&mut self, index: usize, answered: Option<Answered<'_>>, output: Output<'_>) -> Effect {
        let Pending { keys, state, counted_bytes, begun, is_silent } = &mut self.queue[index];
        let (begun, is_silent) = (begun.take(), *is_silent);
        let keys = std::mem::replace(keys, UsedKeys::none());
        self.held_bytes -= keys.others.capacity() * size_of::<u64>() + std::mem::take(counted_bytes);
        let state = std::mem::replace(state, State::Ready(ReplyBuffer::default()));
        self.wanting -= usize::from(state.wants_values());
        self.release(&keys);
        // The oldest command writes its reply directly to the output; a later one's reply waits.
        let mut waiting = ReplyBuffer::default();
        let is_direct = index == 0 && !is_silent;
        let out = if is_direct { &mut *output.bytes } else { &mut waiting };
        if !is_direct {
            let copied = answered.filter(|answered| answered.shared.is_none());
            let value = copied.and_then(|answered| answered.result.ok()?.value);
            out.reserve_exact(value.map_or(0, <[u8]>::len) + REPLY_FRAME_BYTES);
        }
        let mut reply = ReplyWriter { out, protocol: output.protocol };
        let effect = match (state, answered) {
            (State::Request(finish), Some(answered)) => {
                finish.write(answered, output.unix_ms, &mut reply);
                Effect::None
            }
            (State::Continue(continuation), _) => continuation.write(&mut reply),
            _ => unreachable!("a command is answered once"),
        };
        let has_failed = self.note_errors(if is_direct { output.bytes } else { &mut waiting });
        self.finished.extend(begun.map(|begun| Finished { begun, has_failed }));
        if is_silent {
            waiting = ReplyBuffer::default();
        }
        self.ready_bytes += waiting.len();
        self.queue[index].state = State::Ready(waiting);
        self.recount(index);
        while let Some(Pending { state: State::Ready(reply), counted_bytes, .. }) = self.queue.front_mut() {
            let reply = std::mem::take(reply);
            self.ready_bytes -= reply.len();
            self.held_bytes -= *counted_bytes;
            output.bytes.append(reply);
            self.queue.pop_front();
            self.first += 1;
        }
        effect
    }

    fn release(&mut self, keys: &UsedKeys) {
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
