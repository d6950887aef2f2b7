//! The answers of a command with several requests.

use crate::answered::Answered;
use crate::error::CommandError;
use crate::lcs::LcsQuery;
use crate::permits::Kept;
use crate::reply::ReplyWriter;
use nicekv_client::{OperationError, Outcome};
use nicekv_proto::{Form, OpId};
use std::sync::Arc;

/// Makes the reply of a command with several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishMany {
    /// How many were applied or found.
    Count,
    /// All values, in the order of the keys.
    Values,
    /// What is asked of two values.
    Common(LcsQuery),
    /// OK.
    AllStored,
    /// OK, and the versions of all keys are kept.
    Watched,
}

/// The answers of a command with several requests, as they come in.
#[derive(Debug)]
pub(crate) struct Gathering {
    finish: FinishMany,
    requests: usize,
    outstanding: usize,
    count: i64,
    values: Vec<Option<Value>>,
    value_bytes: usize,
    versions: Vec<OpId>,
    error: Option<CommandError>,
}

/// A value that is kept for a reply.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Short(Box<[u8]>),
    Large(Arc<Kept>),
}

impl Value {
    pub(crate) fn of(value: &[u8], kept: Option<&Arc<Kept>>) -> Self {
        kept.map_or_else(|| Self::Short(value.into()), |kept| Self::Large(kept.clone()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Large(kept) => &kept.bytes,
        }
    }

    /// A large one.
    pub(crate) fn kept(&self) -> Option<&Arc<Kept>> {
        if let Self::Large(kept) = self { Some(kept) } else { None }
    }

    /// Bytes that it occupies, but for those of a large one, which are counted where they are granted.
    pub(crate) fn memory(&self) -> usize {
        if let Self::Short(bytes) = self { bytes.len() + ALLOCATION_BYTES } else { 0 }
    }
}

impl FinishMany {
    pub(crate) fn wants_values(self) -> bool {
        matches!(self, Self::Values | Self::Common(_))
    }
}

/// What an allocation costs beyond its bytes, about.
const ALLOCATION_BYTES: usize = 16;

impl Gathering {
    pub(crate) fn new(finish: FinishMany, requests: usize) -> Self {
        let values = if finish.wants_values() { vec![None; requests] } else { Vec::new() };
        let versions = if finish == FinishMany::Watched { vec![OpId::NONE; requests] } else { Vec::new() };
        let (outstanding, error) = (requests, None);
        Self { finish, requests, outstanding, count: 0, values, value_bytes: 0, versions, error }
    }

    /// Bytes that it occupies.
    pub(crate) fn memory(&self) -> usize {
        self.values.len() * size_of::<Option<Value>>() + self.value_bytes + size_of_val(&*self.versions)
    }

    /// The versions that were to be kept, if this is about that: none if not all are known.
    pub(crate) fn take_versions(&mut self) -> Option<Option<Vec<OpId>>> {
        let versions = std::mem::take(&mut self.versions);
        (self.finish == FinishMany::Watched).then(|| Some(versions).filter(|_| self.error.is_none()))
    }

    pub(crate) fn answered(&self) -> usize {
        self.requests - self.outstanding
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) fn wants_values(&self) -> bool {
        self.finish.wants_values()
    }

    /// Takes the answer to request number `part`; true if it was the last.
    pub(crate) fn take(&mut self, part: usize, answered: Answered<'_>) -> bool {
        match answered.result {
            Ok(answer) => {
                self.count += i64::from(answer.outcome == Outcome::Done);
                if let Some(version) = self.versions.get_mut(part) {
                    *version = answer.version;
                }
                if answer.form == Form::Hash && matches!(self.finish, FinishMany::Common(_)) {
                    self.error.get_or_insert(CommandError::NOT_STRINGS);
                }
                // As in Redis what is not plain is none here.
                let value = answer.value.filter(|_| answer.form != Form::Hash);
                if let (Some(place), Some(value)) = (self.values.get_mut(part), value) {
                    let value = Value::of(value, answered.kept);
                    self.value_bytes += value.memory();
                    *place = Some(value);
                }
            }
            // An unknown outcome says more than a certain failure of another key.
            Err(error @ OperationError::OutcomeUnknown) => self.error = Some(error.into()),
            Err(error) => {
                self.error.get_or_insert(error.into());
            }
        }
        self.outstanding -= 1;
        self.outstanding == 0
    }

    /// A request was not sent; true if it was the last that was waited for.
    pub(crate) fn fail(&mut self, error: CommandError) -> bool {
        self.error.get_or_insert(error);
        self.outstanding -= 1;
        self.outstanding == 0
    }

    pub(crate) fn write(self, reply: &mut ReplyWriter<'_>) {
        if let Some(error) = &self.error {
            return reply.error(error.as_bytes());
        }
        match self.finish {
            FinishMany::Count => reply.integer(self.count),
            FinishMany::AllStored | FinishMany::Watched => reply.simple("OK"),
            FinishMany::Common(query) => {
                let bytes = |place: usize| {
                    self.values.get(place).and_then(Option::as_ref).map_or(&[][..], Value::bytes)
                };
                query.write(bytes(0), bytes(1), reply);
            }
            FinishMany::Values => {
                reply.array(self.values.len());
                // Each is freed when it is written: a long reply does not take its memory twice.
                self.values.into_iter().for_each(|value| match value {
                    None => reply.null(),
                    Some(Value::Short(value)) => reply.bulk(&value),
                    Some(Value::Large(kept)) => reply.bulk_of(&kept.bytes, Some(&kept)),
                });
            }
        }
    }
}
