//! Commands with one request for each of their keys. As many requests are sent concurrently as
//! there is room for, in no guaranteed order.

use crate::answered::Answered;
use crate::call::Call;
use crate::continuation::{Continuation, Effect, Next, QueuedSteps};
use crate::error::CommandError;
use crate::finish::FinishEachKey;
use crate::resp::ReplyWriter;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use nicekv_client::transaction::Transaction;
use nicekv_client::{OperationError, Outcome, Request, SharedBytes};
use nicekv_proto::{Form, KeyspaceId, OpId};

/// Maximum requests of one command in flight: a larger burst would overrun the socket buffers of
/// switch and nodes.
const IN_FLIGHT_MAX: usize = 512;
/// Approximate overhead of a heap allocation.
const ALLOCATION_BYTES: usize = 16;

/// Makes the request for the key that is argument number `key`.
pub type RequestFor = for<'a> fn(call: &Call<'a>, key: usize) -> Request<'a>;

/// A running command. Its requests are made one by one, because there may be a million keys.
#[derive(Debug)]
pub struct EachKey {
    keyspace: KeyspaceId,
    /// Which arguments are keys. All keys and values have been checked.
    keys: Vec<u32>,
    request: RequestFor,
    sent: usize,
    replies: KeyReplies,
}

/// Collects the answers of a command with one request per key.
#[derive(Debug)]
pub(crate) struct KeyReplies {
    finish: FinishEachKey,
    requests: usize,
    outstanding: usize,
    count: i64,
    values: Vec<Option<Value>>,
    value_bytes: usize,
    versions: Vec<OpId>,
    error: Option<CommandError>,
}

/// A value that is held until the reply is written.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Short(Box<[u8]>),
    Large(SharedBytes),
}

impl Value {
    pub(crate) fn new(value: &[u8], shared: Option<&SharedBytes>) -> Self {
        shared.map_or_else(|| Self::Short(value.into()), |shared| Self::Large(shared.clone()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Large(shared) => shared,
        }
    }

    pub(crate) fn shared(&self) -> Option<&SharedBytes> {
        if let Self::Large(shared) = self { Some(shared) } else { None }
    }

    /// Heap bytes in use; a large value is not included, because its grant counts it.
    pub(crate) fn memory(&self) -> usize {
        if let Self::Short(bytes) = self { bytes.len() + ALLOCATION_BYTES } else { 0 }
    }
}

impl EachKey {
    pub(crate) fn new(
        keyspace: KeyspaceId,
        keys: Vec<u32>,
        request: RequestFor,
        finish: FinishEachKey,
    ) -> Self {
        let replies = KeyReplies::new(finish, keys.len());
        Self { keyspace, keys, request, sent: 0, replies }
    }
}

impl Continuation for EachKey {
    fn next<'a>(&'a mut self, call: &Call<'a>) -> Next<'a> {
        let Some(key) = self.keys.get(self.sent) else { return Next::Done };
        if self.in_flight() >= IN_FLIGHT_MAX {
            return Next::Wait;
        }
        self.sent += 1;
        Next::Request(self.keyspace, self.sent as u32 - 1, (self.request)(call, *key as usize))
    }

    fn take(&mut self, part: u32, answered: Answered<'_>) -> bool {
        self.replies.take(part as usize, answered)
    }

    fn fail(&mut self, _: u32, error: CommandError) {
        self.replies.fail(error);
    }

    fn in_flight(&self) -> usize {
        self.sent - (self.replies.requests - self.replies.outstanding)
    }

    fn reads_several(&self) -> bool {
        true
    }

    fn wants_values(&self) -> bool {
        self.replies.finish.wants_values()
    }

    fn is_over(&self) -> bool {
        self.replies.outstanding == 0
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect {
        self.replies.write(reply)
    }

    fn memory(&self) -> usize {
        self.keys.capacity() * size_of::<u32>() + self.replies.memory()
    }

    fn queue(
        &self,
        call: &Call<'_>,
        transaction: &mut Transaction,
    ) -> Result<Option<QueuedSteps>, CommandError> {
        for key in &self.keys {
            transaction.add(&(self.request)(call, *key as usize))?;
        }
        Ok(Some(QueuedSteps::EachKey(self.replies.finish, self.keys.len())))
    }
}

impl KeyReplies {
    pub(crate) fn new(finish: FinishEachKey, requests: usize) -> Self {
        let values = if finish.wants_values() { vec![None; requests] } else { Vec::new() };
        let versions = if finish == FinishEachKey::Watched { vec![OpId::NONE; requests] } else { Vec::new() };
        let (outstanding, error) = (requests, None);
        Self { finish, requests, outstanding, count: 0, values, value_bytes: 0, versions, error }
    }

    fn memory(&self) -> usize {
        self.values.len() * size_of::<Option<Value>>() + self.value_bytes + size_of_val(&*self.versions)
    }

    /// Processes the answer to a part. Returns true if it was the last.
    pub(crate) fn take(&mut self, part: usize, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(answer) => {
                self.count += i64::from(answer.outcome == Outcome::Done);
                if let Some(version) = self.versions.get_mut(part) {
                    *version = answer.version;
                }
                if answer.form == Form::Hash && matches!(self.finish, FinishEachKey::Common(_)) {
                    self.error.get_or_insert(CommandError::NOT_STRINGS);
                }
                // As in Redis (MGET), a hash is treated as an absent value.
                let value = answer.value.filter(|_| answer.form != Form::Hash);
                if let (Some(place), Some(value)) = (self.values.get_mut(part), value) {
                    let value = Value::new(value, answered.shared);
                    self.value_bytes += value.memory();
                    *place = Some(value);
                }
            }
            // The error "outcome unknown" replaces a definite error of another key, because it
            // matters more.
            Err(error @ OperationError::OutcomeUnknown) => {
                self.error = Some(CommandError::of_operation(error, answered.cause));
            }
            Err(error) => {
                self.error.get_or_insert_with(|| CommandError::of_operation(error, answered.cause));
            }
        }
        self.outstanding -= 1;
        self.outstanding == 0
    }

    fn fail(&mut self, error: CommandError) {
        self.error.get_or_insert(error);
        self.outstanding -= 1;
    }

    pub(crate) fn write(self, reply: &mut ReplyWriter<'_>) -> Effect {
        let effect = match self.finish {
            FinishEachKey::Watched => Effect::Watched(self.error.is_none().then_some(self.versions)),
            _ => Effect::None,
        };
        if let Some(error) = &self.error {
            reply.error(error.as_bytes());
            return effect;
        }
        match self.finish {
            FinishEachKey::Count => reply.integer(self.count),
            FinishEachKey::AllStored | FinishEachKey::Watched => reply.simple("OK"),
            FinishEachKey::Common(query) => {
                let bytes = |place: usize| {
                    self.values.get(place).and_then(Option::as_ref).map_or(&[][..], Value::bytes)
                };
                query.write(bytes(0), bytes(1), reply);
            }
            FinishEachKey::Values => {
                reply.array(self.values.len());
                // Each value is freed as soon as it is written, so that a long reply does not take
                // its memory twice.
                self.values.into_iter().for_each(|value| match value {
                    None => reply.null(),
                    Some(Value::Short(value)) => reply.bulk(&value),
                    Some(Value::Large(value)) => reply.bulk_of(&value, Some(&value)),
                });
            }
        }
        effect
    }
}
